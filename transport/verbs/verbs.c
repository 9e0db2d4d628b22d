/* SPDX-License-Identifier: Apache-2.0
 *
 * The verbs backend's table: RDMA over InfiniBand, RoCE and iWARP.
 */
#include "transport/verbs/verbs.h"

const struct tp_backend tp_verbs_backend = {
    .scheme = "rdma",
    .available = verbs_available,
    .describe = verbs_describe,
    .subcq_create = verbs_subcq_create,
    .subcq_destroy = verbs_subcq_destroy,
    .poll = verbs_poll,
    .arm = verbs_arm,
    .disarm = verbs_disarm,
    .listen = verbs_listen,
    .listener_destroy = verbs_listener_destroy,
    .listener_fd = verbs_listener_fd,
    .accept = verbs_accept,
    .connect = verbs_connect,
    .expose = verbs_expose,
    .region_destroy = verbs_region_destroy,
    .reg = verbs_register,
    .hold = verbs_hold,
    .unreg = verbs_unregister,
    .attach = verbs_attach,
    .remote_destroy = verbs_remote_destroy,
    .post = verbs_post,
    .send = verbs_send,
    .close = verbs_close,
    .conn_destroy = verbs_conn_destroy,
};
