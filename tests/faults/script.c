/* SPDX-License-Identifier: Apache-2.0
 *
 * From text to rules.
 */
#include "script.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"

#define BIT(at) (1u << (at))

enum { LONGEST = 128, CHUNK_LEAST = 64 };

static const char *const points[FAULT_POINTS] = {
    [AT_DONE] = "done",     [AT_IMM] = "imm",           [AT_MSG] = "msg",
    [AT_ROOM] = "room",     [AT_CLOSED] = "closed",     [AT_CONNS] = "conns",
    [AT_POST] = "post",     [AT_POST_IMM] = "post-imm", [AT_POST_READ] = "post-read",
    [AT_SEND] = "send",     [AT_LISTEN] = "listen",     [AT_CONNECT] = "connect",
    [AT_ACCEPT] = "accept", [AT_EXPOSE] = "expose",     [AT_ATTACH] = "attach",
    [AT_CLOSE] = "close",
};

static const unsigned polled =
    BIT(AT_DONE) | BIT(AT_IMM) | BIT(AT_MSG) | BIT(AT_ROOM) | BIT(AT_CLOSED);
static const unsigned posts = BIT(AT_POST) | BIT(AT_POST_IMM) | BIT(AT_POST_READ) | BIT(AT_SEND);
static const unsigned calls = BIT(AT_LISTEN) | BIT(AT_CONNECT) | BIT(AT_ACCEPT) | BIT(AT_EXPOSE) |
			      BIT(AT_ATTACH) | BIT(AT_CLOSE);

static const struct {
	const char *name;
	unsigned at;  /* where it may act */
	bool us, err; /* keys that it needs */
} actions[FAULT_ACTIONS] = {
    [FAULT_DELAY] = {"delay", polled | posts | calls, true, false},
    [FAULT_REORDER] = {"reorder",
		       BIT(AT_DONE) | BIT(AT_ROOM) | BIT(AT_CONNS) | BIT(AT_IMM) | BIT(AT_MSG),
		       false, false},
    [FAULT_DROP] = {"drop", BIT(AT_DONE) | BIT(AT_IMM) | BIT(AT_MSG) | BIT(AT_ROOM) | posts, false,
		    false},
    [FAULT_DUP] = {"dup", BIT(AT_DONE) | BIT(AT_IMM) | BIT(AT_MSG), false, false},
    [FAULT_TRUNCATE] = {"truncate", BIT(AT_IMM) | BIT(AT_MSG), false, false},
    [FAULT_FAIL] = {"fail", (posts | calls) & ~BIT(AT_CLOSE), false, true},
    [FAULT_FREEZE] = {"freeze", polled | posts, false, false},
    [FAULT_KILL] = {"kill", polled | posts | calls, false, false},
};

static const struct {
	const char *name;
	int err;
} errors[] = {
    {"EAGAIN", EAGAIN},
    {"ENOMEM", ENOMEM},
    {"EINVAL", EINVAL},
    {"EIO", EIO},
    {"EACCES", EACCES},
    {"EPROTO", EPROTO},
    {"ENODEV", ENODEV},
    {"ENOTCONN", ENOTCONN},
    {"ETIMEDOUT", ETIMEDOUT},
    {"EMFILE", EMFILE},
    {"ECONNREFUSED", ECONNREFUSED},
    {"EADDRINUSE", EADDRINUSE},
    {"EUSERS", EUSERS},
    {"EHOSTUNREACH", EHOSTUNREACH},
    {"ECONNRESET", ECONNRESET},
};

const char *fault_action_name(enum fault_action action)
{
	return actions[action].name;
}

const char *fault_point_name(enum fault_point at)
{
	return points[at];
}

/* ---- words ----------------------------------------------------------------------------------- */

static int whole_number(const char *word, const char *text, uint64_t least, uint64_t most,
			uint64_t *out)
{
	char *end;

	errno = 0;
	unsigned long long n = strtoull(text, &end, 10);

	if (*text < '0' || *text > '9' || *end || errno || n < least || n > most)
		return err_set(EINVAL, "'%s': a whole number from %llu to %llu is needed", word,
			       (unsigned long long)least, (unsigned long long)most);
	*out = n;
	return 0;
}

static int probability(const char *word, const char *text, double *out)
{
	char *end;
	double p = strtod(text, &end);

	if (end == text || *end || !(p > 0 && p <= 1))
		return err_set(EINVAL, "'%s': a probability above 0, up to 1, is needed", word);
	*out = p;
	return 0;
}

/* "poll-done" and "done" are one. */
static int point_of(const char *word, enum fault_point *out)
{
	const char *name = strncmp(word, "poll-", 5) == 0 ? word + 5 : word;

	for (int i = 0; i < FAULT_POINTS; i++)
		if (strcmp(name, points[i]) == 0 && (name == word || (BIT(i) & polled))) {
			*out = (enum fault_point)i;
			return 0;
		}
	return err_set(EINVAL, "'%s': there is no such point", word);
}

static int error_of(const char *word, const char *name, int *out)
{
	for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++)
		if (strcmp(name, errors[i].name) == 0) {
			*out = errors[i].err;
			return 0;
		}
	return err_set(EINVAL, "'%s': no such error is known here", word);
}

/* ---- rules ----------------------------------------------------------------------------------- */

struct seen {
	bool at, n, p, us, err;
};

