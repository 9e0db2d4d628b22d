/* SPDX-License-Identifier: Apache-2.0
 *
 * `gradslot doctor`: what this machine can do, and why not what it can't. Each fact is stated once,
 * as a value for --json and as a text for people.
 */
#include "cli/cmd.h"
#include "cli/json.h"
#include "cli/opt.h"

#include "base/err.h"
#include "base/proc.h"
#include "base/log.h"
#include "kernels/kern.h"
#include "transport/transport.h"

#include <inttypes.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>

struct report {
	json_t *root;
	json_t *section; /* the open one, inside root */
	bool text;
};

static void open_section(struct report *r, const char *key, const char *title)
{
	if (r->text)
		printf("%s%s\n", r->section ? "\n" : "", title);
	r->section = json_object();
	json_object_set_new(r->root, key, r->section);
}

/* One fact: `value` (taken) is for programs, the text for people. */
__attribute__((format(printf, 5, 6))) static void
fact(struct report *r, const char *key, json_t *value, const char *label, const char *fmt, ...)
{
	va_list ap;

	json_object_set_new(r->section, key, value);
	if (!r->text)
		return;
	printf("  %-16s", label);
	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	printf("\n");
}

static void advice(const struct report *r, const char *text)
{
	if (r->text)
		printf("  %-16s%s\n", "", text);
}

/* ---- transports ------------------------------------------------------------------------------ */

struct lines {
	const struct report *report;
	json_t *list;
};

static void add_line(void *arg, const char *text)
{
	struct lines *lines = arg;

	json_array_append_new(lines->list, json_string(text));
	advice(lines->report, text);
}

/* Returns how many can be used. */
static int transports(struct report *r)
{
	static const char *const schemes[] = {"shm", "rdma"};
	int usable = 0;

	open_section(r, "transports", "Transports");
	for (size_t i = 0; i < sizeof(schemes) / sizeof(schemes[0]); i++) {
		bool ok = tp_available(schemes[i]) == 0;
		const char *why = ok ? "" : err_text();
		json_t *entry = json_pack("{s:b, s:s}", "usable", (int)ok, "reason", why);
		struct lines lines = {r, json_array()};

		usable += ok;
		fact(r, schemes[i], entry, schemes[i], "%s%s", ok ? "usable" : "not usable: ", why);
		tp_describe(schemes[i], add_line, &lines);
		json_object_set_new(entry, "facts", lines.list);
	}
	return usable;
}

/* Since Linux 5.12 a child gets copies of pinned pages; before, libibverbs had to hide them. */
static bool copies_pinned_pages(void)
{
	struct utsname u = {0};
	unsigned major = 0, minor = 0;

	uname(&u);
	sscanf(u.release, "%u.%u", &major, &minor);
	return major > 5 || (major == 5 && minor >= 12);
}

