/* SPDX-License-Identifier: Apache-2.0
 *
 * gradslot: the trainer's side of the parameter server.
 *
 *     gs_trainer *t;
 *     gs_param *w;
 *     struct gs_options opt = GS_OPTIONS_INIT;
 *     opt.uri = "shm:demo";                          // or rdma://10.0.0.1:18515
 *     gs_connect(&opt, &t);
 *     struct gs_param_desc d = GS_PARAM_DESC_INIT;
 *     d.name = "w"; d.ndim = 1; d.shape[0] = 1000;
 *     d.optimizer = "sgd"; gs_setting(&d, "lr", 0.1);
 *     gs_declare(t, &d, &w);
 *     gs_start(t);
 *     for (int step = 0; step < 100; step++) {
 *             gs_pull(t, w, GS_RELAXED, weights);
 *             compute(weights, grad);
 *             gs_push(t, w, grad);
 *             gs_step_end(t);                        // sync mode
 *     }
 *     gs_leave(t);
 *     gs_close(t);
 *
 * Errors. Functions return 0 or a negative errno value; gs_last_error() then has a text that says
 * what was wrong and what to do. Outputs are untouched on failure. Any function after gs_connect
 * may also give:
 *   -ECONNRESET              the server is gone: noticed at once when its process ends, and over a
 *                            network, while something is under way, when it stops answering. (A
 *                            wait with nothing under way does not notice a machine that vanished)
 *   -ENOTCONN                the connection is closed, or gs_leave was called
 *   -ESHUTDOWN               the server said that it stops
 *   -EPROTO                  the server broke the protocol
 *   -EINVAL                  an argument is NULL or not this trainer's, or gs_start was not called
 * After one of the first four every later call on the trainer gives the same, except gs_close. So
 * it does after a failure inside gs_start or gs_leave.
 *
 * Threads. Any number of threads may use one trainer. gs_connect … gs_start and gs_leave/gs_close
 * are called by one thread while no other uses it. A call that waits (gs_pull, gs_step_wait,
 * gs_wait_applied, gs_push and gs_grad_buffer when no slot is free) lets the others go on. One
 * parameter is pushed by one thread at a time; different parameters may be pushed by different ones
 * at once. gs_step_post counts what was pushed before it was called: call it after the pushes of
 * the step returned.
 *
 * Processes. A trainer belongs to the process that connected it. That process may fork (data
 * loaders do); in the child every call on the trainer gives -EINVAL, gs_close does nothing, and the
 * parent is not disturbed. A child may connect a trainer of its own.
 *
 * Data. Gradients and weights are float32, dense, row-major, in the machine's byte order.
 */
#ifndef GRADSLOT_H
#define GRADSLOT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define GS_API __attribute__((visibility("default")))

#define GS_MAX_DIMS     8
#define GS_MAX_SETTINGS 12
#define GS_MAX_NAME     127 /* bytes, without the final 0 */

typedef struct gs_trainer gs_trainer;
typedef struct gs_param gs_param;

/* The calling thread's last error text; "" if there was none. Valid until its next error. */
GS_API const char *gs_last_error(void);
/* "0.1.0" */
GS_API const char *gs_version_string(void);

/* ---- connecting ------------------------------------------------------------------------------ */

enum { GS_SPIN_DEFAULT = -2, GS_SPIN_FOREVER = -1 };

struct gs_options {
	size_t size;         /* sizeof(struct gs_options): set by GS_OPTIONS_INIT */
	const char *uri;     /* shm:NAME or rdma://HOST:PORT */
	const char *name;    /* shown in the server's log; NULL: the process's name */
	int32_t rank;        /* 0..N-1, or -1: the server assigns a free one */
	uint32_t timeout_ms; /* bound of gs_connect, gs_leave and each step of gs_start's talk with
			      * the server; the server may be started later than the trainer: gs_connect
			      * tries again until then. Default 10000 */
	int32_t spin_us;     /* how long a wait polls before it sleeps; GS_SPIN_FOREVER never sleeps */
	uint32_t start_timeout_ms; /* how long gs_start waits for the other trainers (sync mode) and
				    * for initial weights; 0: no limit. Default 0 */
};
#define GS_OPTIONS_INIT                                                                            \
	{                                                                                          \
		sizeof(struct gs_options), NULL, NULL, -1, 10000, GS_SPIN_DEFAULT, 0               \
	}

