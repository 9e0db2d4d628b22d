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
 * Optimizers. By name, each with its settings: a default stands behind the =, what has none must be
 * given. g is the merged gradient after clipping and decay (below), w the weight, t the number of
 * the update from 1, lr the rate of this update; ^ is a power. State starts at 0. What they compute
 * in float32 is, but for rounding, PyTorch's optimizer of that name (torch.optim) where there is
 * one, and the cited publication's elsewhere.
 *   sgd              lr                                     torch.optim.SGD
 *       w -= lr·g
 *   momentum         lr, momentum=0.9, dampening=0          torch.optim.SGD
 *       b = momentum·b + (1-dampening)·g, at first b = g;  w -= lr·b
 *   nesterov         lr, momentum=0.9                       torch.optim.SGD
 *       b = momentum·b + g;  w -= lr·(g + momentum·b)
 *   adagrad          lr, lr_decay=0, initial_accumulator=0, eps=1e-10      torch.optim.Adagrad
 *       s += g^2;  w -= lr/(1 + (t-1)·lr_decay)·g/(sqrt(s + initial_accumulator) + eps)
 *   decayed_adagrad  lr, decay=0.95, eps=1e-6               PaddlePaddle's DecayedAdagrad
 *       s = decay·s + (1-decay)·g^2;  w -= lr·g/(sqrt(s) + eps)
 *   adadelta         lr=1, rho=0.9, eps=1e-6                torch.optim.Adadelta, arXiv:1212.5701
 *       s = rho·s + (1-rho)·g^2;  d = sqrt(a + eps)/sqrt(s + eps)·g;  a = rho·a + (1-rho)·d^2;
 *       w -= lr·d
 *   rmsprop          lr, alpha=0.99, eps=1e-8, momentum=0, centered=0, eps_inside=0, lr_inside=0
 *       s = alpha·s + (1-alpha)·g^2;  d = g/(sqrt(s) + eps);  b = momentum·b + d;  w -= lr·b
 *       centered=1: s - m^2 for s below the line, where m = alpha·m + (1-alpha)·g
 *       eps_inside=1: d = g/sqrt(s + eps), and lr_inside=1: b = momentum·b + lr·d;  w -= b: both as
 *       PaddlePaddle and TensorFlow. Otherwise torch.optim.RMSprop
 *   adam             lr, beta1=0.9, beta2=0.999, eps=1e-8, amsgrad=0, eps_hat=0    torch.optim.Adam
 *       m = beta1·m + (1-beta1)·g;  v = beta2·v + (1-beta2)·g^2;
 *       w -= lr·(m/(1-beta1^t))/(sqrt(v/(1-beta2^t)) + eps)                  arXiv:1412.6980
 *       amsgrad=1: the largest v so far below the line
 *       eps_hat=1: w -= lr·sqrt(1-beta2^t)/(1-beta1^t)·m/(sqrt(v) + eps), as TensorFlow
 *   adamw            as adam, with weight_decay=0.01 and decoupled=1       torch.optim.AdamW
 *   adamax           lr, beta1=0.9, beta2=0.999, eps=1e-8, eps_decayed=0   torch.optim.Adamax
 *       m = beta1·m + (1-beta1)·g;  u = max(beta2·u, |g| + eps);  w -= lr/(1-beta1^t)·m/u
 *       eps_decayed=1: u = max(beta2·u + eps, |g|), as PaddlePaddle
 *   ftrl             lr, l1=0, l2=0, lr_power=-0.5, beta=0  doi:10.1145/2487575.2488200
 *       n' = n + g^2;  z += g - (n'^-lr_power - n^-lr_power)/lr·w;  n = n';
 *       w = |z| > l1 ? (l1·sign(z) - z)/((beta + n^-lr_power)/lr + 2·l2) : 0, as PaddlePaddle and
 *       TensorFlow. At a rate of 0 nothing changes
 *   lars             lr, momentum=0.9, trust=0.001, weight_decay=0.0005, eps=0     arXiv:1708.03888
 *       r = trust·|w|/(|g| + weight_decay·|w| + eps), or 1 when a norm is 0;
 *       b = momentum·b + lr·r·(g + weight_decay·w);  w -= b
 *   lamb             lr, beta1=0.9, beta2=0.999, eps=1e-6, weight_decay=0.01       arXiv:1904.00962
 *       m, v as adam;  d = (m/(1-beta1^t))/(sqrt(v/(1-beta2^t)) + eps) + weight_decay·w;
 *       w -= lr·|w|/|d|·d, without the norms when one is 0
 *   lion             lr, beta1=0.9, beta2=0.99, and decoupled=1            arXiv:2302.06675
 *       w -= lr·sign(beta1·m + (1-beta1)·g);  m = beta2·m + (1-beta2)·g
 *   add              lr=1: what is pushed is a change of the weights
 *       w += lr·g
 *   rowwise_adagrad  lr, initial_accumulator=0, eps=1e-10   FBGEMM's EXACT_ROWWISE_ADAGRAD; tables
 *       s += mean of the row's g^2;  w -= lr·g/(sqrt(s + initial_accumulator) + eps)
 * Norms (lars, lamb) are of the whole tensor; these two are for dense parameters. Of a table's rows
 * those that are pushed are updated, with all of their state, and the others are left alone (as
 * torch.optim.SparseAdam, which is adam with eps_hat=1); t counts the table's updates. Tables have
 * one more setting: with lazy=0 the other rows are updated too, with a gradient of zero, as a dense
 * tensor's would be.
 *
 * Settings of all of them, which act in this order; 0, the default, does nothing:
 *   clip_norm         g is scaled down to this norm, the parameter's own
 *   clip_global_norm  the same, over all parameters of the step that have it, at one server: of a job
 *                     whose parameters are spread over several, each clips its own by their norm
 *   clip_value        each element is cut to -clip_value … clip_value
 *   dc_lambda         g += dc_lambda·g·g·(w - b), b: the weights that this trainer last read; for
 *                     stale gradients (DC-ASGD, arXiv:1609.08326)
 *   l1                g += l1·sign(w)
 *   weight_decay      g += weight_decay·w; with decoupled=1 w -= lr·weight_decay·w instead, beside
 *                     the optimizer's own step (arXiv:1711.05101)
 * add takes none of them, and ftrl no weight_decay. ftrl's l1, and lars' and lamb's weight_decay,
 * are their own.
 *
 * Errors. Functions return 0 or a negative errno value; gs_last_error() then has a text that says
 * what was wrong and what to do. Outputs are untouched on failure, but for what pulls read. Any function
 * after gs_connect may also give:
 *   -ECONNRESET              the server is gone: noticed at once when its process ends, and while a
 *                            call waits, when its machine is silent for keepalive_ms
 *   -ENOTCONN                the connection is closed, or gs_leave was called
 *   -ESHUTDOWN               the server said that it stops
 *   -EPROTO                  the server broke the protocol
 *   -EINVAL                  an argument is NULL or not this trainer's, or gs_start was not called
 * After one of the first four every later call on the trainer gives the same, except gs_close,
 * gs_get_info, gs_param_elems and, after -ECONNRESET and -ESHUTDOWN, gs_reconnect. So it does after a
 * failure inside gs_start or gs_leave.
 *
 * Threads. Any number of threads may use one trainer. gs_connect … gs_start, gs_reconnect and
 * gs_leave/gs_close are called by one thread while no other uses it. A call that waits (pulls,
 * gs_step_wait, gs_wait_applied, gs_set_lr, gs_checkpoint_wait; pushes and gs_grad_buffer when no slot
 * is free) lets the others go on. What does not say that it blocks or waits does so for room on the
 * connection alone. One parameter is pushed by one thread at a time; different parameters may be pushed by
 * different ones at once. gs_step_post counts what was pushed before it was called: call it after
 * the pushes of the step returned.
 *
 * Processes. A trainer belongs to the process that connected it. That process may fork (data
 * loaders do); in the child every call on the trainer gives -EINVAL, gs_close does nothing, and the
 * parent is not disturbed. A child may connect a trainer of its own.
 *
 * Data. Gradients and weights are dense, row-major, in the machine's byte order, float32 unless the
 * parameter says otherwise (grad_dtype, weight_dtype).
 *
 * Schedules. The server may change a parameter's learning rate by itself: gs_param_desc.schedule is
 * NAME[:key=value[,key=value...]], and a warm-up may stand in front, with a +:
 *     cosine:steps=1000,end=0.001
 *     warmup:steps=100,from=0.1+multistep:at=3000/6000/8000,gamma=0.5
 * A schedule works on lr, the parameter's setting, or what gs_set_lr set last; a change of lr does
 * not turn the clock t back. t counts the updates before: 0 at the first. In sync mode it counts
 * rounds, which are released steps, also those in which nobody pushed the parameter; elsewhere each
 * trainer's push of the parameter is an update of it, and counts one: in async and ssp mode, N trainers
 * that each push it once a step turn the clock N times a step. Into how many blocks the parameter is
 * cut never matters.
 *     constant                   lr
 *     step                       lr gamma^floor(t / every)
 *         every, gamma=0.1       torch StepLR
 *     multistep                  lr gamma^(how many of `at` are <= t)
 *         at, gamma=0.1          torch MultiStepLR. at: 1 to 16 clocks, ascending, with a / between
 *     piecewise                  rates[how many of `at` are <= t], whatever lr is
 *         at, rates              Paddle PiecewiseDecay. rates: one more than at
 *     exponential                lr gamma^(t / every); with staircase=1, floor(t / every)
 *         gamma, every=1,        torch ExponentialLR (every=1), TensorFlow ExponentialDecay
 *         staircase=0
 *     inverse_time               lr / (1 + gamma t / every); with staircase=1, floor(t / every)
 *         gamma, every=1,        Paddle InverseTimeDecay (every=1), TensorFlow InverseTimeDecay
 *         staircase=0
 *     polynomial                 end + (lr - end) (1 - min(t, steps) / steps)^power; with cycle=1
 *         steps, end=0, power=1, steps is the next multiple of it that is not below t
 *         cycle=0                Paddle PolynomialDecay, torch PolynomialLR (end=0)
 *     cosine                     end + (lr - end) (1 + cos(pi min(t, steps) / steps)) / 2
 *         steps, end=0,          torch CosineAnnealingLR, which rises again after steps; this stays
 *         cycle=0, mult=1        at end. With cycle=1 it starts again at lr after steps, and each
 *                                cycle takes mult times the one before: torch
 *                                CosineAnnealingWarmRestarts (T_0=steps, T_mult=mult)
 *     one_cycle                  from lr / div_factor up to lr at t = pct_start steps - 1, and down
 *         steps, pct_start=0.3,  to lr / div_factor / final_div_factor at t = steps - 1, where it
 *         div_factor=25,         stays; on half cosine waves, or with linear=1 on lines
 *         final_div_factor=1e4,  torch OneCycleLR (max_lr=lr, cycle_momentum=False)
 *         linear=0
 *     noam                       lr d_model^-0.5 min((t+1)^-0.5, (t+1) warmup^-1.5)
 *         d_model, warmup        Vaswani et al., "Attention Is All You Need", 5.3; Paddle NoamDecay
 *     warmup:...+SCHEDULE        r (from + (1 - from) t / steps) while t < steps, where r is what
 *         steps, from=0          SCHEDULE begins with; then SCHEDULE, with t - steps for its t.
 *                                torch LinearLR (start_factor=from) before it in a SequentialLR,
 *                                Paddle LinearWarmup. With from=0 the rate of the first update is
 *                                0. Without +SCHEDULE: constant
 * A key with no = above must be given. Counts are whole numbers from 1 to 2^53; gamma, end and
 * rates are at least 0; power, div_factor and final_div_factor above 0; pct_start and from within
 * 0 and 1. end and rates are rates, not factors: they do not follow lr. The text has at most
 * GS_MAX_SCHEDULE bytes and no spaces; numbers are decimal, with a point; 1e-3 is one too. A rate
 * has the same bits on every machine, and stops at the largest float.
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
#define GS_MAX_SETTINGS 16
#define GS_MAX_NAME     127 /* bytes, without the final 0 */
#define GS_MAX_SCHEDULE 255

