/* SPDX-License-Identifier: Apache-2.0
 *
 * The transport's parts that need no peer: URIs, arenas, the ring's arithmetic, copies.
 */
#include "base/err.h"
#include "transport/backend.h"
#include "transport/shm/copy.h"
#include "transport/shm/ring.h"
#include "transport/shm/wire.h"
#include "transport/transport.h"
#include "transport/uri.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "run.h"

/* ---- URIs -------------------------------------------------------------------------------------
 */

static struct tp_uri parse(const char *text)
{
	struct tp_uri u;
	int rc = tp_uri_parse(text, &u);

	ck_assert_msg(rc == 0, "%s: %d: %s", text, rc, err_text());
	return u;
}

START_TEST(uri_good)
{
	struct tp_uri u = parse("shm:a.B_9-z");

	ck_assert_str_eq(u.scheme, "shm");
	ck_assert_str_eq(u.name, "a.B_9-z");

	u = parse("rdma://10.0.0.1:7471");
	ck_assert_str_eq(u.scheme, "rdma");
	ck_assert_str_eq(u.host, "10.0.0.1");
	ck_assert_uint_eq(u.port, 7471);
	ck_assert_str_eq(u.dev, "");
	ck_assert_int_eq(u.gid, -1);
	ck_assert_int_eq(u.tc, -1);
	ck_assert_int_eq(u.sl, -1);
	ck_assert_int_eq(u.mtu, 0);

	u = parse("rdma://[fe80::1%eth0]:0");
	ck_assert_str_eq(u.host, "fe80::1%eth0");
	ck_assert_uint_eq(u.port, 0);
	u = parse("rdma://[::]:65535");
	ck_assert_str_eq(u.host, "::");
	ck_assert_uint_eq(u.port, 65535);
	u = parse("rdma://*:1");
	ck_assert_str_eq(u.host, "*");

	u = parse("rdma://node-3.lab:5?dev=mlx5_0&gid=3&tc=106&sl=3&mtu=1024");
	ck_assert_str_eq(u.host, "node-3.lab");
	ck_assert_str_eq(u.dev, "mlx5_0");
	ck_assert_int_eq(u.gid, 3);
	ck_assert_int_eq(u.tc, 106);
	ck_assert_int_eq(u.sl, 3);
	ck_assert_int_eq(u.mtu, 1024);
	const struct tp_tuning none = TP_TUNING_DEFAULT;

	ck_assert_mem_eq(&u.tuning, &none, sizeof(none));
	ck_assert_uint_eq(u.qps, 0);
	u = parse("rdma://h:5?tc=0&sl=0&gid=0");
	ck_assert_int_eq(u.tc, 0);
	ck_assert_int_eq(u.sl, 0);
	ck_assert_int_eq(u.gid, 0);
}
END_TEST

START_TEST(uri_tuning)
{
	struct tp_tuning t = parse("rdma://h:5?timeout=0&retry=7&rnr=1&rnr_timer=31&depth=16384&"
				   "inline=4096&ro=1&cq_mod=16/65535")
				 .tuning;

	ck_assert_int_eq(t.timeout, 0);
	ck_assert_int_eq(t.retry, 7);
	ck_assert_int_eq(t.rnr, 1);
	ck_assert_int_eq(t.rnr_timer, 31);
	ck_assert_int_eq(t.depth, 16384);
	ck_assert_int_eq(t.in_line, 4096);
	ck_assert_int_eq(t.relaxed, 1);
	ck_assert_int_eq(t.cq_count, 16);
	ck_assert_int_eq(t.cq_usec, 65535);
	/* Each alone: the others keep to the default. */
	t = parse("rdma://h:5?timeout=31").tuning;
	ck_assert_int_eq(t.timeout, 31);
	ck_assert_int_eq(t.retry, -1);
	t = parse("rdma://h:5?inline=0&ro=0").tuning;
	ck_assert_int_eq(t.in_line, 0);
	ck_assert_int_eq(t.relaxed, 0);
	ck_assert_int_eq(t.cq_count, -1);
}
END_TEST