/* Connects and says hello. Blocks up to timeout_ms.
 * Errors: -EINVAL (options, URI), -ENOENT (name does not resolve), -EHOSTUNREACH, -ECONNREFUSED,
 * -ETIMEDOUT, -ENODEV (no RDMA device), -EPROTONOSUPPORT (other version), -EEXIST (the rank is held
 * by a live trainer), -ERANGE (rank ≥ number of trainers), -EUSERS (as many trainers as the server
 * was started for are connected), -EPROTO (something else answers there), -ENOMEM, -EMFILE,
 * -EACCES. */
GS_API int gs_connect(const struct gs_options *opt, gs_trainer **out);

/* ---- declaring ------------------------------------------------------------------------------- */

enum gs_init {
	GS_INIT_DATA,     /* from the first trainer: .init_data */
	GS_INIT_CONSTANT, /* init_a */
	GS_INIT_UNIFORM,  /* init_a … init_b, from init_seed */
	GS_INIT_NORMAL,   /* mean init_a, standard deviation init_b, from init_seed */
};

struct gs_param_desc {
	size_t size;      /* sizeof(struct gs_param_desc): set by GS_PARAM_DESC_INIT */
	const char *name; /* unique, 1..GS_MAX_NAME bytes */
	uint32_t ndim;    /* 1..GS_MAX_DIMS */
	uint64_t shape[GS_MAX_DIMS];
	/* The optimizer that the server applies, and its settings (gs_setting):
	 *   "sgd"       lr                           w -= lr·g
	 *   "momentum"  lr, momentum=0.9, dampening=0  v = momentum·v + (1−dampening)·g;  w -= lr·v
	 *   "nesterov"  lr, momentum=0.9             v = momentum·v + g;  w -= lr·(g + momentum·v)
	 * as in torch.optim.SGD; v starts at zero. In sync mode g is the mean over the trainers that
	 * pushed in the step, ((g0+g1)+…)·(1/n) in rank order. */
	const char *optimizer;
	uint32_t n_settings;
	struct {
		const char *name;
		double value;
	} settings[GS_MAX_SETTINGS];
	enum gs_init init;
	double init_a, init_b;
	uint64_t init_seed;
	const float *init_data; /* GS_INIT_DATA: the tensor; must stay valid until gs_start returned.
				 * Used if this trainer is the one whom the server asks */
};
#define GS_PARAM_DESC_INIT                                                                         \
	{                                                                                          \
		sizeof(struct gs_param_desc), NULL, 0, {0}, "sgd", 0, {{NULL, 0}}, GS_INIT_CONSTANT, \
			0, 0, 0, NULL                                                              \
	}

/* Adds a setting; one too many is noticed by gs_declare. */
static inline void gs_setting(struct gs_param_desc *d, const char *name, double value)
{
	if (d->n_settings < GS_MAX_SETTINGS) {
		d->settings[d->n_settings].name = name;
		d->settings[d->n_settings].value = value;
	}
	d->n_settings++;
}

/* Declares a parameter; before gs_start. All trainers declare the same ones in the same order. The
 * description is copied (not init_data). *out lives as long as the trainer.
 * Errors: -EINVAL (the text names the field), -EEXIST (name declared already), -EBUSY (started),
 * -ENOMEM. */
GS_API int gs_declare(gs_trainer *t, const struct gs_param_desc *desc, gs_param **out);

/* Sends the declarations, gets memory, gives the initial weights if asked, and waits until training
 * may begin: weights are there and, in sync mode, all N trainers have come (the first time).
 * Errors: -EINVAL (no parameters; or they differ from what the server has: the text names both
 * sides), -ENOMEM (the server's memory or this process's memlock: the text has the sum), -ETIMEDOUT
 * (it says for whom it was waiting), -EBUSY (started). */
GS_API int gs_start(gs_trainer *t);

enum gs_mode { GS_SYNC = 1, GS_ASYNC = 2 };

struct gs_info {
	uint32_t rank, trainers; /* trainers: N of the server */
	enum gs_mode mode;
	uint64_t step;           /* sync: the step that is being made, from 1 */
	uint32_t blocks;         /* over all parameters */
	uint32_t slots;          /* gradients of one block under way at once */
	const char *transport;   /* "shm", "rdma (rxe0, RoCE v2, …)"; lives as long as the trainer */
	int load_store;          /* gs_weights_view works */
};
/* step, blocks and slots are 0 before gs_start. */
GS_API void gs_get_info(gs_trainer *t, struct gs_info *out);
GS_API uint64_t gs_param_elems(const gs_param *p);