typedef struct gs_trainer gs_trainer;
typedef struct gs_param gs_param;

/* The calling thread's last error text; "" if there was none. Valid until its next error. Any
 * thread. */
GS_API const char *gs_last_error(void);
/* "0.1.0" */
GS_API const char *gs_version_string(void);

/* ---- connecting ------------------------------------------------------------------------------ */

enum { GS_SPIN_DEFAULT = -2, GS_SPIN_FOREVER = -1 };

struct gs_options {
	size_t size;         /* sizeof(struct gs_options): set by GS_OPTIONS_INIT */
	const char *uri;     /* shm:NAME or rdma://HOST:PORT. By several queue pairs, devices and
			      * addresses: rdma://HOST[,HOST...]:PORT?qps=N&dev=DEV[,DEV...], N 1 to 8;
			      * blocks are dealt out over them */
	const char *name;    /* shown in the server's log; NULL: the process's name */
	int32_t rank;        /* 0..N-1, or -1: the server assigns a free one */
	uint32_t timeout_ms; /* bound of gs_connect, gs_leave and each step of gs_start's talk with
			      * the server; the server may be started later than the trainer: gs_connect
			      * tries again until then. Default 10000 */
	int32_t spin_us;     /* how long a wait polls before it sleeps, if such waits ended in time lately;
			      * 0: it sleeps at once; GS_SPIN_FOREVER: never. Default 50 */
	uint32_t start_timeout_ms; /* how long gs_start waits for the other trainers (sync and ssp
				    * mode) and for initial weights; 0: no limit. Default 0 */
	const char *key_file; /* the pre-shared key, if the server has one: mode 0600, 16 to 4096 bytes;
			       * NULL: none. With a key, a server that can't prove that it has the
			       * same is refused */
	uint32_t keepalive_ms; /* a wait notices a server that is silent for this long; 0: never.
				* Default 5000 */
	uint32_t reconnect_ms; /* how long gs_reconnect tries; 1 at least. Default 60000 */
	uint64_t reg_cache_bytes; /* RDMA: how much memory gs_push_zcopy and pulls keep registered (that
				   * is locked, by each queue pair of several) at most; 0: none, they
				   * copy. Default UINT64_MAX: no limit but the system's (ulimit -l) */
};
#define GS_OPTIONS_INIT                                                                            \
	{                                                                                          \
		sizeof(struct gs_options), NULL, NULL, -1, 10000, GS_SPIN_DEFAULT, 0, NULL, 5000,  \
			60000, UINT64_MAX                                                          \
	}