/* Rail r goes to host r and from device r, from the front again behind the last. */
START_TEST(uri_rails)
{
	struct tp_uri u = parse("rdma://a,[fe80::1%eth0],b:5?qps=8&dev=m0,m1&tc=8"), one;
	static const char *const hosts[] = {"a", "fe80::1%eth0", "b"}, *const devs[] = {"m0", "m1"};

	ck_assert_uint_eq(u.qps, 8);
	for (unsigned r = 0; r < 8; r++) {
		tp_uri_rail(&u, r, &one);
		ck_assert_str_eq(one.host, hosts[r % 3]);
		ck_assert_str_eq(one.dev, devs[r % 2]);
		ck_assert_uint_eq(one.port, 5);
		ck_assert_int_eq(one.tc, 8);
		ck_assert_uint_eq(one.qps, 0);
	}
	ck_assert_uint_eq(parse("rdma://a,b,c:5").qps, 3);
	ck_assert_uint_eq(parse("rdma://a,b:5?dev=x,y,z").qps, 3);
	ck_assert_uint_eq(parse("rdma://a:5?qps=1").qps, 1);
	u = parse("rdma://a:5?qps=4");
	tp_uri_rail(&u, 3, &one);
	ck_assert_str_eq(one.host, "a");
	ck_assert_str_eq(one.dev, "");
	ck_assert(!tp_uri_is_local("rdma://127.0.0.1,10.0.0.1:5"));
	ck_assert(tp_uri_is_local("rdma://127.0.0.1:5?qps=2"));
}
END_TEST

/* Who listens takes connections of any number of rails, and says nothing of them. */
START_TEST(uri_rails_are_not_listened_on)
{
	static const char *const uris[] = {"rdma://127.0.0.1:0?qps=2", "rdma://127.0.0.1,127.0.0.2:0",
					   "rdma://127.0.0.1:0?dev=a,b"};
	struct tp_listener *l = NULL;

	for (int i = 0; i < 3; i++) {
		ck_assert_int_eq(tp_listen(uris[i], NULL, &l), -EINVAL);
		ck_assert_msg(strstr(err_text(), "connect"), "%s", err_text());
	}
}
END_TEST

