/* SPDX-License-Identifier: Apache-2.0
 *
 * Control messages as plain C structs, and their protobuf encoding (gradslot.proto). protobuf-c
 * stays behind this header. Decoding checks every bound that is stated here, so that what comes out
 * can be used without another look: strings end, counts fit, enums are known, floats are numbers.
 *
 * The conversation (T trainer, S server):
 *   T hello → (with a key: S challenge → T proof →) S welcome → T declare… (the last one says so)
 *   → S grant… (ditto) → T attach → S ready
 *   If ready says init: T writes initial weights (IMM_INIT), waits for their credits, T init_done.
 *   S start (weights are there and, in sync mode, enough trainers are) … work … T bye → S bye.
 * Within the work: T set_rate → S rate_set, T save → S saved, each one under way at a time; S notice,
 * at any time.
 * Either side may send error at any time; it is the last thing it sends.
 */
#ifndef GS_PROTO_WIRE_H
#define GS_PROTO_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WIRE_VERSION      3u
#define WIRE_MSG_MAX      4096u /* an encoded message, = TP_MSG_MAX */
#define WIRE_NAME_MAX     127u
#define WIRE_TEXT_MAX     511u
#define WIRE_DIMS_MAX     8u
#define WIRE_SETTINGS_MAX 16u
#define WIRE_SCHEDULE_MAX 255u
#define WIRE_PARAMS_MAX   2u /* in one declare or grant */
#define WIRE_NONCE_LEN    32u
#define WIRE_MAC_LEN      32u
#define WIRE_SESSION_LEN  16u

enum wire_kind {
	WIRE_HELLO = 1,
	WIRE_WELCOME,
	WIRE_DECLARE,
	WIRE_GRANT,
	WIRE_ATTACH,
	WIRE_READY,
	WIRE_INIT_DONE,
	WIRE_START,
	WIRE_BYE,
	WIRE_ERROR,
	WIRE_SET_RATE,
	WIRE_RATE_SET,
	WIRE_NOTICE,
	WIRE_CHALLENGE,
	WIRE_PROOF,
	WIRE_SAVE,
	WIRE_SAVED,
};

enum wire_mode { WIRE_SYNC = 1, WIRE_ASYNC, WIRE_SSP };

/* How a parameter gets its first values. */
enum wire_init { WIRE_INIT_TRAINER = 1, WIRE_INIT_CONSTANT, WIRE_INIT_UNIFORM, WIRE_INIT_NORMAL };

/* Of gradients on the wire, and of the weights that trainers read. */
enum wire_dtype { WIRE_F32, WIRE_BF16, WIRE_F16 };

/* How the gradients of several trainers become one. */
enum wire_reduce { WIRE_MEAN, WIRE_SUM, WIRE_WEIGHTED };

/* What becomes of a gradient with an infinity or a NaN. */
enum wire_nonfinite { WIRE_NONFINITE_APPLY, WIRE_NONFINITE_REJECT, WIRE_NONFINITE_SKIP };

enum wire_storage { WIRE_DENSE, WIRE_TABLE, WIRE_HASHED };

enum wire_error_code {
	WIRE_E_VERSION = 1, /* hello of another version */
	WIRE_E_RANK,        /* rank held by a live trainer */
	WIRE_E_FULL,        /* more trainers than the server was started for */
	WIRE_E_MISMATCH,    /* parameters are not what the server has */
	WIRE_E_MEMORY,      /* memory would not do: the text has the sum and the limit */
	WIRE_E_PROTOCOL,    /* the peer broke the protocol */
	WIRE_E_SHUTDOWN,    /* the server is stopping */
	WIRE_E_INTERNAL,
	WIRE_E_RANGE,    /* rank not below the number of trainers */
	WIRE_E_CAPACITY, /* a table is full */
	WIRE_E_ACCESS,   /* the key */
	WIRE_E_STORE,    /* no checkpoint could be written */
};

#define WIRE_RAILS_MAX 8u

struct wire_ref { /* a transport's reference to a region */
	uint64_t addr, len, key;
	uint32_t more; /* keys of further rails */
	uint64_t more_key[WIRE_RAILS_MAX - 1];
};

/* Names are printable ASCII; texts are any bytes but control characters (line ends and tabs are
 * allowed). */

struct wire_hello {
	uint32_t version; /* WIRE_VERSION; not checked here, so that the server can answer */
	int32_t rank;     /* -1: assign one */
	char name[WIRE_NAME_MAX + 1];
	bool has_nonce; /* the trainer has a key */
	uint8_t nonce[WIRE_NONCE_LEN];
	bool resumes; /* its connection was lost: `session` is what its welcome had said */
	uint8_t session[WIRE_SESSION_LEN];
};

struct wire_challenge {
	uint8_t nonce[WIRE_NONCE_LEN];
};

struct wire_proof {
	uint8_t mac[WIRE_MAC_LEN];
};

struct wire_welcome {
	uint32_t version, rank, trainers; /* trainers: what the server was started for */
	enum wire_mode mode;
	uint32_t staleness; /* of WIRE_SSP: 1 at least */
	uint64_t server;    /* this run of the server, never 0: another after a restart */
	uint8_t session[WIRE_SESSION_LEN];
	bool resumed; /* the session that hello named goes on: its rank has kept its place */
	bool has_mac;
	uint8_t mac[WIRE_MAC_LEN]; /* the server's proof */
};