/* Connects, says hello and, where there is a key, proves it and has the server prove it. The options
 * are copied, and the key is read here alone. Blocks up to timeout_ms.
 * Errors: -EINVAL (options, URI, the key file's length), -ENOENT (name does not resolve; no key
 * file), -EHOSTUNREACH, -ECONNREFUSED, -ETIMEDOUT, -ENODEV (no RDMA device), -EPROTONOSUPPORT (other
 * version), -EEXIST (the rank is held by a live trainer), -ERANGE (rank ≥ number of trainers),
 * -EUSERS (as many trainers as the server was started for are connected), -EPROTO (something else
 * answers there), -EACCES (another user's server; the key file's owner or mode; a side has no key, or
 * another), -ENOMEM, -EMFILE. */
GS_API int gs_connect(const struct gs_options *opt, gs_trainer **out);

/* ---- declaring ------------------------------------------------------------------------------- */

enum gs_init {
	GS_INIT_DATA,     /* from the first trainer: .init_data. Dense parameters */
	GS_INIT_CONSTANT, /* init_a */
	GS_INIT_UNIFORM,  /* init_a … init_b, from init_seed */
	GS_INIT_NORMAL,   /* mean init_a, standard deviation init_b, from init_seed */
};

/* Number formats: IEEE single, bfloat16, IEEE half. */
enum gs_dtype { GS_F32, GS_BF16, GS_F16 };

