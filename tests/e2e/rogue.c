/* SPDX-License-Identifier: Apache-2.0
 *
 * A trainer that was let in, and reaches for what is not its own. Over shm: the weights, by every way
 * that a process has to write to a file that it may read; and other trainers' memory, of which it is
 * never given a descriptor. Over a network: another's slots, the weights, and what lies behind its own
 * slots, with WRITEs, which its NIC's peer refuses. The rogue ends; the others train on.
 */
#include "cases.h"
#include "child.h"
#include "raw.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

/* ---- over shm: in a process of its own --------------------------------------------------------- */

/* The descriptors of files with this name, of those that this process has; up to 8. */
static int descriptors(const char *name, int fd[8])
{
	DIR *dir = opendir("/proc/self/fd");
	struct dirent *e;
	int n = 0;

	must(dir, "no /proc/self/fd");
	while ((e = readdir(dir))) {
		char target[256];
		ssize_t len = readlinkat(dirfd(dir), e->d_name, target, sizeof(target) - 1);

		if (len < 0)
			continue;
		target[len] = 0;
		if (strstr(target, name)) {
			must(n < 8, "many descriptors of %s", name);
			fd[n++] = atoi(e->d_name);
		}
	}
	closedir(dir);
	return n;
}

static void denied(const char *what, bool done, int e)
{
	must(!done, "%s was allowed", what);
	must(e == EACCES || e == EPERM || e == EBADF || e == EINVAL, "%s: %s", what, strerror(e));
}

/* Everything that changes a file through a descriptor. */
static void can_not_change(int fd, size_t size)
{
	char byte = 1;
	void *at;

	denied("write", pwrite(fd, &byte, 1, 4096) == 1, errno);
	at = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	denied("mmap to write", at != MAP_FAILED, errno);
	at = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
	must(at != MAP_FAILED, "it may be read: %s", strerror(errno));
	denied("mprotect", mprotect(at, 4096, PROT_READ | PROT_WRITE) == 0, errno);
	munmap(at, 4096);
	denied("shrinking", ftruncate(fd, 0) == 0, errno);
	denied("growing", ftruncate(fd, (off_t)size + 4096) == 0, errno);
	denied("a hole", fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096) == 0,
	       errno);
	denied("a seal", fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE) == 0, errno);
}

static void can_not_change_weights(void)
{
	struct stat st;
	char path[40];
	int fd[8];

	must(descriptors("gradslot-weights", fd) == 1, "one descriptor of the weights");
	must(fstat(fd[0], &st) == 0, "fstat");
	must((fcntl(fd[0], F_GETFL) & O_ACCMODE) == O_RDONLY, "it may be written");
	can_not_change(fd[0], (size_t)st.st_size);
	/* The file belongs to this user, so it can be opened anew, to be written. */
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd[0]);
	int again = open(path, O_RDWR);

	must(again >= 0 || errno == EACCES || errno == EPERM, "open: %s", strerror(errno));
	if (again >= 0)
		can_not_change(again, (size_t)st.st_size);
}

/* No key leads to anything but what it was granted. */
static void no_other_keys(struct raw *r)
{
	uint32_t reached = 0;

	for (uint64_t key = 0; key < 2000; key++) {
		struct tp_ref ref = {.len = 4096, .key = key};
		struct tp_remote *remote;

		if (key == r->grant.weights.key || key == r->grant.slot_mem.key)
			continue;
		reached += tp_attach(r->conn, &ref, TP_PEER_WRITE, 4096, &remote) == 0;
	}
	must(reached == 0, "%u other keys led somewhere", reached);
}

/* URI RANK: tries all that, tells which slots it has, steps once, and writes to the weights. */
int rogue_role(char **arg)
{
	struct tp_remote *remote;
	struct stat st;
	struct raw r;
	int fd[8];

	raw_join(&r, arg[0], atoi(arg[1]));
	raw_wait_start(&r);
	must(descriptors("gradslot-slots", fd) == 1, "one descriptor of slots");
	must(fstat(fd[0], &st) == 0, "fstat");
	must(descriptors("gradslot-words", fd) == 0, "the server's words");
	must(descriptors("gradslot-state", fd) == 0, "the optimizers' state");
	can_not_change_weights();
	fails(tp_attach(r.conn, &(struct tp_ref){.len = r.grant.weights.len, .key = r.grant.weights.key},
			TP_PEER_WRITE, r.grant.weights.len, &remote), EACCES, "write");
	no_other_keys(&r);
	raw_barrier(&r, r.step);
	raw_wait_release(&r, r.step);
	say("slots %llu", (unsigned long long)st.st_ino);
	signal(SIGSEGV, SIG_DFL); /* no sanitizer's report: it is meant */
	signal(SIGBUS, SIG_DFL);
	volatile float *weights = tp_remote_map(r.weights);

	weights[1024] = 99;
	return 0;
}