struct wire_setting {
	char name[24]; /* 1 at least */
	double value;  /* finite */
};

struct wire_param {
	char name[WIRE_NAME_MAX + 1]; /* 1 at least; not __metadata__, which no file can store */
	uint32_t ndim;                /* 1..WIRE_DIMS_MAX */
	uint64_t dim[WIRE_DIMS_MAX];  /* each 1 at least; their product < 2^40 */
	char rule[24];                /* optimizer; 1 at least */
	uint32_t n_settings;
	struct wire_setting setting[WIRE_SETTINGS_MAX];
	enum wire_init init;
	double init_a, init_b; /* constant: a; uniform: a..b, a <= b; normal: mean a, deviation
				* b >= 0; all finite */
	uint64_t init_seed;
	char schedule[WIRE_SCHEDULE_MAX + 1]; /* of the learning rate; "": constant */
	enum wire_dtype grad_type, weight_type;
	enum wire_reduce reduce;
	enum wire_nonfinite nonfinite;
	enum wire_storage storage; /* tables have two dimensions, and seeded or constant values */
	/* Of tables, else 0: */
	/* Each of these times a row's elements is < 2^40. */
	uint32_t slot_rows;   /* rows in one slot: 1 at least */
	uint32_t push_rows;   /* rows in one push, over its slots: slot_rows at least */
	uint32_t pull_rows;   /* rows that a trainer's landing area holds: 1 at least */
	uint32_t admit_after; /* hashed: touches before a row is kept */
	uint64_t evict_after; /* hashed: updates of the table after which an untouched row may go;
			       * 0: never */
};

struct wire_declare {
	bool last;
	uint32_t n; /* 0 only when last */
	struct wire_param param[WIRE_PARAMS_MAX];
};

/* The codec does not judge what is in a place, or whether a ref can be reached: whoever is granted
 * memory does. */
struct wire_place { /* of one parameter; in the order of declaration */
	uint64_t elems, block_elems, weights_off, slots_off, slots_stride;
	uint32_t first_block, blocks;
	uint64_t heads_off;   /* in the slots: of its push heads, heads_stride apart */
	uint64_t landing_off; /* in the mailbox */
	uint64_t request_off; /* in the slots: of its rows' requests; tables only */
	uint64_t heads_stride;
	uint32_t pack; /* which it belongs to, from 1; 0: none */
};

struct wire_grant {
	bool last;
	uint32_t n; /* 0 only when last */
	struct wire_place place[WIRE_PARAMS_MAX];
	/* only in the last: */
	uint32_t slots, blocks; /* ring of each block; blocks in all */
	struct wire_ref weights, slot_mem;
};

struct wire_attach {
	struct wire_ref mailbox;
};

struct wire_ready {
	bool init; /* this trainer is asked for the weights of the WIRE_INIT_TRAINER parameters */
};

struct wire_start {
	uint64_t step; /* sync: the first step of this trainer */
};

struct wire_set_rate {
	uint32_t param;
	double rate; /* finite, 0 at least */
};

struct wire_rate_set {
	uint32_t param;
};

struct wire_notice {
	uint32_t param;
	enum wire_error_code code;
	uint64_t refused; /* pushes that were refused so far, which this tells of */
	char text[WIRE_TEXT_MAX + 1];
};

struct wire_saved {
	uint64_t step;
	bool failed; /* then code and text say why */
	enum wire_error_code code;
	char text[WIRE_TEXT_MAX + 1];
};

struct wire_error {
	enum wire_error_code code;
	char text[WIRE_TEXT_MAX + 1];
};

struct wire_msg {
	enum wire_kind kind;
	union {
		struct wire_hello hello;
		struct wire_welcome welcome;
		struct wire_declare declare;
		struct wire_grant grant;
		struct wire_attach attach;
		struct wire_ready ready;
		struct wire_start start;
		struct wire_error error;
		struct wire_set_rate set_rate;
		struct wire_rate_set rate_set;
		struct wire_notice notice;
		struct wire_challenge challenge;
		struct wire_proof proof;
		struct wire_saved saved;
	};
};

/* Encodes into `buf`. Returns the length, or -EMSGSIZE (more than cap), -EINVAL (a bound of this
 * header is broken; the text names it). No allocation. */
int wire_encode(const struct wire_msg *msg, void *buf, size_t cap);

/* Decodes and checks; `out` is untouched on failure. Errors: -EPROTO (not a message, cut short,
 * unknown kind, a field out of its bounds: the text names the field, the value and the limit),
 * -ENOMEM (it unpacks to more than any message of ours: the memory for it is on the stack, and
 * bounded). */
int wire_decode(const void *buf, size_t len, struct wire_msg *out);

/* What kind an encoded message claims to be, by how it begins; wire_decode refuses one that is
 * another. 0: none that is known. */
enum wire_kind wire_peek(const void *buf, size_t len);

const char *wire_kind_name(enum wire_kind kind);
/* The negative errno that stands for an error code in the library's API. */
int wire_error_errno(enum wire_error_code code);

#endif