static void forks(struct report *r)
{
	const char *state, *text;

	if (copies_pinned_pages()) {
		state = "unneeded";
		text = "the kernel copies pinned pages for a child: a trainer may fork";
	} else if (getenv("RDMAV_FORK_SAFE") || getenv("IBV_FORK_SAFE")) {
		state = "enabled";
		text = "libibverbs hides pinned pages from children";
	} else {
		state = "disabled";
		text = "over rdma a fork may break registered memory: set RDMAV_FORK_SAFE=1";
	}
	open_section(r, "fork", "Fork");
	fact(r, "safety", json_string(state), "pinned memory", "%s: %s", state, text);
	advice(r,
	       "in a forked child no RDMA connection of its parent works: connect after the fork");
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* KiB, or a count; -1 when it is not there. */
static int64_t meminfo(const char *name)
{
	return (int64_t)proc_number("/proc/meminfo", name, 10, UINT64_MAX);
}

static json_t *limit_json(rlim_t limit)
{
	return limit == RLIM_INFINITY ? json_null() : json_integer((json_int_t)limit);
}

static void memory(struct report *r)
{
	struct rlimit lock = {0};
	int64_t total = meminfo("MemTotal"), available = meminfo("MemAvailable");

	getrlimit(RLIMIT_MEMLOCK, &lock);
	bool capable = proc_may_lock_all();
	open_section(r, "memory", "Memory");
	fact(r, "total", json_integer(total * 1024), "total", "%" PRId64 " MiB", total >> 10);
	fact(r, "available", json_integer(available * 1024), "available", "%" PRId64 " MiB",
	     available >> 10);
	if (lock.rlim_cur == RLIM_INFINITY)
		fact(r, "memlock", json_null(), "may be locked", "no limit");
	else
		fact(r, "memlock", limit_json(lock.rlim_cur), "may be locked", "%" PRIu64 " KiB%s",
		     (uint64_t)lock.rlim_cur >> 10,
		     capable ? ", but this user's CAP_IPC_LOCK lifts the limit" : "");
	json_object_set_new(r->section, "memlock_hard", limit_json(lock.rlim_max));
	json_object_set_new(r->section, "memlock_unlimited",
			    json_boolean(capable || lock.rlim_cur == RLIM_INFINITY));
	if (!capable && lock.rlim_cur < (uint64_t)total * 1024)
		advice(r, "less than there is: RDMA needs locked memory; raise it with `ulimit -l "
			  "unlimited`, limits.conf (memlock) or LimitMEMLOCK=infinity");
}

/* The bracketed word of a file such as "always [madvise] never". */
static void chosen_word(const char *path, char *buf, size_t size)
{
	FILE *f = fopen(path, "re");
	char line[256] = "";

	snprintf(buf, size, "unknown");
	if (f && fgets(line, sizeof(line), f)) {
		char *from = strchr(line, '['), *to = from ? strchr(from, ']') : NULL;
		if (to)
			snprintf(buf, size, "%.*s", (int)(to - from - 1), from + 1);
	}
	if (f)
		fclose(f);
}

static void huge_pages(struct report *r)
{
	int64_t free_pages = meminfo("HugePages_Free"), total = meminfo("HugePages_Total");
	int64_t size = meminfo("Hugepagesize");
	char thp[32], shmem[32];

	chosen_word("/sys/kernel/mm/transparent_hugepage/enabled", thp, sizeof(thp));
	chosen_word("/sys/kernel/mm/transparent_hugepage/shmem_enabled", shmem, sizeof(shmem));
	open_section(r, "huge_pages", "Huge pages");
	fact(r, "size", json_integer(size * 1024), "size", "%" PRId64 " KiB", size);
	fact(r, "free", json_integer(free_pages), "reserved", "%" PRId64 " free of %" PRId64,
	     free_pages, total);
	json_object_set_new(r->section, "total", json_integer(total));
	fact(r, "transparent", json_string(thp), "transparent", "%s", thp);
	fact(r, "transparent_shmem", json_string(shmem), "shared memory", "%s", shmem);
	bool shared = strcmp(shmem, "never") && strcmp(shmem, "deny") && strcmp(shmem, "unknown");
	json_object_set_new(r->section, "possible", json_boolean(free_pages > 0 || shared));
	if (free_pages <= 0 && !shared)
		advice(r,
		       "memory will be in small pages; `sysctl vm.nr_hugepages=N` reserves some, "
		       "`echo advise >/sys/kernel/mm/transparent_hugepage/shmem_enabled` lets the "
		       "kernel make them");
	else if (shared)
		advice(r, "memory is in huge pages as far as the kernel finds some: the server's "
			  "log says; --huge-pages require insists");
	else
		advice(r, "memory that does not fit those that are free is in small pages: "
			  "--huge-pages require insists");
}

/* ---- nodes ----------------------------------------------------------------------------------- */

/* One node's "Node N MemTotal:  K kB", in KiB; -1 when it is not there. */
static int64_t node_total(unsigned node)
{
	char path[80], line[128];
	int64_t kib = -1;

	snprintf(path, sizeof(path), "/sys/devices/system/node/node%u/meminfo", node);
	FILE *f = fopen(path, "re");
	while (f && kib < 0 && fgets(line, sizeof(line), f)) {
		const char *at = strstr(line, "MemTotal:");
		if (at)
			kib = strtoll(at + strlen("MemTotal:"), NULL, 10);
	}
	if (f)
		fclose(f);
	return kib;
}

static json_t *one_node(const struct report *r, unsigned node)
{
	char path[80], cpus[256], text[400];
	int64_t kib = node_total(node);

	snprintf(path, sizeof(path), "/sys/devices/system/node/node%u/cpulist", node);
	if (!proc_line(path, cpus, sizeof(cpus)))
		return NULL;
	snprintf(text, sizeof(text), "node %u: CPUs %s, %" PRId64 " MiB", node,
		 *cpus ? cpus : "none", kib >> 10);
	advice(r, text);
	return json_pack("{s:i, s:s, s:I}", "node", (int)node, "cpus", cpus, "memory",
			 (json_int_t)kib * 1024);
}

/* The nodes of "0-1,4". */
static void nodes(struct report *r)
{
	json_t *list = json_array();
	char online[256], *at = online;

	if (!proc_line("/sys/devices/system/node/online", online, sizeof(online)))
		online[0] = 0;
	fact(r, "nodes", list, "memory nodes", "%s",
	     *online ? online : "the kernel knows of none: all memory is alike");
	while (*at) {
		unsigned long first = strtoul(at, &at, 10), last = first;

		if (*at == '-')
			last = strtoul(at + 1, &at, 10);
		for (; first <= last && first < 1024; first++)
			json_array_append_new(list, one_node(r, (unsigned)first));
		at += *at != 0;
	}
	if (json_array_size(list) > 1)
		advice(r, "a server is fastest on one node: --cpus with CPUs of the node that its "
			  "device is on");
}

/* ---- cpu ------------------------------------------------------------------------------------- */

static void cpu(struct report *r)
{
	long online = sysconf(_SC_NPROCESSORS_ONLN);
	cpu_set_t set;
	char model[128], list[256];
	int usable = sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : (int)online;

	proc_text("/proc/cpuinfo", "model name", model, sizeof(model));
	open_section(r, "cpu", "CPU");
	fact(r, "model", json_string(model), "model", "%s", model);
	fact(r, "cores", json_integer(online), "cores", "%ld", online);
	proc_text("/proc/self/status", "Cpus_allowed_list", list, sizeof(list));
	fact(r, "usable_cores", json_integer(usable), "usable", "%d: %s (what --cpus may name)",
	     usable, list);
	json_object_set_new(r->section, "usable", json_string(list));
	nodes(r);
	int rc = kern_isa_use(NULL);
	fact(r, "kernels", rc < 0 ? json_null() : json_string(kern_isa()), "update kernels", "%s",
	     rc < 0 ? err_text() : kern_isa());
	fact(r, "matrix_kernel", json_string(kern_gemm_core()), "matrix kernel",
	     "%s (the demo's, by OpenBLAS)", kern_gemm_core());
	if (usable < 2)
		advice(r,
		       "with one core a process that polls only keeps its peer waiting: --spin 0");
}

static void machine(struct report *r)
{
	struct utsname u = {0};

	uname(&u);
	open_section(r, "system", "System");
	fact(r, "gradslot", json_string(GS_VERSION), "gradslot", "%s", GS_VERSION);
	fact(r, "kernel", json_string(u.release), "kernel", "%s %s %s", u.sysname, u.release,
	     u.machine);
}

int cmd_doctor(int argc, char **argv)
{
	bool json = false;
	const struct opt opts[] = {
	    {"json", OPT_FLAG, &json, NULL, .help = "print one JSON object"},
	    {NULL},
	};
	const struct opt_command cmd = {
	    "gradslot doctor",
	    "Says what this machine can do for gradslot, and why not what it can't.",
	    "Exits with 0 if at least one transport can be used.\n", opts};

	int rc = opt_parse(&cmd, argc, argv);
	if (rc != OPT_RUN)
		return rc;
	struct report r = {.root = json_object(), .text = !json};
	machine(&r);
	int usable = transports(&r);
	memory(&r);
	huge_pages(&r);
	cpu(&r);
	forks(&r);
	if (!json)
		json_decref(r.root);
	else if (json_result(r.root) < 0)
		log_error("%s", err_text());
	return usable ? EXIT_OK : EXIT_FAILED;
}
