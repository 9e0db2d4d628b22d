/* SPDX-License-Identifier: Apache-2.0
 *
 * Transport URIs, parsed strictly: what is not understood is an error, never ignored.
 */
#include "transport/uri.h"

#include "base/err.h"
#include "transport/transport.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define NAME_CHARS "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-"

/* Part of a URI, not terminated. */
struct span {
	const char *at;
	size_t len;
};

static bool span_is(struct span s, const char *word)
{
	return s.len == strlen(word) && !memcmp(s.at, word, s.len);
}

static bool span_only(struct span s, const char *chars)
{
	for (size_t i = 0; i < s.len; i++)
		if (!s.at[i] || !strchr(chars, s.at[i]))
			return false;
	return s.len > 0;
}

static bool span_copy(struct span s, char *to, size_t room)
{
	if (s.len >= room)
		return false;
	memcpy(to, s.at, s.len);
	to[s.len] = 0;
	return true;
}

/* Decimal digits only: no sign, no blanks, no more digits than the limit could have. */
static bool span_number(struct span s, long max, long *out)
{
	long n = 0;

	if (!span_only(s, "0123456789") || s.len > 9)
		return false;
	for (size_t i = 0; i < s.len; i++)
		n = n * 10 + (s.at[i] - '0');
	if (n > max)
		return false;
	*out = n;
	return true;
}

static int parse_shm(const char *text, const char *rest, struct tp_uri *u)
{
	struct span name = {rest, strlen(rest)};

	if (!span_only(name, NAME_CHARS) || !span_copy(name, u->name, sizeof(u->name)))
		return err_set(
		    EINVAL,
		    "'%s': the name after 'shm:' is 1 to %d letters, digits, '.', '_' or "
		    "'-', e.g. shm:training",
		    text, URI_NAME_MAX);
	return 0;
}

static int parse_bracketed(const char *text, struct span host, char *to)
{
	char bare[URI_HOST_MAX + 1];
	struct in6_addr ignored;

	if (!span_copy(host, to, sizeof(bare)))
		return err_set(EINVAL, "'%s': the address in brackets is too long", text);
	/* A zone ("fe80::1%eth0") is for getaddrinfo to look up. */
	memcpy(bare, to, sizeof(bare));
	char *zone = strchr(bare, '%');
	if (zone) {
		struct span z = {zone + 1, strlen(zone + 1)};

		if (!span_only(z, NAME_CHARS))
			return err_set(EINVAL,
				       "'%s': after '%%' the name of an interface is needed", text);
		*zone = 0;
	}
	if (inet_pton(AF_INET6, bare, &ignored) != 1)
		return err_set(EINVAL, "'%s': '%s' is not an IPv6 address", text, to);
	return 0;
}

static int parse_host(const char *text, struct span host, char *to)
{
	if (!span_is(host, "*") && !span_only(host, NAME_CHARS))
		return err_set(
		    EINVAL,
		    "'%s': the host '%.*s' is not a name, an IPv4 address, an IPv6 address "
		    "in brackets or '*'",
		    text, (int)host.len, host.at);
	if (!span_copy(host, to, URI_HOST_MAX + 1))
		return err_set(EINVAL, "'%s': the host has %zu bytes, the limit is %d", text,
			       host.len, URI_HOST_MAX);
	return 0;
}

static int too_many(const char *text, const char *what)
{
	return err_set(EINVAL, "'%s': more than %d %s; a connection has no more rails", text,
		       TP_RAILS_MAX, what);
}

/* DEV[,DEV…] */
static int parse_devs(const char *text, struct span key, struct span list, struct tp_uri *u)
{
	unsigned n = 0;

	for (;;) {
		const char *comma = memchr(list.at, ',', list.len);
		struct span one = {list.at, comma ? (size_t)(comma - list.at) : list.len};

		if (n == TP_RAILS_MAX)
			return too_many(text, "devices");
		if (!span_only(one, NAME_CHARS) ||
		    !span_copy(one, n ? u->next_dev[n - 1] : u->dev, sizeof(u->dev)))
			return err_set(EINVAL,
				       "'%s': dev= needs an RDMA device's name, as in `rdma link`, "
				       "or several with commas between them",
				       text);
		n++;
		if (!comma)
			break;
		list = (struct span){comma + 1, list.len - one.len - 1};
	}
	u->more_devs = (uint8_t)(n - 1);
	return 0;
}

static int parse_number(const char *text, struct span key, struct span value, long min, long max,
			const char *what, int *out)
{
	long n;

	if (!span_number(value, max, &n) || n < min)
		return err_set(EINVAL, "'%s': %.*s=%.*s: %s is %ld to %ld", text, (int)key.len,
			       key.at, (int)value.len, value.at, what, min, max);
	*out = (int)n;
	return 0;
}