static int rule_key(const char *word, struct fault_rule *r, struct seen *seen)
{
	const char *value = strchr(word, '=') + 1;
	size_t len = (size_t)(value - word - 1);
	uint64_t us = 0;
	int rc;

	if (len == 2 && !strncmp(word, "at", 2)) {
		seen->at = true;
		return point_of(value, &r->at);
	}
	if (len == 1 && *word == 'n') {
		seen->n = true;
		return whole_number(word, value, 1, UINT32_MAX, &r->n);
	}
	if (len == 1 && *word == 'p') {
		seen->p = true;
		return probability(word, value, &r->p);
	}
	if (len == 2 && !strncmp(word, "us", 2)) {
		seen->us = true;
		rc = whole_number(word, value, 1, 60000000, &us);
		if (rc == 0)
			r->us = (uint32_t)us;
		return rc;
	}
	if (len == 3 && !strncmp(word, "err", 3)) {
		seen->err = true;
		return error_of(word, value, &r->err);
	}
	return err_set(EINVAL, "'%s': the keys are at, n, p, us and err", word);
}

static int check_rule(const char *item, const struct fault_rule *r, const struct seen *seen)
{
	const char *name = actions[r->action].name;

	if (!seen->at)
		return err_set(EINVAL, "'%s': where is not said", item);
	if (!(actions[r->action].at & BIT(r->at)))
		return err_set(EINVAL, "'%s': %s does not act on %s", item, name, points[r->at]);
	if (seen->n && seen->p)
		return err_set(EINVAL, "'%s': n and p exclude one another", item);
	if (seen->us != actions[r->action].us)
		return err_set(EINVAL, "'%s': us is for delay, which needs it", item);
	if (seen->err != actions[r->action].err)
		return err_set(EINVAL, "'%s': err is for fail, which needs it", item);
	if (r->err == EAGAIN && !(BIT(r->at) & posts))
		return err_set(EINVAL, "'%s': EAGAIN is for posts and sends", item);
	return 0;
}

static int parse_rule(const char *item, char **rest, enum fault_action action,
		      struct fault_script *out)
{
	struct fault_rule r = {.action = action, .p = 1};
	bool says_peer = action == FAULT_FREEZE;
	struct seen seen = {0};
	int rc = 0;

	if (out->n == FAULT_RULES)
		return err_set(EINVAL, "'%s': no more than %d rules", item, FAULT_RULES);
	for (char *word; rc == 0 && (word = strtok_r(NULL, " \t\n", rest));) {
		if (strchr(word, '=')) {
			rc = rule_key(word, &r, &seen);
		} else if (says_peer && strcmp(word, "peer") == 0) {
			says_peer = false;
		} else if (!seen.at && action != FAULT_FREEZE && action != FAULT_KILL) {
			seen.at = true;
			rc = point_of(word, &r.at);
		} else {
			rc = err_set(EINVAL, "'%s': '%s' is one word too many", item, word);
		}
	}
	if (rc == 0 && says_peer)
		rc = err_set(EINVAL, "'%s': it is 'freeze peer'", item);
	if (rc == 0)
		rc = check_rule(item, &r, &seen);
	if (rc == 0)
		out->rule[out->n++] = r;
	return rc;
}

/* ---- items ----------------------------------------------------------------------------------- */

static int parse_cap(const char *item, char **rest, struct fault_script *out)
{
	char *word = strtok_r(NULL, " \t\n", rest);
	uint64_t chunk = 0;
	int rc;

	if (!word || strncmp(word, "chunk=", 6) != 0 || strtok_r(NULL, " \t\n", rest))
		return err_set(EINVAL, "'%s': it is 'cap chunk=BYTES'", item);
	rc = whole_number(word, word + 6, CHUNK_LEAST, UINT32_MAX, &chunk);
	if (rc == 0)
		out->chunk = (uint32_t)chunk;
	return rc;
}

static int parse_item(const char *item, struct fault_script *out)
{
	char copy[LONGEST], *rest = NULL;
	char *word;

	snprintf(copy, sizeof(copy), "%s", item);
	word = strtok_r(copy, " \t\n", &rest);
	if (!word)
		return 0;
	if (strcmp(word, "cap") == 0)
		return parse_cap(item, &rest, out);
	for (int i = 0; i < FAULT_ACTIONS; i++)
		if (strcmp(word, actions[i].name) == 0)
			return parse_rule(item, &rest, (enum fault_action)i, out);
	if (strtok_r(NULL, " \t\n", &rest))
		return err_set(EINVAL, "'%s': there is no action '%s'", item, word);
	if (strncmp(word, "seed=", 5) == 0)
		return whole_number(word, word + 5, 0, UINT64_MAX, &out->seed);
	if (strcmp(word, "noimm") != 0)
		return err_set(EINVAL, "'%s' is not an item of a script", item);
	out->noimm = true;
	return 0;
}

int fault_script_parse(const char *text, struct fault_script *out)
{
	struct fault_script script = {.seed = 1};
	int rc = 0;

	while (rc == 0 && *text) {
		size_t len = strcspn(text, ";");
		char item[LONGEST];

		if (len >= sizeof(item))
			return err_set(EINVAL, "an item of %zu bytes: %d at most", len,
				       LONGEST - 1);
		memcpy(item, text, len);
		item[len] = 0;
		rc = parse_item(item + strspn(item, " \t\n"), &script);
		text += len + (text[len] == ';');
	}
	if (rc == 0)
		*out = script;
	return rc;
}
