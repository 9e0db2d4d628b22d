/* SPDX-License-Identifier: Apache-2.0
 *
 * `gradslot demo-trainer`: one trainer of the demo. Each rank computes the gradient of its shard
 * straight into the buffers that the pushes leave from; rank 0 also evaluates, and reports.
 */
#include "cli/cmd.h"
#include "cli/demo_job.h"
#include "cli/json.h"
#include "cli/member.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "demo/mlp.h"
#include "demo/pin.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { REPORT_MS = 100 };

struct work {
	struct digits_config config;
	struct demo_run run;
	bool sync, steps_end; /* each step is one of all; it has a barrier */
	unsigned rank, steps;
	struct digits *digits;
	struct digits_feed *feed;
	struct mlp *mlp;
	gs_trainer *trainer;
	gs_param *params[MLP_PARAMS];
	float *memory;              /* the weights, one parameter after the other; gradients */
	float *weights[MLP_PARAMS]; /* into memory */
	float *grads[MLP_PARAMS];   /* likewise; used where gradients are rounded */
	uint64_t began, reported;
	double loss_sum; /* since the last report */
	unsigned loss_n;
};

static int declare(struct work *w, unsigned p)
{
	struct gs_param_desc d = GS_PARAM_DESC_INIT;
	struct mlp_init init = mlp_init_of(p, w->config.seed);
	struct kern_opt opt = w->sync ? w->config.opt : digits_async_opt(&w->config);
	const char *setting;
	double value;

	d.name = mlp_params[p].name;
	d.ndim = mlp_params[p].ndim;
	for (unsigned i = 0; i < d.ndim; i++)
		d.shape[i] = mlp_params[p].shape[i];
	d.optimizer = kern_opt_name(&opt);
	for (unsigned i = 0; kern_opt_setting(&opt, i, &setting, &value); i++)
		gs_setting(&d, setting, value);
	d.schedule = w->run.schedule.text;
	d.grad_dtype = (enum gs_dtype)w->config.grad_dtype; /* numbered alike */
	d.init = init.kind == KERN_INIT_NORMAL ? GS_INIT_NORMAL : GS_INIT_CONSTANT;
	d.init_seed = init.seed;
	d.init_a = init.a;
	d.init_b = init.b;
	return member_rc(gs_declare(w->trainer, &d, &w->params[p]));
}

static int join(struct work *w, const struct training_member *member)
{
	int rc = member_connect(member, "demo", &w->trainer);

	for (unsigned p = 0; p < MLP_PARAMS && rc == 0; p++)
		rc = declare(w, p);
	return rc < 0 ? rc : member_rc(gs_start(w->trainer));
}

static int prepare(struct work *w)
{
	int rc = digits_check(&w->config);

	if (rc == 0)
		rc = digits_load(w->config.seed, &w->digits);
	if (rc == 0)
		rc = digits_feed_create(w->digits, &w->config, w->rank, &w->feed);
	if (rc == 0)
		rc = mlp_create(digits_shard_rows(&w->config), &w->mlp);
	if (rc < 0)
		return rc;
	w->steps = digits_steps(&w->config);
	w->memory = calloc(2 * MLP_WEIGHTS, sizeof(float));
	if (!w->memory)
		return err_set(ENOMEM, "no memory for the weights");
	for (unsigned p = 0; p < MLP_PARAMS; p++) {
		w->weights[p] = w->memory + mlp_params[p].offset;
		w->grads[p] = w->weights[p] + MLP_WEIGHTS;
	}
	return 0;
}

static int pull(struct work *w)
{
	void *dst[MLP_PARAMS];

	for (unsigned p = 0; p < MLP_PARAMS; p++)
		dst[p] = w->weights[p];
	return member_rc(gs_pull_many(w->trainer, w->params, dst, MLP_PARAMS,
				      w->sync ? GS_RELAXED : GS_CONSISTENT));
}

static int report(struct work *w, unsigned step)
{
	uint64_t now = clock_ns();
	unsigned per_epoch = w->steps / w->config.epochs, hits;

	if (w->rank != 0 || (step != w->steps && now - w->reported < REPORT_MS * NS_PER_MS))
		return 0;
	w->reported = now;
	mlp_evaluate(w->mlp, (const float *const *)w->weights, w->digits->test_x[0],
		     w->digits->test_y, DIGITS_TEST, NULL, &hits);
	double loss = w->loss_sum / w->loss_n;
	w->loss_sum = 0;
	w->loss_n = 0;
	int rc = demo_check_loss(loss);
	if (rc < 0)
		return rc;
	return json_line(json_pack("{s:i, s:i, s:f, s:f, s:f}", "step", (int)step, "epoch",
				   (int)((step - 1) / per_epoch + 1), "loss", loss, "accuracy",
				   (double)hits / DIGITS_TEST, "seconds",
				   (double)(now - w->began) / NS_PER_S));
}

/* Async: a trainer that went on with weights which lack its own last gradients would add to the
 * staleness that the others cause. */
static int own_applied(struct work *w)
{
	int rc = 0;

	for (unsigned p = 0; p < MLP_PARAMS && rc == 0; p++)
		rc = member_rc(gs_wait_applied(w->trainer, w->params[p]));
	return rc;
}