static int parse_qps(const char *text, struct span key, struct span value, struct tp_uri *u)
{
	int qps, rc = parse_number(text, key, value, 1, TP_RAILS_MAX, "the number of queue pairs", &qps);

	if (rc == 0)
		u->qps = (uint8_t)qps;
	return rc;
}

static int parse_mtu(const char *text, struct span key, struct span value, struct tp_uri *u)
{
	if (parse_number(text, key, value, 256, 4096, "the path MTU", &u->mtu) < 0)
		return -EINVAL;
	if (u->mtu & (u->mtu - 1))
		return err_set(EINVAL, "'%s': mtu=%d: it is 256, 512, 1024, 2048 or 4096", text,
			       u->mtu);
	return 0;
}

/* COUNT/USEC */
static int parse_moderation(const char *text, struct span key, struct span value, struct tp_uri *u)
{
	const char *slash = memchr(value.at, '/', value.len);
	size_t len = slash ? (size_t)(slash - value.at) : 0;
	struct span count = {value.at, len}, usec = {value.at + len + 1, value.len - len - 1};

	if (!slash)
		return err_set(EINVAL,
			       "'%s': cq_mod=%.*s: it is COUNT/USEC, as in cq_mod=16/10: a sleeper "
			       "is woken after so many completions, or so many µs after the first",
			       text, (int)value.len, value.at);
	int rc = parse_number(text, key, count, 1, 65535, "the count", &u->tuning.cq_count);

	return rc < 0 ? rc
		      : parse_number(text, key, usec, 1, 65535, "the time in µs",
				     &u->tuning.cq_usec);
}

/* Those without `parse` are a number, at `at` in struct tp_uri. */
static const struct option {
	const char *key;
	int (*parse)(const char *text, struct span key, struct span value, struct tp_uri *u);
	size_t at;
	long min, max;
	const char *what;
} options[] = {
    {"dev", parse_devs, 0, 0, 0, NULL},
    {"qps", parse_qps, 0, 0, 0, NULL},
    {"gid", NULL, offsetof(struct tp_uri, gid), 0, 65535, "a GID index"},
    {"tc", NULL, offsetof(struct tp_uri, tc), 0, 255, "the traffic class"},
    {"sl", NULL, offsetof(struct tp_uri, sl), 0, 15, "the service level"},
    {"mtu", parse_mtu, 0, 0, 0, NULL},
    {"timeout", NULL, offsetof(struct tp_uri, tuning.timeout), 0, 31,
     "the ACK timeout's exponent"},
    {"retry", NULL, offsetof(struct tp_uri, tuning.retry), 0, 7, "the number of retries"},
    {"rnr", NULL, offsetof(struct tp_uri, tuning.rnr), 0, 7, "the number of RNR retries"},
    {"rnr_timer", NULL, offsetof(struct tp_uri, tuning.rnr_timer), 0, 31, "the RNR timer's code"},
    {"depth", NULL, offsetof(struct tp_uri, tuning.depth), 1, URI_DEPTH_MAX, "the depth"},
    {"inline", NULL, offsetof(struct tp_uri, tuning.in_line), 0, URI_INLINE_MAX,
     "the longest inline payload"},
    {"ro", NULL, offsetof(struct tp_uri, tuning.relaxed), 0, 1, "relaxed ordering"},
    {"cq_mod", parse_moderation, 0, 0, 0, NULL},
};

#define OPTIONS (sizeof(options) / sizeof(*options))

static int unknown_option(const char *text, struct span key)
{
	char all[256] = "";

	for (size_t i = 0, n = 0; i < OPTIONS; i++)
		n += (size_t)snprintf(all + n, sizeof(all) - n, "%s%s", i ? ", " : "",
				      options[i].key);
	return err_set(EINVAL, "'%s': unknown option '%.*s'; there are %s", text, (int)key.len,
		       key.at, all);
}

static int parse_pair(const char *text, struct span key, struct span value, struct tp_uri *u,
		      unsigned *seen)
{
	unsigned k = 0;

	while (k < OPTIONS && !span_is(key, options[k].key))
		k++;
	if (k == OPTIONS)
		return unknown_option(text, key);
	if (*seen & 1u << k)
		return err_set(EINVAL, "'%s': option '%s' is given twice", text, options[k].key);
	*seen |= 1u << k;

	const struct option *o = &options[k];

	if (o->parse)
		return o->parse(text, key, value, u);
	return parse_number(text, key, value, o->min, o->max, o->what,
			    (int *)(void *)((char *)u + o->at));
}

static int parse_query(const char *text, const char *query, struct tp_uri *u)
{
	unsigned seen = 0;

	for (;;) {
		size_t len = strcspn(query, "&");
		const char *eq = memchr(query, '=', len);

		if (!eq)
			return err_set(EINVAL, "'%s': '%.*s' after '?' is not option=value", text,
				       (int)len, query);
		struct span key = {query, (size_t)(eq - query)};
		struct span value = {eq + 1, len - key.len - 1};
		int rc = parse_pair(text, key, value, u, &seen);

		if (rc < 0)
			return rc;
		if (!query[len])
			return 0;
		query += len + 1;
	}
}

