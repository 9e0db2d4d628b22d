/* SPDX-License-Identifier: Apache-2.0
 *
 * The bare exchange. No pipelining: each side waits for all of what the other does.
 */
#include "perf/exchange.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "kernels/kern.h"

enum {
	WARMUP = 20,
	LINE = 128, /* some CPUs fetch lines in pairs */
	LOOK_EVERY = 1 << 16,
	PATIENCE_S = 10,
};

/* In front of the gradient and the weights. */
struct words {
	_Alignas(LINE) _Atomic uint64_t pushed;
	_Alignas(LINE) _Atomic uint64_t updated;
	_Alignas(4096) char end[];
};

struct exchange {
	size_t bytes, room; /* room: bytes, rounded up to pages */
	struct words *words;
	float *slot, *weights; /* shared */
	float *grad, *mine;    /* the trainer's own */
};

static bool wait_for(const _Atomic uint64_t *word, uint64_t value)
{
	uint64_t give_up = 0;

	for (unsigned turn = 1; atomic_load_explicit(word, memory_order_acquire) != value; turn++) {
		if (turn % LOOK_EVERY)
			continue;
		if (!give_up)
			give_up = clock_ns() + PATIENCE_S * NS_PER_S;
		else if (clock_ns() > give_up)
			return false;
	}
	return true;
}

static void serve(const struct exchange *x)
{
	const struct kern_setting lr = {"lr", 0x1p-10};
	const void *const grads[] = {x->slot};
	const struct kern_grads g = {.data = grads, .scale = 1, .n = 1};
	const struct kern_step step = {.t = 1, .lr = 0x1p-10f, .clip = 1, .ratio = 1};
	struct kern_opt opt;

	if (kern_opt_parse("sgd", &lr, 1, &opt))
		return;
	for (uint64_t seq = 1; wait_for(&x->words->pushed, seq); seq++) {
		kern_apply(&opt, &step, &g, x->weights, NULL, x->bytes / sizeof(float));
		atomic_store_explicit(&x->words->updated, seq, memory_order_release);
	}
}

static int train(const struct exchange *x, uint64_t *ns, size_t n)
{
	uint64_t last = clock_ns();

	for (uint64_t seq = 1; seq <= WARMUP + n; seq++) {
		memcpy(x->slot, x->grad, x->bytes);
		atomic_store_explicit(&x->words->pushed, seq, memory_order_release);
		if (!wait_for(&x->words->updated, seq))
			return err_set(ETIMEDOUT, "the bare exchange: no answer for %d s",
				       PATIENCE_S);
		memcpy(x->mine, x->weights, x->bytes);
		uint64_t now = clock_ns();
		if (seq > WARMUP)
			ns[seq - WARMUP - 1] = now - last;
		last = now;
	}
	return x->mine[0] < 0 ? 0 : err_set(EBADMSG, "the bare exchange moved no weights");
}

static int run(const struct exchange *x, uint64_t *ns, size_t n)
{
	pid_t parent = getpid(), child = fork();

	if (child < 0)
		return err_set(errno, "no second process for the bare exchange");
	if (child == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() == parent)
			serve(x);
		_exit(1);
	}
	int rc = train(x, ns, n);
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	return rc;
}

int exchange_steps(size_t bytes, uint64_t *ns, size_t n)
{
	struct exchange x = {.bytes = bytes, .room = (bytes + 4095) / 4096 * 4096};
	size_t shared = sizeof(struct words) + 2 * x.room;

	if (bytes < sizeof(float) || bytes % sizeof(float) || n == 0)
		return err_set(EINVAL, "%zu bytes, %zu steps: nothing to exchange", bytes, n);
	void *all = mmap(NULL, shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	x.grad = aligned_alloc(4096, x.room);
	x.mine = aligned_alloc(4096, x.room);
	int rc = 0;
	if (all == MAP_FAILED || !x.grad || !x.mine) {
		rc = err_set(ENOMEM, "no memory for an exchange of %zu bytes", bytes);
	} else {
		madvise(all, shared, MADV_HUGEPAGE);
		memset(all, 0, shared);
		memset(x.mine, 0, x.room);
		x.words = all;
		x.slot = (float *)(void *)x.words->end;
		x.weights = x.slot + x.room / sizeof(float);
		for (size_t i = 0; i < bytes / sizeof(float); i++)
			x.grad[i] = 0x1p-10f;
		rc = run(&x, ns, n);
	}
	if (all != MAP_FAILED)
		munmap(all, shared);
	free(x.grad);
	free(x.mine);
	return rc;
}