/* Floats are computed straight into the buffers; others are rounded into them. */
static int make_gradients(struct work *w, unsigned step, void *buffers[MLP_PARAMS])
{
	enum kern_dtype dtype = w->config.grad_dtype;
	float *grads[MLP_PARAMS];
	const uint8_t *y;
	const float *x;
	double loss;

	for (unsigned p = 0; p < MLP_PARAMS; p++) {
		int rc = member_rc(gs_grad_buffer(w->trainer, w->params[p], &buffers[p]));

		if (rc < 0)
			return rc;
		grads[p] = dtype == KERN_F32 ? buffers[p] : w->grads[p];
	}
	digits_feed_step(w->feed, step, &x, &y);
	mlp_gradient(w->mlp, (const float *const *)w->weights, x, y, digits_shard_rows(&w->config),
		     grads, &loss, NULL);
	for (unsigned p = 0; p < MLP_PARAMS && dtype != KERN_F32; p++)
		kern_narrow(dtype, grads[p], buffers[p], mlp_params[p].len);
	w->loss_sum += loss;
	w->loss_n++;
	return 0;
}

static int train_step(struct work *w, unsigned step)
{
	void *buffers[MLP_PARAMS];
	int rc = make_gradients(w, step, buffers);

	for (unsigned p = 0; p < MLP_PARAMS && rc == 0; p++)
		rc = member_rc(gs_push(w->trainer, w->params[p], buffers[p]));
	if (rc == 0)
		rc = w->steps_end ? member_rc(gs_step_end(w->trainer)) : own_applied(w);
	return rc < 0 ? rc : pull(w);
}

/* The weights are final when every gradient of every trainer is in them: without sync mode's steps
 * nothing but the versions tells. */
static int wait_for_others(struct work *w)
{
	const struct timespec nap = {.tv_nsec = 1000000};
	uint64_t all = (uint64_t)w->steps * w->config.trainers, version;

	for (unsigned p = 0; p < MLP_PARAMS; p++) {
		for (;;) {
			int rc = member_rc(gs_block_version(w->trainer, w->params[p],
							    mlp_params[p].len - 1, &version));
			if (rc < 0)
				return rc;
			if (version >= all)
				break;
			nanosleep(&nap, NULL);
		}
	}
	return pull(w);
}

static int result(struct work *w)
{
	double seconds = (double)(clock_ns() - w->began) / NS_PER_S, loss;
	struct gs_info info;
	char checksum[17];
	unsigned hits;

	mlp_evaluate(w->mlp, (const float *const *)w->weights, w->digits->test_x[0],
		     w->digits->test_y, DIGITS_TEST, &loss, &hits);
	int rc = demo_check_loss(loss);
	if (rc < 0)
		return rc;
	gs_get_info(w->trainer, &info);
	snprintf(checksum, sizeof(checksum), "%016" PRIx64,
		 mlp_checksum((const float *const *)w->weights));
	return json_line(json_pack("{s:b, s:i, s:f, s:f, s:i, s:s, s:f, s:s}", "result", 1, "steps",
				   (int)w->steps, "loss", loss, "accuracy",
				   (double)hits / DIGITS_TEST, "hits", (int)hits, "checksum",
				   checksum, "seconds", seconds, "transport", info.transport));
}

static int train(struct work *w)
{
	int rc = pull(w);

	w->began = w->reported = clock_ns();
	for (unsigned step = 1; step <= w->steps && rc == 0; step++) {
		rc = train_step(w, step);
		if (rc == 0)
			rc = report(w, step);
	}
	if (rc == 0 && w->rank == 0 && !w->sync)
		rc = wait_for_others(w);
	if (rc == 0 && w->rank == 0)
		rc = result(w);
	return rc < 0 ? rc : member_rc(gs_leave(w->trainer));
}

int cmd_demo_trainer(int argc, char **argv)
{
	struct demo_run run = demo_run_default();
	struct training_member member = training_member_default();
	struct work work = {0};
	const struct opt opts[] = {
	    TRAINING_MEMBER_LINES(member),
	    DEMO_RUN_LINES(run),
	    {NULL},
	};
	const struct opt_command cmd = {"gradslot demo-trainer", "One trainer of the demo.", NULL,
					opts};

	int rc = opt_parse(&cmd, argc, argv);
	if (rc != OPT_RUN)
		return rc;
	work.config = demo_config(&run);
	work.run = run;
	work.sync = mode_is_sync(&run.mode);
	work.steps_end = run.mode.kind != SRV_ASYNC;
	work.rank = (unsigned)member.rank;
	rc = demo_check_pin();
	if (rc == 0)
		rc = prepare(&work);
	if (rc == 0)
		rc = join(&work, &member);
	if (rc == 0)
		rc = train(&work);
	if (rc < 0)
		log_error("trainer %u: %s", work.rank, err_text());
	gs_close(work.trainer);
	free(work.memory);
	mlp_destroy(work.mlp);
	digits_feed_destroy(work.feed);
	digits_free(work.digits);
	return rc < 0 ? EXIT_FAILED : EXIT_OK;
}