/* Each with a word that its text must hold. */
static const struct {
	const char *text, *word;
} bad_uris[] = {
    {"", "shm:NAME"},
    {"shm", "shm:NAME"},
    {"SHM:x", "shm:NAME"},
    {"tcp://x:1", "shm:NAME"},
    {"rdma:x:1", "shm:NAME"},
    {"shm:", "name"},
    {"shm:a/b", "name"},
    {"shm:a b", "name"},
    {"shm:a\n", "name"},
    {"shm:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "63"},
    {"rdma://", "host"},
    {"rdma://:1", "host"},
    {"rdma://a/b:1", "host"},
    {"rdma://**:1", "host"},
    {"rdma://x", "port"},
    {"rdma://x:", "port"},
    {"rdma://x:-1", "port"},
    {"rdma://x:+1", "port"},
    {"rdma://x: 1", "port"},
    {"rdma://x:1x", "port"},
    {"rdma://x:65536", "65535"},
    {"rdma://x:99999999999999999999", "port"},
    {"rdma://fe80::1:7", "port"},
    {"rdma://[fe80::1:7", "']'"},
    {"rdma://[10.0.0.1]:7", "IPv6"},
    {"rdma://[]:7", "IPv6"},
    {"rdma://[fe80::1%]:7", "interface"},
    {"rdma://[fe80::1]7", "port"},
    {"rdma://x,:1", "host"},
    {"rdma://,x:1", "host"},
    {"rdma://x,*:1", "alone"},
    {"rdma://*,x:1", "alone"},
    {"rdma://a,b,c,d,e,f,g,h,i:1", "more than 8 hosts"},
    {"rdma://x:1?qps=0", "1 to 8"},
    {"rdma://x:1?qps=9", "1 to 8"},
    {"rdma://x:1?qps=", "1 to 8"},
    {"rdma://a,b:1?qps=1", "2 at least"},
    {"rdma://a:1?dev=x,y,z&qps=2", "3 at least"},
    {"rdma://a:1?dev=x,", "dev="},
    {"rdma://a:1?dev=a,b,c,d,e,f,g,h,i", "more than 8 devices"},
    {"rdma://a:1?qps=2&qps=2", "twice"},
    {"rdma://x:1?", "option"},
    {"rdma://x:1?dev", "option"},
    {"rdma://x:1?&dev=a", "option"},
    {"rdma://x:1?dev=a&", "option"},
    {"rdma://x:1?dev=", "device"},
    {"rdma://x:1?dev=a/b", "device"},
    {"rdma://x:1?colour=red", "unknown"},
    {"rdma://x:1?tc=1&tc=1", "twice"},
    {"rdma://x:1?tc=256", "255"},
    {"rdma://x:1?sl=16", "15"},
    {"rdma://x:1?gid=", "GID"},
    {"rdma://x:1?gid=-1", "GID"},
    {"rdma://x:1?mtu=1500", "1024"},
    {"rdma://x:1?mtu=8192", "4096"},
    {"rdma://x:1?timeout=32", "0 to 31"},
    {"rdma://x:1?timeout=", "timeout"},
    {"rdma://x:1?retry=8", "0 to 7"},
    {"rdma://x:1?rnr=8", "0 to 7"},
    {"rdma://x:1?rnr_timer=32", "0 to 31"},
    {"rdma://x:1?depth=0", "1 to 16384"},
    {"rdma://x:1?depth=16385", "1 to 16384"},
    {"rdma://x:1?inline=4097", "0 to 4096"},
    {"rdma://x:1?ro=2", "0 to 1"},
    {"rdma://x:1?ro=yes", "0 to 1"},
    {"rdma://x:1?cq_mod=16", "COUNT/USEC"},
    {"rdma://x:1?cq_mod=", "COUNT/USEC"},
    {"rdma://x:1?cq_mod=/10", "the count"},
    {"rdma://x:1?cq_mod=0/10", "1 to 65535"},
    {"rdma://x:1?cq_mod=16/", "the time"},
    {"rdma://x:1?cq_mod=16/65536", "1 to 65535"},
    {"rdma://x:1?cq_mod=1/2/3", "the time"},
    {"rdma://x:1?colour=red", "timeout, retry, rnr, rnr_timer, depth, inline, ro, cq_mod"},
    {"rdma://x:1?retry=1&retry=1", "twice"},
};

START_TEST(uri_bad)
{
	struct tp_uri u = {.port = 4711};
	int rc = tp_uri_parse(bad_uris[_i].text, &u);

	ck_assert_msg(rc == -EINVAL, "'%s': %d", bad_uris[_i].text, rc);
	ck_assert_msg(strstr(err_text(), bad_uris[_i].word), "'%s': '%s' does not say '%s'",
		      bad_uris[_i].text, err_text(), bad_uris[_i].word);
	ck_assert_uint_eq(u.port, 4711);
}
END_TEST

START_TEST(uri_local)
{
	static const char *const local[] = {
	    "shm:x", "rdma://127.0.0.1:1", "rdma://127.255.0.9:1", "rdma://localhost:0",
	    "rdma://LocalHost:7?dev=rxe0", "rdma://[::1]:1", "rdma://[::ffff:127.0.0.1]:1"};
	static const char *const not_local[] = {
	    "rdma://*:1",         "rdma://10.0.0.1:1",      "rdma://0.0.0.0:1",
	    "rdma://[::]:1",      "rdma://128.0.0.1:1",     "rdma://localhost.example:1",
	    "rdma://[fe80::1]:1", "rdma://127.example:1",   "rdma://[::ffff:10.0.0.1]:1",
	    "nonsense",           "rdma://[::127.0.0.1]:1", "rdma://1.0.0.127:1"};

	for (size_t i = 0; i < sizeof(local) / sizeof(*local); i++)
		ck_assert_msg(tp_uri_is_local(local[i]), "%s", local[i]);
	for (size_t i = 0; i < sizeof(not_local) / sizeof(*not_local); i++)
		ck_assert_msg(!tp_uri_is_local(not_local[i]), "%s", not_local[i]);
	ck_assert(!tp_uri_is_local(NULL));
}
END_TEST

START_TEST(uri_long)
{
	char text[700];
	struct tp_uri u;

	snprintf(text, sizeof(text), "rdma://%0300d:1", 1);
	ck_assert_int_eq(tp_uri_parse(text, &u), -EINVAL);
	snprintf(text, sizeof(text), "rdma://[%0300d]:1", 1);
	ck_assert_int_eq(tp_uri_parse(text, &u), -EINVAL);
	snprintf(text, sizeof(text), "rdma://x:1?dev=%0100d", 1);
	ck_assert_int_eq(tp_uri_parse(text, &u), -EINVAL);
	ck_assert_int_eq(tp_uri_parse(NULL, &u), -EINVAL);
}
END_TEST

/* ---- arenas -----------------------------------------------------------------------------------
 */

static struct tp_arena *arena(size_t size, unsigned flags)
{
	struct tp_arena *a;
	int rc = tp_arena_create("test", size, flags, &a);

	ck_assert_msg(rc == 0, "%d: %s", rc, err_text());
	return a;
}

START_TEST(arena_zeroed)
{
	static const size_t sizes[] = {1, 4096, 4097, (2 << 20) - 1, 2 << 20, (5 << 20) + 17};

	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		struct tp_arena *a = arena(sizes[i], i % 2 ? TP_ARENA_PREFAULT : 0);
		unsigned char *base = tp_arena_base(a), any = 0;

		ck_assert_uint_ge(tp_arena_size(a), sizes[i]);
		ck_assert_uint_lt(tp_arena_size(a), sizes[i] + (2 << 20));
		ck_assert_uint_eq(tp_arena_size(a) % 4096, 0);
		for (size_t at = 0; at < tp_arena_size(a); at++)
			any |= base[at];
		ck_assert_int_eq(any, 0);
		memset(base, 0xab, tp_arena_size(a));
		ck_assert(strstr(tp_arena_pages(a), "pages"));
		if (sizes[i] >= 2 << 20)
			ck_assert_uint_eq((uintptr_t)base % (2 << 20), 0);
		tp_arena_destroy(a);
	}
	tp_arena_destroy(NULL);
}
END_TEST