/* How the gradients of several trainers become one; sync mode (elsewhere each is applied alone). */
enum gs_reduce {
	GS_MEAN,     /* over the trainers that pushed: ((g0+g1)+…)·(1/n), in rank order */
	GS_SUM,      /* (g0+g1)+… */
	GS_WEIGHTED, /* ((n0·g0+n1·g1)+…)·(1/(n0+n1+…)), n: gs_set_samples */
};

/* What becomes of a gradient with an infinity or a NaN in it, as it was pushed: before it is scaled
 * and merged, which may still overflow. It is counted in any case:
 * gs_get_counts. The last two hold a parameter's update back until the whole gradient was looked
 * at; the last, in sync mode, until all of the step was. */
enum gs_nonfinite {
	GS_NONFINITE_APPLY,  /* it is applied */
	GS_NONFINITE_REJECT, /* that trainer's push of the parameter is left out */
	GS_NONFINITE_SKIP,   /* sync: nobody's update of the step is made, of all parameters that say
			      * so; elsewhere: as GS_NONFINITE_REJECT */
};

enum gs_kind {
	GS_DENSE,  /* a tensor */
	GS_TABLE,  /* shape [rows, dim]: rows are pushed and pulled by number, 0 .. rows-1 */
	GS_HASHED, /* shape [capacity, dim]: rows have any 64-bit key, and appear on first touch. What
		    * a key's row begins with depends on init_seed and the key alone */
};

