/* SPDX-License-Identifier: Apache-2.0
 *
 * The shared-memory backend's table, and what this machine can do for it.
 */
#include "transport/shm/shm.h"

#include "base/err.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static int shm_available(void)
{
	int fd = memfd_create("gradslot-probe", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (fd < 0)
		return err_set(errno, "shm: memfd_create with sealing: %s", strerror(errno));
	close(fd);
	return 0;
}

/* The first line of a file, without its end; "" when there is none. */
static void first_line(const char *path, char *out, int room)
{
	FILE *f = fopen(path, "re");

	out[0] = 0;
	if (!f)
		return;
	if (!fgets(out, room, f))
		out[0] = 0;
	out[strcspn(out, "\n")] = 0;
	fclose(f);
}

static void shm_describe(void (*line)(void *arg, const char *text), void *arg)
{
	char text[256], value[128];

	if (shm_available() < 0) {
		line(arg, err_text());
		return;
	}
	line(arg, "sealed memfds can be made; /dev/shm is not used");
	first_line("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", value,
		   sizeof(value));
	snprintf(text, sizeof(text), "2 MiB huge pages free in the pool: %s (vm.nr_hugepages)",
		 value[0] ? value : "unknown");
	line(arg, text);
	first_line("/sys/kernel/mm/transparent_hugepage/shmem_enabled", value, sizeof(value));
	snprintf(text, sizeof(text),
		 "transparent huge pages for shared memory: %s (shmem_enabled; advise is enough)",
		 value[0] ? value : "unknown");
	line(arg, text);
}

const struct tp_backend tp_shm_backend = {
    .scheme = "shm",
    .available = shm_available,
    .describe = shm_describe,
    .subcq_create = shm_subcq_create,
    .subcq_destroy = shm_subcq_destroy,
    .poll = shm_subcq_poll,
    .arm = shm_subcq_arm,
    .disarm = shm_subcq_disarm,
    .listen = shm_listen,
    .listener_destroy = shm_listener_destroy,
    .listener_fd = shm_listener_fd,
    .accept = shm_accept,
    .connect = shm_connect,
    .expose = shm_expose,
    .region_destroy = shm_region_destroy,
    .attach = shm_attach,
    .remote_destroy = shm_remote_destroy,
    .post = shm_post,
    .send = shm_send,
    .close = shm_conn_close,
    .conn_destroy = shm_conn_destroy,
};