/* Every page of a large one is there, whoever touched it. */
START_TEST(arena_prefaulted)
{
	static unsigned char there[(100 << 20) / 4096 + 512];
	struct tp_arena *a = arena((100 << 20) + 17, TP_ARENA_PREFAULT | TP_ARENA_SMALL_PAGES);
	size_t pages = tp_arena_size(a) / 4096;

	ck_assert_uint_ge(pages, (100 << 20) / 4096 + 1);
	ck_assert_int_eq(mincore(tp_arena_base(a), tp_arena_size(a), there), 0);
	for (size_t i = 0; i < pages; i++)
		ck_assert_msg(there[i] & 1, "page %zu is not there", i);
	tp_arena_destroy(a);
}
END_TEST

static unsigned long long small_kib(const struct tp_arena *a)
{
	FILE *f = fopen("/proc/self/smaps", "re");
	char line[512], head[32];
	bool here = false;
	unsigned long long kib = 0, n;

	ck_assert_ptr_nonnull(f);
	snprintf(head, sizeof(head), "%lx-", (unsigned long)tp_arena_base(a));
	while (fgets(line, sizeof(line), f)) {
		if (strchr(line, '-') && strchr(line, '-') < strchr(line, ' '))
			here = !strncmp(line, head, strlen(head));
		if (here && sscanf(line, "Rss: %llu", &n) == 1)
			kib += n;
		if (here && sscanf(line, "ShmemPmdMapped: %llu", &n) == 1)
			kib -= n;
	}
	fclose(f);
	return kib;
}