/* ---- pushing --------------------------------------------------------------------------------- */

/* The buffer that the next push of `p` leaves from: gs_param_elems floats, 64-byte aligned, content
 * undefined. Over shm it is the slot itself, over RDMA registered memory: computing straight into
 * it saves a copy. It is the caller's until it is given to gs_push. Blocks while all slots are in
 * use. Errors: -EALREADY (sync: pushed in this step already, or its barrier was posted). */
GS_API int gs_grad_buffer(gs_trainer *t, gs_param *p, float **out);

/* Sends the gradient of `p`. `grad`: gs_param_elems floats, either what gs_grad_buffer gave (no
 * copy) or any other memory (copied before it returns). Returns when the gradient is on its way, not
 * when it is applied. Blocks while all slots are in use (each slot comes back when the server has
 * applied it). Sync: at most once a step for each parameter; not pushing one is allowed, it then
 * takes the mean of those who did.
 * Errors: -EALREADY (sync: pushed in this step already, or its barrier was posted). */
GS_API int gs_push(gs_trainer *t, gs_param *p, const float *grad);

/* Waits until every gradient that this trainer pushed to `p` is in the weights. In sync mode this is
 * the release of the step: -EDEADLK if the step's barrier was not posted yet. */
GS_API int gs_wait_applied(gs_trainer *t, gs_param *p);

/* ---- steps (sync mode) ----------------------------------------------------------------------- */

/* The barrier: ends this trainer's part of the step. Errors: -EPERM (async mode has none), -EALREADY
 * (posted already, wait first). */
GS_API int gs_step_post(gs_trainer *t);
/* Waits until the server released the step: every live trainer passed and every update is made.
 * The weights of a parameter then stay as they are until this trainer pushes it or posts the next
 * barrier. Errors: -EPERM (async mode), -EDEADLK (no barrier was posted). */
GS_API int gs_step_wait(gs_trainer *t);
/* Both. Errors: gs_step_post's. */
GS_API int gs_step_end(gs_trainer *t);

/* ---- pulling --------------------------------------------------------------------------------- */

enum gs_consistency {
	GS_RELAXED,    /* one-sided; element-wise whole, an update may be seen in part. In sync mode,
			* between a release and this trainer's own push of the parameter or its next
			* barrier, nothing changes: use this */
	GS_CONSISTENT, /* one-sided; each block is of one version (re-read on a change, and after 8
			* tries asked for through the queue) */
	GS_ORDERED,    /* through the parameter's queue: sees all that this trainer pushed before */
};

/* Reads the weights of `p` into dst (gs_param_elems floats). Blocks until they are there. Errors:
 * -EINVAL (`how`). */
GS_API int gs_pull(gs_trainer *t, gs_param *p, enum gs_consistency how, float *dst);

/* Reads several parameters at once, with the reads of all of them under way together. Errors:
 * -EINVAL (`how`, or a parameter is in the list twice). */
GS_API int gs_pull_many(gs_trainer *t, gs_param *const *p, float *const *dst, uint32_t n,
			enum gs_consistency how);

/* The live weights in place, read-only (over shm only; else -EOPNOTSUPP). Valid until gs_close. */
GS_API int gs_weights_view(gs_trainer *t, gs_param *p, const float **out);

/* How many updates the block that holds element `elem` has seen. Errors: -EINVAL (`elem`). */
GS_API int gs_block_version(gs_trainer *t, gs_param *p, uint64_t elem, uint64_t *out);

/* ---- leaving --------------------------------------------------------------------------------- */

/* Says bye and waits until the server has let go. Async: what was pushed is applied first. Sync: a
 * posted barrier is waited for first; what was pushed with no barrier behind it counts when the
 * others end the step, and they go on with one trainer less. Each of its waits takes up to
 * timeout_ms. Only gs_close may follow. Errors: -ETIMEDOUT (the text says for what). */
GS_API int gs_leave(gs_trainer *t);
/* Frees everything; without gs_leave before, the server sees a trainer die. NULL is allowed. */
GS_API void gs_close(gs_trainer *t);

#ifdef __cplusplus
}
#endif
#endif