/* ---- the test ---------------------------------------------------------------------------------- */

struct good {
	const char *uri;
	_Atomic bool end;
	_Atomic uint64_t steps;
	pthread_t thread;
};

static void *keep_stepping(void *arg)
{
	float grad[RAW_A_ELEMS], w[RAW_A_ELEMS];
	struct good *g = arg;
	gs_trainer *t = connect_as(g->uri, 0);
	gs_param *a = declare_line(t, "a", RAW_A_ELEMS, 1, 0);

	declare_line(t, "b", RAW_B_ELEMS, 1, 0);
	for (int i = 0; i < RAW_A_ELEMS; i++)
		grad[i] = 1;
	ok(gs_start(t));
	while (!g->end) {
		ok(gs_push(t, a, grad));
		ok(gs_step_end(t));
		g->steps++;
		nap_us(200);
	}
	ok(gs_pull(t, a, GS_RELAXED, w));
	for (int i = 0; i < RAW_A_ELEMS; i++)
		must(w[i] == -(float)g->steps, "element %d is %g after %llu steps", i, (double)w[i],
		     (unsigned long long)g->steps);
	leave(t);
	return NULL;
}

static void open_bed(struct bed *bed, struct good *g, uint32_t trainers)
{
	struct srv_options opt = bed_options(trainers, SRV_SYNC);

	opt.block_kib = 1;
	bed_start(bed, &opt);
	*g = (struct good){.uri = bed->uri};
	pthread_create(&g->thread, NULL, keep_stepping, g);
}

static bool has_stepped_on(void *arg)
{
	struct good *g = arg;

	return g->steps >= 5;
}

static void close_bed(struct bed *bed, struct good *g)
{
	wait_until(has_stepped_on, g, "the good trainer's steps");
	g->end = true;
	pthread_join(g->thread, NULL);
	bed_wait_connected(bed, 0);
	bed_stop(bed);
}

/* Two rogues beside a good one. */
START_TEST(over_shared_memory)
{
	struct child child[2];
	char slots[2][64];
	struct good g;
	struct bed bed;

	if (!over_shm())
		return;
	open_bed(&bed, &g, 3);
	child_start(&child[0], "rogue", bed.uri, "1", NULL);
	child_start(&child[1], "rogue", bed.uri, "2", NULL);
	for (int i = 0; i < 2; i++) {
		snprintf(slots[i], sizeof(slots[i]), "%s", child_says(&child[i], "slots"));
		int status = child_end(&child[i]);

		must(status == 128 + SIGSEGV || status == 128 + SIGBUS,
		     "the weights let themselves be written (%d)", status);
	}
	must(strcmp(slots[0], slots[1]) != 0, "both have the slots %s", slots[0]);
	bed_wait_connected(&bed, 1);
	must(bed_stats(&bed).lost == 2, "%llu lost", (unsigned long long)bed_stats(&bed).lost);
	close_bed(&bed, &g);
}
END_TEST

/* ---- over a network ---------------------------------------------------------------------------- */

enum reach { ANOTHERS_SLOTS, WEIGHTS, BEHIND_ITS_SLOTS, ANOTHERS_BY_READ, REACHES };

/* The rogue posts it, and hears how it went. */
static void reach_for(struct raw *r, enum tp_op_kind kind, struct tp_ref ref, uint64_t offset)
{
	struct tp_op op = {
	    .kind = kind,
	    .flags = TP_F_SIGNAL,
	    .local = tp_arena_base(r->source),
	    .region = r->source_region,
	    .offset = offset,
	    .len = 512,
	};
	uint64_t deadline = clock_ns() + scaled(15, 60) * NS_PER_S;
	bool iwarp = strstr(tp_conn_transport(r->conn), "iWARP");
	int status = 1, end = 1;
	struct tp_event ev;

	memset(tp_arena_base(r->source), 0xee, 512);
	ok(tp_attach(r->conn, &ref, TP_PEER_READ | TP_PEER_WRITE, ref.len, &op.remote));
	must(tp_post(r->conn, &op, 1) == 1, "tp_post: %s", err_text());
	while (end == 1) {
		must(clock_ns() < deadline, "the rogue's op never ended");
		if (tp_cq_poll(r->cq, &ev, 1) == 0)
			tp_cq_wait(r->cq, 5);
		else if (ev.kind == TP_EV_DONE)
			status = ev.status;
		else if (ev.kind == TP_EV_CLOSED)
			end = ev.status;
	}
	must(end < 0, "closed with %d", end);
	/* An iWARP WRITE is done once it is sent. */
	must(status < 0 || (iwarp && kind == TP_OP_WRITE), "the op's status is %d", status);
	if (!iwarp)
		must(end == -EACCES && strstr(tp_conn_reason(r->conn), "remote access error"),
		     "%d: %s", end, tp_conn_reason(r->conn));
	raw_free(r);
}