/* What is asked for comes, or is refused, and is told as it is. */
START_TEST(arena_pages)
{
	const size_t size = (6 << 20) + 4096;
	struct tp_arena *a = arena(size, TP_ARENA_PREFAULT | TP_ARENA_SMALL_PAGES);

	ck_assert_str_eq(tp_arena_pages(a), "4 KiB pages");
	ck_assert_uint_eq(small_kib(a), tp_arena_size(a) >> 10);
	tp_arena_destroy(a);

	a = arena(size, TP_ARENA_PREFAULT);
	ck_assert_int_eq(!strncmp(tp_arena_pages(a), "4 KiB", 5),
			 small_kib(a) == tp_arena_size(a) >> 10);
	tp_arena_destroy(a);

	int rc = tp_arena_create("test", size, TP_ARENA_PREFAULT | TP_ARENA_HUGE_PAGES, &a);

	if (rc < 0) {
		ck_assert_int_eq(rc, -ENOMEM);
		ck_assert_msg(strstr(err_text(), "vm.nr_hugepages") &&
				  strstr(err_text(), "it takes 4") &&
				  strstr(err_text(), "shmem_enabled"),
			      "%s", err_text());
	} else {
		ck_assert_uint_lt(small_kib(a), 2 << 10);
		ck_assert(!strncmp(tp_arena_pages(a), "2 MiB", 5) ||
			  !strncmp(tp_arena_pages(a), "trans", 5));
		tp_arena_destroy(a);
	}
	/* Where no huge page fits none is missing. */
	a = arena((2 << 20) - 4096, TP_ARENA_PREFAULT | TP_ARENA_HUGE_PAGES);
	ck_assert_str_eq(tp_arena_pages(a), "4 KiB pages");
	tp_arena_destroy(a);
	ck_assert_int_eq(tp_arena_create("test", size, TP_ARENA_HUGE_PAGES, &a), -EINVAL);
	ck_assert_int_eq(tp_arena_create("test", size,
					 TP_ARENA_PREFAULT | TP_ARENA_HUGE_PAGES |
					     TP_ARENA_SMALL_PAGES,
					 &a),
			 -EINVAL);
}
END_TEST

START_TEST(arena_sealed)
{
	struct tp_arena *a = arena(8192, 0);
	int fd = tp_arena_fd(a);

	ck_assert_int_eq(ftruncate(fd, 4096), -1);
	ck_assert_int_eq(errno, EPERM);
	ck_assert_int_eq(ftruncate(fd, 16384), -1);
	ck_assert_int_eq(errno, EPERM);
	ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), -1);
	ck_assert(fcntl(fd, F_GETFD) & FD_CLOEXEC);
	void *again = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	ck_assert_ptr_ne(again, MAP_FAILED);
	munmap(again, 8192);
	tp_arena_destroy(a);
}
END_TEST

/* However the file is opened, it can't be written but through the arena's own mapping. */
START_TEST(arena_read_only)
{
	struct tp_arena *a = arena(8192, TP_ARENA_READ_ONLY_TO_PEERS);
	char path[64];

	strcpy(tp_arena_base(a), "weights");
	snprintf(path, sizeof(path), "/proc/self/fd/%d", tp_arena_fd(a));
	int fds[] = {tp_arena_fd(a), open(path, O_RDWR)};

	for (int i = 0; i < 2; i++) {
		ck_assert_int_ge(fds[i], 0);
		ck_assert_ptr_eq(mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fds[i], 0),
				 MAP_FAILED);
		ck_assert_int_eq(write(fds[i], "x", 1), -1);
		char *ro = mmap(NULL, 8192, PROT_READ, MAP_SHARED, fds[i], 0);

		ck_assert_ptr_ne(ro, MAP_FAILED);
		ck_assert_str_eq(ro, "weights");
		ck_assert_int_eq(mprotect(ro, 8192, PROT_READ | PROT_WRITE), -1);
		munmap(ro, 8192);
	}
	((char *)tp_arena_base(a))[0] = 'W';
	close(fds[1]);
	tp_arena_destroy(a);
}
END_TEST