struct gs_param_desc {
	size_t size;      /* sizeof(struct gs_param_desc): set by GS_PARAM_DESC_INIT */
	const char *name; /* unique, 1..GS_MAX_NAME bytes of printable ASCII; not "__metadata__",
			   * which no checkpoint could store */
	uint32_t ndim;    /* 1..GS_MAX_DIMS */
	uint64_t shape[GS_MAX_DIMS];
	const char *optimizer; /* which the server applies: see "Optimizers" above */
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
	const char *schedule;       /* of the learning rate: "Schedules" above; NULL: constant */
	enum gs_dtype grad_dtype;   /* of what gs_push sends */
	enum gs_dtype weight_dtype; /* of what gs_pull reads: the server's own are float32 always */
	enum gs_reduce reduce;
	enum gs_nonfinite nonfinite;
	uint32_t accumulate;  /* pushes that make one gradient, added up here before it is sent;
			       * gs_step_post (in async and ssp mode gs_wait_applied, too) and
			       * gs_leave send what there is. 0 or 1: each is one. Dense
			       * parameters */
	int accumulate_sum;   /* their sum, not their mean */
	enum gs_kind kind;
	/* Tables: */
	uint32_t push_rows;   /* longest gs_push_rows; 0: 65536 */
	uint32_t slot_rows;   /* rows that go in one piece; 0: 4096, or push_rows if that is less */
	uint32_t pull_rows;   /* rows that a pull has under way at once; 0: 4096 */
	/* Hashed tables: */
	uint32_t admit_after; /* a key gets its row at this touch (a push or a pull that names it);
			       * until then it reads as its initial values, and pushes of it are
			       * dropped. Counted in fixed memory: a key may get in too early, and
			       * touches far apart fade. 0: 1; at most 65535 */
	uint64_t evict_after; /* a full table gives up the row that was touched longest ago, if the
			       * last so many updates of the table did not touch it; 0: never, a
			       * new key is refused (-ENOSPC) */
};
#define GS_PARAM_DESC_INIT                                                                         \
	{                                                                                          \
		sizeof(struct gs_param_desc), NULL, 0, {0}, "sgd", 0, {{NULL, 0}}, GS_INIT_CONSTANT, \
			0, 0, 0, NULL, NULL, GS_F32, GS_F32, GS_MEAN, GS_NONFINITE_APPLY, 0, 0,    \
			GS_DENSE, 0, 0, 0, 0, 0                                                    \
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
 * may begin: weights are there and, in sync and ssp mode, all N trainers have come (the first
 * time).
 * Errors: -EINVAL (no parameters; or they differ from what the server has: the text names both
 * sides), -ENOMEM (the server's memory or this process's memlock: the text has the sum), -ETIMEDOUT
 * (it says for whom it was waiting), -EBUSY (started). */
GS_API int gs_start(gs_trainer *t);

/* Sync: steps are made together (gs_step_wait). Async: each gradient is applied as it comes, there
 * are no steps. Ssp: as async, but no trainer gets more than K steps ahead of the slowest; with a
 * K of 0 it is sync. */
enum gs_mode { GS_SYNC = 1, GS_ASYNC, GS_SSP };

struct gs_info {
	uint32_t rank, trainers; /* trainers: N of the server */
	enum gs_mode mode;
	uint32_t staleness;      /* ssp: K */
	uint64_t step;           /* sync, ssp: the step that is being made, from 1 */
	uint32_t blocks;         /* over all parameters */
	uint32_t slots;          /* gradients of one block under way at once */
	const char *transport;   /* "shm", "rdma (rxe0, RoCE v2, …)"; lives as long as the trainer */
	int load_store;          /* gs_weights_view works */
};
/* step, blocks and slots are 0 before gs_start. Of a trainer that failed, as it was then. */
GS_API void gs_get_info(gs_trainer *t, struct gs_info *out);
/* The product of its shape. */
GS_API uint64_t gs_param_elems(const gs_param *p);

/* ---- pushing --------------------------------------------------------------------------------- */

/* The buffer that the next push of `p` leaves from: gs_param_elems elements of grad_dtype, 64-byte
 * aligned, content undefined. Over shm it is the slot itself, over RDMA registered memory:
 * computing straight into it saves a copy. (Where pushes are accumulated it is memory beside the
 * sum.) It is the caller's until it is given to gs_push. Blocks while all slots are in use.
 * Sync: a parameter has gs_info.slots of them, which take turns by the step: what was given in one step
 * is what would be given again in every slots-th step behind it, without being asked for (until
 * gs_reconnect; not where pushes are accumulated, which have one).
 * Errors: gs_push's. */
GS_API int gs_grad_buffer(gs_trainer *t, gs_param *p, void **out);

/* Sends the gradient of `p`, a dense parameter. `grad`: gs_param_elems elements of grad_dtype,
 * either what gs_grad_buffer gave (no copy) or any other memory (copied before it returns). Returns
 * when the gradient is on its way, not when it is applied. Blocks while all slots are in use (each
 * slot comes back when the server has applied it). Where pushes are accumulated all but the last of
 * a gradient are added up, and only the last sends and may block.
 * Sync: at most one gradient a step for each parameter; not pushing one is allowed, the update is
 * then of those who did.
 * Errors: -EALREADY (sync: it was pushed in this step already; sync and ssp: the step's barrier was
 * posted), -EINVAL (a table). */
GS_API int gs_push(gs_trainer *t, gs_param *p, const void *grad);

/* As gs_push, but `grad` may leave from where it is, with no copy: it must stay unchanged, and mapped,
 * until the program has heard that it is applied: until gs_step_wait, gs_step_end, gs_step_pull or
 * gs_step_view of its step (sync, ssp), or a gs_wait_applied of `p`, returned 0; or gs_reconnect rewound, or
 * gs_close returned.
 * Memory that is pushed again and again is registered with the device once; at 4 KiB and more, and up to
 * reg_cache_bytes, of which those that were not used for longest give way. Unmapping it, or giving it
 * back, is noticed (trainers on Linux 5.12 and later, where userfaultfd(2) is allowed), and so is a fork
 * harmless.
 * It copies, as gs_push does, what can't be sent so: over shm, where pushes are accumulated, what
 * gs_grad_buffer gave (needs none), files and shared memory, and all where changes of the address space
 * can't be noticed, which is logged. mremap(2) across the edges of what is registered fails; realloc(3)
 * does not. Errors: gs_push's. */
GS_API int gs_push_zcopy(gs_trainer *t, gs_param *p, const void *grad);

/* Sends the gradients of n parameters, grad[i] of p[i], as gs_push would one after the other: with one
 * entry into the library, and with neighbours in the order of declaration that are small sent together
 * (in one WRITE, with one signal). A model of many small tensors should be pushed so. After a failure
 * the first of them may have been sent, as the text says.
 * Errors: gs_push's, and -EINVAL (a parameter is in the list twice). */
GS_API int gs_push_many(gs_trainer *t, gs_param *const *p, const void *const *grad, uint32_t n);

/* Waits until every gradient that this trainer pushed to `p` is in the weights. Async and ssp: what
 * was accumulated so far is sent first. Sync: that is the release of the step.
 * Errors: -EDEADLK (sync: the step's barrier was not posted yet), -ENOSPC (a push of rows was
 * refused: gs_push_rows). */
GS_API int gs_wait_applied(gs_trainer *t, gs_param *p);

/* How many samples are behind this trainer's pushes from here on, and how many times too large they
 * are (loss scaling: the server divides by it). Both 1 at first. GS_WEIGHTED uses the first.
 * Where pushes are accumulated, the samples are those of the push that completes the gradient.
 * Errors: -EINVAL (not from 2^-60 to 2^60). */
GS_API int gs_set_samples(gs_trainer *t, double samples);
GS_API int gs_set_grad_scale(gs_trainer *t, double scale);

/* Sets the learning rate of `p`, for all trainers; its schedule goes on from it. Blocks until it
 * holds: what this trainer pushes afterwards is applied at the new rate. In sync mode call it
 * between a release and this trainer's pushes: then it holds for the whole step.
 * Errors: -EINVAL (not finite, or negative). */
GS_API int gs_set_lr(gs_trainer *t, gs_param *p, double lr);

struct gs_counts {
	size_t size;        /* sizeof(struct gs_counts), set by the caller */
	uint64_t nonfinite; /* pushes of this trainer with an infinity or a NaN */
	uint64_t skipped;   /* updates left out for one, anybody's (GS_NONFINITE_SKIP) */
	uint64_t refused;   /* pushes of rows that were refused */
};
/* What the server has told so far; after gs_step_wait or gs_wait_applied all that they waited for
 * is in. Errors: -EINVAL (size). */
GS_API int gs_get_counts(gs_trainer *t, struct gs_counts *out);

/* ---- rows of tables -------------------------------------------------------------------------- */

/* Sends the gradient of n rows: ids[i] is the row (or key) of values[i * dim ...], in grad_dtype.
 * Copied before it returns; blocks while all slots are in use. A row may be there more than once:
 * its gradients are added up, in this order, before the optimizer sees them. n = 0 is allowed, and
 * changes nothing. Sync: at most once a step for each table.
 * Errors: -ERANGE (an id that the table does not have: the text names it; nothing was sent),
 * -EMSGSIZE (n > push_rows), -EALREADY (as gs_push), -EINVAL (not a table). A hashed table that is
 * full refuses the whole push later: gs_step_wait, gs_step_end or gs_wait_applied (of any
 * parameter) then gives -ENOSPC, once, and has done what it does all the same. */
GS_API int gs_push_rows(gs_trainer *t, gs_param *p, const int64_t *ids, const void *values,
			size_t n);

/* How the rows come: the trainer reads each (READ), or the server gathers them into one write. */
enum gs_rows_way { GS_ROWS_AUTO, GS_ROWS_READ, GS_ROWS_GATHER };

/* Reads n rows into dst[i * dim ...], in weight_dtype, and blocks until they are there; ids may
 * repeat. Each row is whole (of one version). GS_ROWS_GATHER sees all that this trainer pushed
 * before. GS_ROWS_READ and GS_ROWS_AUTO see in sync mode what the last release left, elsewhere what
 * there is.
 * Of a hashed table pulls touch rows too: a new key gets one. One pull of a table at a time: others
 * wait. After a failure that ends the trainer, part of dst may be written when n > pull_rows.
 * Errors: -ERANGE (an id that the table does not have), -EINVAL (not a table), -EOPNOTSUPP
 * (GS_ROWS_READ of a hashed table), -ENOSPC (hashed: new keys do not fit; dst is untouched),
 * -ENOMEM (hashed, and n > pull_rows). */
GS_API int gs_pull_rows(gs_trainer *t, gs_param *p, const int64_t *ids, size_t n,
			enum gs_rows_way way, void *dst);

/* ---- steps (sync and ssp mode) --------------------------------------------------------------- */

/* The barrier: ends this trainer's part of the step, after what was accumulated so far. It only
 * waits for a slot for that. Errors: -EPERM (async mode has none), -EALREADY (posted already, wait
 * first). */
GS_API int gs_step_post(gs_trainer *t);
/* Waits until the server released the step k that was posted; the next is k + 1.
 * Sync: every live trainer has passed and every update is made. The weights of a parameter then
 * stay as they are until this trainer pushes it or posts the next barrier.
 * Ssp: all that this trainer pushed in it is in the weights, and all that every other live trainer
 * pushed in its steps up to k - K.
 * Errors: -EPERM (async mode), -EDEADLK (no barrier was posted), -ENOSPC (the step is over, and a
 * push of rows was refused: gs_push_rows). */
GS_API int gs_step_wait(gs_trainer *t);
/* Both. Errors: those of both. */
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

/* Reads the weights of `p`, a dense parameter, into dst (gs_param_elems elements of weight_dtype).
 * Blocks until they are there. If it fails dst may be written in part, but not after it returned.
 * RDMA: where 16 KiB and more are pulled into the same memory again (GS_RELAXED, GS_CONSISTENT, gs_step_pull)
 * that is registered with the device, and from then on read into straight, with no copy. What is said at
 * gs_push_zcopy of registered memory holds for it, too: it stays locked, unmapping it or giving it back is
 * noticed, mremap(2) across its edges fails, a fork is harmless. It is copied to as before where it can't be
 * registered, and over iWARP; reg_cache_bytes = 0 has all copied.
 * Errors: -EINVAL (`how`, or a table). */
GS_API int gs_pull(gs_trainer *t, gs_param *p, enum gs_consistency how, void *dst);

/* Reads several parameters at once, with the reads of all of them under way together. Errors:
 * gs_pull's, and -EINVAL (a parameter is in the list twice). */
GS_API int gs_pull_many(gs_trainer *t, gs_param *const *p, void *const *dst, uint32_t n,
			enum gs_consistency how);

/* gs_step_end, and a pull of n parameters as they are behind that step, in one call: blocks are read as
 * soon as their update is made, while others are still updated or on their way, so reading costs little
 * time of its own. Sync and ssp mode; in ssp mode it is gs_step_end and then a relaxed gs_pull_many.
 * Of a parameter that was not pulled by it in the step before (on this connection) all is read after the
 * release. It is quickest when they were pushed in the order in which p lists them; any is right. With wrong arguments no step ends; with -ENOSPC
 * (gs_push_rows) the step has ended and the weights are in dst all the same.
 * Returns when the step is released and all weights are in dst. If it fails dst may be written in part;
 * after -ECONNRESET and a gs_reconnect that did not rewind it may be called again.
 * Errors: gs_step_end's and gs_pull_many's. */
GS_API int gs_step_pull(gs_trainer *t, gs_param *const *p, void *const *dst, uint32_t n);

/* gs_step_end, and the weights of n parameters as they are behind that step, where they lie: no copy is
 * made. fn is called on the caller's thread with a run of fresh elements of p[i], which begins at element
 * `first` and has `count`; the next run is being updated meanwhile, so these come out of the CPU's cache.
 * Of each parameter the runs ascend and follow one another, each element is in one of them, and those of
 * several parameters may come in any order. A parameter that was not in the call of the step before is given
 * only behind the release, in longer runs. `weights` points to element `first`, in weight_dtype. fn must not
 * call any function with this trainer. */
typedef void gs_view_fn(void *ctx, uint32_t i, uint64_t first, uint64_t count, const void *weights);
/* Sync: what fn was given stays as it is until this trainer pushes that parameter or posts the next
 * barrier, and is what gs_weights_view shows. Ssp: gs_step_end, and then the live weights, which others
 * change meanwhile.
 * With wrong arguments no step ends; with -ENOSPC (gs_push_rows) the step has ended and fn has been given
 * all the same. Returns when the step is released and fn was given everything. If it fails, discard what
 * fn was given: it need not be what the step leaves; after -ECONNRESET and a gs_reconnect that did not
 * rewind it may be called again, and gives all of it again.
 * Errors: gs_step_end's; -EINVAL (a table; a parameter is in the list twice), -EOPNOTSUPP (over RDMA; with
 * dc_lambda: gs_step_pull does). */
GS_API int gs_step_view(gs_trainer *t, gs_param *const *p, uint32_t n, gs_view_fn *fn, void *ctx);

/* The live weights in place, read-only, in weight_dtype, also of a table by number. Valid until
 * gs_close or gs_reconnect. Errors: -EOPNOTSUPP (over RDMA; of a hashed table; with dc_lambda). */
GS_API int gs_weights_view(gs_trainer *t, gs_param *p, const void **out);

/* How many updates the block that holds element `elem` has seen; of a table, how often rows of the
 * block were written, some at a time. Errors: -EINVAL (`elem`). */
GS_API int gs_block_version(gs_trainer *t, gs_param *p, uint64_t elem, uint64_t *out);

/* ---- losing the server, and coming back ------------------------------------------------------ */

/* After a call gave -ECONNRESET or -ESHUTDOWN: connects again under the same rank, for up to
 * reconnect_ms, with pauses that grow (to half a second) and are drawn at random; then goes through
 * gs_start's talk once more. Parameters and options stay as they are; what gs_weights_view and
 * gs_grad_buffer gave before is no longer valid. One thread, while no other uses the trainer.
 *
 * *rewound = 0: the server is the one that was lost, and has kept this trainer's place. Each gradient
 * that was given to gs_push or gs_push_rows counts exactly once: what had not reached the server was
 * sent again. Call again what failed (a push that failed counts as not made; a gs_step_end or
 * gs_step_wait goes on waiting, or returns at once if the step is over meanwhile).
 * *rewound = 1: it is another one, with the weights of its checkpoint, or it has gone on without this
 * trainer. What was pushed and is not in its weights is forgotten, also what was accumulated.
 * gs_get_info tells the step that is to be made now (sync, ssp), gs_pushes how many of this rank's
 * pushes are in (async): pull, and go on from there.
 *
 * A checkpoint that was asked for and not told of yet has to be asked for again. A gs_start that was cut
 * off is called again, too; it gives -EBUSY if all of its talk has been gone through here.
 *
 * Async, ssp: a server that cuts the parameter into other blocks than its checkpoint's does not know any
 * more which blocks of a push that was under way are in: that push can be lost in part (it warns).
 *
 * Errors: gs_connect's and gs_start's. Those that time may heal it tries again within reconnect_ms; and
 * after -ECONNREFUSED, -ETIMEDOUT, -EHOSTUNREACH, -ECONNRESET, -ENOTCONN, -ESHUTDOWN and -EUSERS it may
 * be called again. -EEXIST (somebody else has the rank, or the server has yet to notice that the old
 * connection is over) is tried again, too, and then it is final, as all others are. -EINVAL: the trainer
 * has not failed, or not of a lost server, or gs_leave was called; the server is in another mode than
 * the one that was lost; or it is a fresh one that asks for the initial weights of GS_INIT_DATA
 * parameters, and that data is no longer here: begin anew, or have the server restore a checkpoint.
 * -EBUSY: another thread is in it; any other call gives -ECONNRESET until then. */
GS_API int gs_reconnect(gs_trainer *t, int *rewound);

/* Async, ssp: how many pushes of `p` this rank has made, whatever process and connection made them:
 * the next is number *out + 1. Right after gs_start or a gs_reconnect that rewound: those that are in
 * the server's weights. If a trainer died within a push, the blocks that had arrived are in, and the
 * first push of whoever takes its rank fills in the rest. Sync: the last step in which this rank
 * pushed it, 0 for none. */
GS_API int gs_pushes(gs_trainer *t, gs_param *p, uint64_t *out);

/* ---- checkpoints ----------------------------------------------------------------------------- */

/* Asks the server for a checkpoint: in sync mode, of the weights at the end of the step that is being
 * made; else, as each parameter is when the request comes to it. Does not wait.
 * Errors: -EALREADY (one was asked for and not waited for; sync, ssp: the step's barrier was posted).
 */
GS_API int gs_checkpoint(gs_trainer *t);
/* Waits until it is on disk. *step (NULL is allowed): sync, ssp: the last step that is in it. In sync
 * mode that step must end first: post its barrier before (gs_step_post, gs_step_end), as all do.
 * Errors: -EDEADLK (none was asked for, or not on this connection; sync: the step's barrier was not
 * posted yet), -ENOENT (the server keeps no checkpoints), -EIO (it could not be written: the text says
 * why). */
GS_API int gs_checkpoint_wait(gs_trainer *t, uint64_t *step);

/* ---- leaving --------------------------------------------------------------------------------- */

/* Says bye and waits until the server has let go. What was accumulated is sent first. Async, ssp:
 * what was pushed is applied first. Sync: a posted barrier is waited for first; what was pushed
 * with no barrier behind it counts when the others end the step, and they go on with one trainer
 * less. Each of its waits takes up to timeout_ms. Only gs_close may follow. Errors: -ETIMEDOUT (the
 * text says for what). */
GS_API int gs_leave(gs_trainer *t);
/* Frees everything; without gs_leave before, the server sees a trainer die. NULL is allowed. */
GS_API void gs_close(gs_trainer *t);

#ifdef __cplusplus
}
#endif
#endif