/* One host; *after is behind it. */
static int parse_one_host(const char *text, const char *at, char *to, const char **after)
{
	if (*at != '[') {
		size_t len = strcspn(at, ":?,");

		*after = at + len;
		return parse_host(text, (struct span){at, len}, to);
	}
	const char *end = strchr(at, ']');

	if (!end)
		return err_set(EINVAL, "'%s': '[' without ']'", text);
	*after = end + 1;
	return parse_bracketed(text, (struct span){at + 1, (size_t)(end - at - 1)}, to);
}

/* HOST[,HOST…] */
static int parse_hosts(const char *text, const char *at, struct tp_uri *u, const char **after)
{
	unsigned n = 0;

	for (;; at = *after + 1) {
		if (n == TP_RAILS_MAX)
			return too_many(text, "hosts");
		char *to = n ? u->next_host[n - 1] : u->host;
		int rc = parse_one_host(text, at, to, after);

		if (rc < 0)
			return rc;
		if (n && (!strcmp(to, "*") || !strcmp(u->host, "*")))
			return err_set(EINVAL, "'%s': '*' stands alone: it is every address", text);
		n++;
		if (**after != ',')
			break;
	}
	u->more_hosts = (uint8_t)(n - 1);
	return 0;
}

/* Every host and device has its rail. */
static int settle_rails(const char *text, struct tp_uri *u)
{
	unsigned hosts = 1u + u->more_hosts, devs = 1u + u->more_devs;
	unsigned most = hosts > devs ? hosts : devs;

	if (u->qps && u->qps < most)
		return err_set(EINVAL,
			       "'%s': qps=%u, with %u hosts and %u devices: it must be %u at least",
			       text, u->qps, hosts, devs, most);
	if (!u->qps && most > 1)
		u->qps = (uint8_t)most;
	return 0;
}

void tp_uri_rail(const struct tp_uri *uri, unsigned rail, struct tp_uri *out)
{
	unsigned host = rail % (1u + uri->more_hosts), dev = rail % (1u + uri->more_devs);

	*out = *uri;
	out->qps = out->more_hosts = out->more_devs = 0;
	if (host)
		memcpy(out->host, uri->next_host[host - 1], sizeof(out->host));
	if (dev)
		memcpy(out->dev, uri->next_dev[dev - 1], sizeof(out->dev));
}

static int parse_rdma(const char *text, const char *rest, struct tp_uri *u)
{
	const char *after = rest;
	long port;
	int rc = parse_hosts(text, rest, u, &after);

	if (rc < 0)
		return rc;

	if (*after != ':')
		return err_set(EINVAL, "'%s': a port is needed, as in rdma://%s:7471", text,
			       u->host);
	struct span digits = {after + 1, strcspn(after + 1, "?")};
	if (!span_number(digits, 65535, &port))
		return err_set(EINVAL,
			       "'%s': the port '%.*s' is not 0 to 65535 (an IPv6 address goes in "
			       "brackets)",
			       text, (int)digits.len, digits.at);
	u->port = (uint16_t)port;
	after = digits.at + digits.len;
	rc = *after ? parse_query(text, after + 1, u) : 0;
	return rc < 0 ? rc : settle_rails(text, u);
}

int tp_uri_parse(const char *text, struct tp_uri *out)
{
	struct tp_uri u = {.gid = -1, .tc = -1, .sl = -1, .tuning = TP_TUNING_DEFAULT};
	int rc;

	if (!text)
		return err_set(EINVAL, "no transport URI given");
	if (!strncmp(text, "shm:", 4)) {
		memcpy(u.scheme, "shm", 4);
		rc = parse_shm(text, text + 4, &u);
	} else if (!strncmp(text, "rdma://", 7)) {
		memcpy(u.scheme, "rdma", 5);
		rc = parse_rdma(text, text + 7, &u);
	} else {
		rc = err_set(EINVAL, "'%s': a transport URI is shm:NAME or rdma://HOST:PORT", text);
	}
	if (rc == 0)
		*out = u;
	return rc;
}

static bool host_is_local(const char *host)
{
	struct in_addr v4;
	struct in6_addr v6;

	if (!strcasecmp(host, "localhost"))
		return true;
	if (inet_pton(AF_INET, host, &v4) == 1)
		return ntohl(v4.s_addr) >> 24 == 127;
	if (inet_pton(AF_INET6, host, &v6) != 1)
		return false;
	return IN6_IS_ADDR_LOOPBACK(&v6) || (IN6_IS_ADDR_V4MAPPED(&v6) && v6.s6_addr[12] == 127);
}

bool tp_uri_is_local(const char *text)
{
	struct tp_uri u;

	if (tp_uri_parse(text, &u) < 0)
		return false;
	return !strcmp(u.scheme, "shm") || (!u.more_hosts && host_is_local(u.host));
}