/* How often; ThreadSanitizer takes long over each mapping. */
#ifdef __SANITIZE_THREAD__
enum { COME_AND_GO = 300 };
#else
enum { COME_AND_GO = 3000 };
#endif

/* Arenas come and go while other threads map memory: nobody's may be taken away. */
static void *arenas_come_and_go(void *arg)
{
	unsigned seed = (unsigned)(uintptr_t)arg;
	struct tp_arena *held[6] = {NULL};

	for (int i = 0; i < COME_AND_GO; i++) {
		struct tp_arena **at = &held[rand_r(&seed) % 6];
		size_t size = (size_t)(rand_r(&seed) % 3 * 2 + 2) << 20;
		char *base;

		if (*at) {
			base = tp_arena_base(*at);
			base[0] = base[tp_arena_size(*at) - 1] = 1;
			tp_arena_destroy(*at);
			*at = NULL;
		}
		ck_assert_int_eq(tp_arena_create("come-and-go", size, 0, at), 0);
		base = tp_arena_base(*at);
		base[0] = 1;
	}
	for (int i = 0; i < 6; i++)
		tp_arena_destroy(held[i]);
	return NULL;
}

static void *mappings_come_and_go(void *arg)
{
	unsigned seed = (unsigned)(uintptr_t)arg;
	const size_t size = 4 << 20;
	char *held[16] = {NULL};

	for (int i = 0; i < 10 * COME_AND_GO; i++) {
		char **at = &held[rand_r(&seed) % 16];

		if (*at) {
			(*at)[0] = (*at)[4095] = 1;
			munmap(*at, size);
		}
		*at = mmap(NULL, size, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		ck_assert_ptr_ne(*at, MAP_FAILED);
		(*at)[0] = 1;
	}
	for (int i = 0; i < 16; i++)
		if (held[i])
			munmap(held[i], size);
	return NULL;
}

START_TEST(arena_takes_nobody_elses)
{
	void *(*const runs[])(void *) = {arenas_come_and_go, arenas_come_and_go,
					 arenas_come_and_go, mappings_come_and_go,
					 mappings_come_and_go};
	pthread_t thread[5];

	for (uintptr_t i = 0; i < 5; i++)
		ck_assert_int_eq(pthread_create(&thread[i], NULL, runs[i], (void *)(i + 1)), 0);
	for (int i = 0; i < 5; i++)
		pthread_join(thread[i], NULL);
}
END_TEST

START_TEST(arena_errors)
{
	struct tp_arena *a = NULL;

	ck_assert_int_eq(tp_arena_create("x", 0, 0, &a), -EINVAL);
	ck_assert_int_eq(tp_arena_create("", 1, 0, &a), -EINVAL);
	ck_assert_int_eq(tp_arena_create(NULL, 1, 0, &a), -EINVAL);
	ck_assert_int_eq(tp_arena_create("x", 1, 1u << 9, &a), -EINVAL);
	ck_assert_int_eq(tp_arena_create("x", SIZE_MAX, 0, &a), -ENOMEM);
	ck_assert_int_eq(tp_arena_create("huge", (size_t)1 << 50, TP_ARENA_PREFAULT, &a), -ENOMEM);
	ck_assert(strstr(err_text(), "huge"));
	ck_assert(strstr(err_text(), "1125899906842624"));
	ck_assert(strstr(err_text(), "MemAvailable"));
	ck_assert_ptr_null(a);
}
END_TEST

/* ---- the ring ---------------------------------------------------------------------------------
 */

START_TEST(ring_positions)
{
	ck_assert_uint_eq(ring_depth(1), 1);
	ck_assert_uint_eq(ring_depth(2), 2);
	ck_assert_uint_eq(ring_depth(3), 4);
	ck_assert_uint_eq(ring_depth(256), 256);
	ck_assert_uint_eq(ring_depth(257), 512);
	ck_assert_uint_eq(ring_slot(8, 0), 0);
	ck_assert_uint_eq(ring_slot(8, 7), 7);
	ck_assert_uint_eq(ring_slot(8, 8), 0);
	ck_assert_uint_eq(ring_slot(8, 0x100000003ULL), 3);
}
END_TEST

/* Through many laps, and over the end of 32 bits, from each starting point. */
static void run_laps(uint64_t start, uint32_t depth)
{
	struct ring_tx tx = {.depth = depth, .sent = start, .taken = start};
	struct ring_rx rx = {.depth = depth, .taken = start};
	uint32_t *seq = calloc(depth, sizeof(*seq));

	/* As a ring that has come that far would be. */
	for (uint64_t p = start; p < start + depth; p++)
		seq[ring_slot(depth, p)] = ring_seq_before(depth, p);
	for (uint32_t lap = 0; lap < 3 * depth + 5; lap++) {
		uint32_t n = lap % depth + 1;

		for (uint32_t i = 0; i < n; i++) {
			ck_assert_uint_eq(ring_tx_room(&tx), depth - i);
			uint64_t pos = ring_tx_reserve(&tx);

			ck_assert_int_eq(ring_rx_look(&rx, seq[ring_slot(depth, rx.taken)]),
					 i ? RING_READY : RING_EMPTY);
			seq[ring_slot(depth, pos)] = ring_seq(pos);
		}
		for (uint32_t i = 0; i < n; i++) {
			ck_assert_int_eq(ring_rx_look(&rx, seq[ring_slot(depth, rx.taken)]),
					 RING_READY);
			rx.taken++;
		}
		ck_assert_int_eq(ring_rx_look(&rx, seq[ring_slot(depth, rx.taken)]), RING_EMPTY);
		ck_assert(ring_tx_credit(&tx, (uint32_t)rx.taken));
		ck_assert_uint_eq(ring_tx_room(&tx), depth);
	}
	free(seq);
}

START_TEST(ring_laps)
{
	static const uint32_t depths[] = {1, 2, 8, 64};

	for (size_t i = 0; i < sizeof(depths) / sizeof(*depths); i++) {
		run_laps(0, depths[i]);
		run_laps(UINT32_MAX - 70, depths[i]);
		run_laps(UINT64_MAX / 2, depths[i]);
	}
}
END_TEST

START_TEST(ring_lies)
{
	struct ring_rx rx = {.depth = 8, .taken = 3};

	ck_assert_int_eq(ring_rx_look(&rx, 0), RING_EMPTY);
	ck_assert_int_eq(ring_rx_look(&rx, 4), RING_READY);
	ck_assert_int_eq(ring_rx_look(&rx, 5), RING_LIE);
	ck_assert_int_eq(ring_rx_look(&rx, 12), RING_LIE);
	ck_assert_int_eq(ring_rx_look(&rx, UINT32_MAX), RING_LIE);
	rx.taken = 11;
	ck_assert_int_eq(ring_rx_look(&rx, 0), RING_LIE);
	ck_assert_int_eq(ring_rx_look(&rx, 4), RING_EMPTY);
	ck_assert_int_eq(ring_rx_look(&rx, 12), RING_READY);

	struct ring_tx tx = {.depth = 8, .sent = 10, .taken = 5};

	ck_assert(!ring_tx_credit(&tx, 11));
	ck_assert(!ring_tx_credit(&tx, 4));
	ck_assert(!ring_tx_credit(&tx, UINT32_MAX));
	ck_assert_uint_eq(tx.taken, 5);
	ck_assert(ring_tx_credit(&tx, 5));
	ck_assert(ring_tx_credit(&tx, 9));
	ck_assert(!ring_tx_credit(&tx, 8));
	ck_assert_uint_eq(ring_tx_room(&tx), 7);
	ck_assert(ring_tx_credit(&tx, 10));
	ck_assert_uint_eq(ring_tx_room(&tx), 8);
}
END_TEST

/* The parts of the segment follow each other, aligned, and end with it. */
START_TEST(segment_layout)
{
	for (uint32_t depth = 1; depth <= TP_DEPTH_MAX; depth *= 2) {
		size_t ring = (size_t)depth * sizeof(struct ring_entry);

		ck_assert_uint_ge(shm_ring_at(depth, 0), sizeof(struct shm_shared));
		ck_assert_uint_ge(shm_ring_at(depth, 1), shm_ring_at(depth, 0) + ring);
		ck_assert_uint_ge(shm_msgs_at(depth, 0), shm_ring_at(depth, 1) + ring);
		ck_assert_uint_eq(shm_msgs_at(depth, 1),
				  shm_msgs_at(depth, 0) + (size_t)depth * TP_MSG_MAX);
		ck_assert_uint_eq(shm_segment_bytes(depth),
				  shm_msgs_at(depth, 1) + (size_t)depth * TP_MSG_MAX);
		ck_assert_uint_eq(shm_segment_bytes(depth) % 4096, 0);
	}
}
END_TEST

/* ---- copies -----------------------------------------------------------------------------------
 */

START_TEST(copies)
{
	size_t room = (20 << 20) + 200;
	unsigned char *from = malloc(room), *to = malloc(room);
	static const size_t lens[] = {
	    1, 3, 4, 5, 8, 9, 64, 4096, 100001, (1 << 20) - 1, 1 << 20, (1 << 20) + 63, 20 << 20};

	for (size_t i = 0; i < room; i++)
		from[i] = (unsigned char)(i * 31 + (i >> 8));
	for (size_t l = 0; l < sizeof(lens) / sizeof(*lens); l++)
		for (size_t off = 0; off < 3; off++) {
			size_t len = lens[l], at = 64 + off * 5;

			memset(to, 0x5a, room);
			shm_copy_out(to + at, from + off, len);
			ck_assert(!memcmp(to + at, from + off, len));
			ck_assert_uint_eq(to[at - 1], 0x5a);
			ck_assert_uint_eq(to[at + len], 0x5a);
			memset(to, 0x5a, at + len + 1);
			shm_copy_in(to + at, from + off, len);
			ck_assert(!memcmp(to + at, from + off, len));
			ck_assert_uint_eq(to[at - 1], 0x5a);
			ck_assert_uint_eq(to[at + len], 0x5a);
		}
	/* Overlapping, either way. */
	memcpy(to, from, 1000);
	shm_copy_out(to + 10, to, 900);
	ck_assert(!memcmp(to + 10, from, 900));
	memcpy(to, from, 1000);
	shm_copy_out(to, to + 10, 900);
	ck_assert(!memcmp(to, from + 10, 900));
	free(from);
	free(to);
}
END_TEST

static Suite *unit(void)
{
	Suite *s = suite_create("transport units");
	TCase *t = tcase_create("uri");

	tcase_add_test(t, uri_good);
	tcase_add_test(t, uri_tuning);
	tcase_add_test(t, uri_rails);
	tcase_add_test(t, uri_rails_are_not_listened_on);
	tcase_add_loop_test(t, uri_bad, 0, (int)(sizeof(bad_uris) / sizeof(*bad_uris)));
	tcase_add_test(t, uri_long);
	tcase_add_test(t, uri_local);
	suite_add_tcase(s, t);
	t = tcase_create("arena");
	tcase_set_timeout(t, 60);
	tcase_add_test(t, arena_zeroed);
	tcase_add_test(t, arena_prefaulted);
	tcase_add_test(t, arena_pages);
	tcase_add_test(t, arena_sealed);
	tcase_add_test(t, arena_read_only);
	tcase_add_test(t, arena_errors);
	tcase_add_test(t, arena_takes_nobody_elses);
	suite_add_tcase(s, t);
	t = tcase_create("ring");
	tcase_set_timeout(t, 60);
	tcase_add_test(t, ring_positions);
	tcase_add_test(t, ring_laps);
	tcase_add_test(t, ring_lies);
	tcase_add_test(t, segment_layout);
	suite_add_tcase(s, t);
	t = tcase_create("copy");
	tcase_set_timeout(t, 60);
	tcase_add_test(t, copies);
	suite_add_tcase(s, t);
	return s;
}

int main(void)
{
	SRunner *runner = srunner_create(unit());
	return run_all(runner);
}
