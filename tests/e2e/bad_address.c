/* SPDX-License-Identifier: Apache-2.0
 *
 * Addresses: in use, wrong, of nobody. Each answer comes in time.
 */
#include "cases.h"
#include "harness.h"
#include "transport/transport.h"

START_TEST(in_use)
{
	struct srv_options opt = bed_options(1, SRV_SYNC);
	struct srv *second = NULL;
	gs_trainer *t;
	char uri[256];
	struct bed bed;

	bed_start(&bed, &opt);
	snprintf(uri, sizeof(uri), "%s", bed.uri);
	opt.listen[0] = uri;
	fails(srv_create(&opt, &second), EADDRINUSE, uri);
	must(!second, "an output was touched");
	t = connect_as(bed.uri, 0);
	gs_close(t);
	bed_stop(&bed);
	/* Free again. */
	bed_start(&bed, &opt);
	must(strcmp(bed.uri, uri) == 0, "%s", bed.uri);
	bed_stop(&bed);
}
END_TEST

/* The connection ends with one of these, in time, and with a text that names the address. */
static void nobody_at(const char *uri, uint32_t timeout_ms, const int *errors, const char *word)
{
	struct gs_options o = trainer_options(uri, -1);
	uint64_t begin = clock_ns();
	gs_trainer *t = NULL;
	bool known = false;
	int rc;

	o.timeout_ms = timeout_ms;
	rc = gs_connect(&o, &t);
	for (int i = 0; errors[i]; i++)
		known |= rc == -errors[i];
	must(known, "%s: %d: %s", uri, rc, err_text());
	must(clock_ns() - begin < (timeout_ms + scaled(1500, 6000)) * NS_PER_MS,
	     "%s: it took %llu ms", uri, (unsigned long long)((clock_ns() - begin) / NS_PER_MS));
	must(strstr(err_text(), word), "no \"%s\" in \"%s\"", word, err_text());
	must(!t, "an output was touched");
}

START_TEST(of_nobody)
{
	static const int refused[] = {ECONNREFUSED, ENOENT, 0};
	static const int unreachable[] = {EHOSTUNREACH, ETIMEDOUT, ENETUNREACH,
					  ECONNREFUSED, ENODEV,    0};
	static const int unknown[] = {ENOENT, EHOSTUNREACH, ETIMEDOUT, ENODEV, 0};

	nobody_at("shm:nobody-is-there", 200, refused, "nobody-is-there");
	if (tp_available("rdma") == 0) {
		char uri[256];

		snprintf(uri, sizeof(uri), "%.*s:1", (int)(strrchr(e2e_uri, ':') - e2e_uri),
			 e2e_uri);
		if (!over_shm())
			nobody_at(uri, 500, refused, ":1");
		nobody_at("rdma://192.0.2.1:18515", 500, unreachable, "192.0.2.1");
		nobody_at("rdma://no-such-host.invalid:18515", 500, unknown, "no-such-host");
	} else {
		static const int none[] = {ENODEV, 0};

		nobody_at("rdma://192.0.2.1:18515", 500, none, "RDMA");
	}
}
END_TEST

START_TEST(that_do_not_parse)
{
	static const int invalid[] = {EINVAL, 0};
	static const char *const uris[] = {"",
					   "nowhere",
					   "shm:",
					   "rdma://host",
					   "rdma://:",
					   "rdma://h:99999",
					   "rdma://h:1?x=",
					   "tcp://host:1234",
					   "rdma://[::1:5"};
	struct srv *srv = NULL;

	for (unsigned i = 0; i < sizeof(uris) / sizeof(uris[0]); i++) {
		struct srv_options opt = bed_options(1, SRV_SYNC);

		nobody_at(uris[i], 500, invalid, uris[i]);
		opt.listen[0] = uris[i];
		fails(srv_create(&opt, &srv), EINVAL, uris[i]);
	}
}
END_TEST

/* A trainer may be started before its server. */
static void *come_later(void *arg)
{
	struct srv_options opt = bed_options(1, SRV_SYNC);
	struct bed *bed = arg;

	nap_us(100000);
	bed_start(bed, &opt);
	return NULL;
}

START_TEST(of_a_server_to_come)
{
	struct bed bed;
	pthread_t thread;
	gs_trainer *t;

	if (!over_shm())
		return; /* its port is not known before */
	pthread_create(&thread, NULL, come_later, &bed);
	t = connect_as(e2e_uri, 0);
	pthread_join(thread, NULL);
	declare_line(t, "w", 3, 1, 0);
	ok(gs_start(t));
	leave(t);
	bed_stop(&bed);
}
END_TEST

TCase *bad_address_case(void)
{
	TCase *t = e2e_wire_case("bad_address");

	tcase_add_test(t, in_use);
	tcase_add_test(t, of_nobody);
	tcase_add_test(t, that_do_not_parse);
	tcase_add_test(t, of_a_server_to_come);
	return t;
}