/* A gradient lies in the victim's slot when the rogue reaches for it; then the victim says so. (The
 * immediate comes with bytes for another slot, so that these are not written again.) */
static void victim_fills(struct raw *r, float value)
{
	float *source = tp_arena_base(r->source);

	for (int i = 0; i < 256; i++)
		source[i] = value;
	raw_write_from(r, 0, r->place[0].slots_off, 1024, 0, 0);
}

static void victim_pushes(struct raw *r)
{
	raw_write(r, r->place[0].slots_off + r->place[0].slots_stride, 1024,
		  imm_block(IMM_GRAD, r->place[0].first_block, 0, true));
}

static void read_weights(struct raw *r, uint64_t off, float *out, uint32_t n)
{
	struct tp_op op = {
	    .kind = TP_OP_READ,
	    .flags = TP_F_SIGNAL,
	    .local = tp_arena_base(r->source),
	    .region = r->source_region,
	    .remote = r->weights,
	    .offset = off,
	    .len = n * sizeof(float),
	};
	uint64_t deadline = clock_ns() + scaled(15, 60) * NS_PER_S;
	struct tp_event ev = {.kind = TP_EV_ROOM};

	must(tp_post(r->conn, &op, 1) == 1, "tp_post: %s", err_text());
	while (ev.kind != TP_EV_DONE) {
		must(clock_ns() < deadline, "the weights could not be read");
		if (tp_cq_poll(r->cq, &ev, 1) == 0)
			tp_cq_wait(r->cq, 5);
	}
	must(ev.status == 0, "read: %d", ev.status);
	memcpy(out, tp_arena_base(r->source), n * sizeof(float));
}

START_TEST(over_a_network)
{
	struct srv_options opt = bed_options(2, SRV_ASYNC);
	struct raw good, rogue;
	struct tp_ref ref;
	float w[256];
	struct bed bed;

	if (over_shm())
		return;
	opt.block_kib = 1;
	bed_start(&bed, &opt);
	raw_join(&good, bed.uri, 0);
	raw_wait_start(&good);
	raw_join(&rogue, bed.uri, 1);
	raw_wait_start(&rogue);
	victim_fills(&good, 1);
	const struct wire_ref of = _i == WEIGHTS	    ? rogue.grant.weights
				   : _i == BEHIND_ITS_SLOTS ? rogue.grant.slot_mem
							    : good.grant.slot_mem;

	ref = (struct tp_ref){of.addr, of.len, of.key, .more = of.more};
	uint64_t offset = _i == WEIGHTS ? good.place[0].weights_off : good.place[0].slots_off;

	if (_i == BEHIND_ITS_SLOTS) {
		offset = layout_align(ref.len, LAYOUT_PAGE);
		ref.len = offset + (1 << 20);
	}
	reach_for(&rogue, _i == ANOTHERS_BY_READ ? TP_OP_READ : TP_OP_WRITE, ref, offset);
	bed_wait_connected(&bed, 1);
	must(bed_stats(&bed).lost == 1, "%llu lost", (unsigned long long)bed_stats(&bed).lost);
	victim_pushes(&good);
	raw_wait_credit(&good, good.place[0].first_block, 1);
	read_weights(&good, good.place[0].weights_off, w, 256);
	for (int i = 0; i < 256; i++)
		must(w[i] == -1, "element %d is %g", i, (double)w[i]);
	/* The rank is free again. */
	raw_join(&rogue, bed.uri, 1);
	raw_wait_start(&rogue);
	raw_close(&rogue);
	raw_close(&good);
	bed_wait_connected(&bed, 0);
	bed_stop(&bed);
}
END_TEST

TCase *rogue_case(void)
{
	TCase *t = e2e_case("rogue");

	tcase_add_test(t, over_shared_memory);
	tcase_add_loop_test(t, over_a_network, 0, REACHES);
	return t;
}
