/* SPDX-License-Identifier: Apache-2.0
 *
 * Bad trainers, in processes of their own: they break the protocol now and then, write what the
 * server reads while it reads it, and leave or don't.
 */
#include "hostile.h"

#include <stdatomic.h>
#include <unistd.h>

#include "child.h"

static size_t grad_size(const struct wire_param *p)
{
	return p->grad_type == WIRE_F32 ? 4 : 2;
}

static bool over(struct hostile_bad *b)
{
	raw_poll(&b->r);
	b->r.first = b->r.last;
	return b->r.closed;
}

bool hostile_next(struct hostile_bad *b, enum wire_kind kind, struct wire_msg *msg)
{
	for (;;) {
		raw_poll(&b->r);
		while (b->r.first != b->r.last) {
			*msg = b->r.inbox[b->r.first++ % 16];
			if (msg->kind == kind)
				return true;
			if (msg->kind == WIRE_ERROR)
				return false;
		}
		if (b->r.closed)
			return false;
		tp_cq_wait(b->r.cq, 5);
	}
}

static bool bad_join(struct hostile_bad *b, const char *uri)
{
	struct raw *r = &b->r;
	struct wire_msg msg;

	raw_connect(r, uri, 0);
	r->deaf = true;
	raw_hello(r, -1);
	if (!hostile_next(b, WIRE_WELCOME, &msg))
		return false;
	for (uint32_t i = 0; i < b->model.n; i += WIRE_PARAMS_MAX) {
		struct wire_msg d = {.kind = WIRE_DECLARE};

		for (; d.declare.n < WIRE_PARAMS_MAX && i + d.declare.n < b->model.n; d.declare.n++)
			d.declare.param[d.declare.n] = b->model.p[i + d.declare.n];
		d.declare.last = i + d.declare.n == b->model.n;
		raw_send(r, &d);
	}
	do {
		if (!hostile_next(b, WIRE_GRANT, &msg))
			return false;
		r->grant = msg.grant;
		memcpy(r->place + r->n_places, msg.grant.place, msg.grant.n * sizeof(r->place[0]));
		r->n_places += msg.grant.n;
	} while (!msg.grant.last);
	r->slots = r->grant.slots;
	r->blocks = r->grant.blocks;
	/* As long as any landing area is. */
	r->place[r->n_places - 1].elems += 65536;
	raw_attach(r, 0);
	r->place[r->n_places - 1].elems -= 65536;
	if (!hostile_next(b, WIRE_READY, &msg) || !hostile_next(b, WIRE_START, &msg))
		return false;
	b->step = msg.start.step;
	b->mem = tp_remote_map(r->slot_mem);
	return true;
}

static uint32_t odd_count(uint64_t *rng, uint32_t limit)
{
	const uint32_t n[] = {0, 1, limit, limit + 1, UINT32_MAX, UINT32_MAX / 2 + 1, limit / 2};

	return n[rnd(rng, 7)];
}

static int64_t odd_id(uint64_t *rng, const struct wire_param *p)
{
	const int64_t id[] = {0,         -1,        (int64_t)p->dim[0], (int64_t)p->dim[0] - 1,
			      INT64_MIN, INT64_MAX, (int64_t)1 << 40};

	return id[rnd(rng, 7)];
}

/* Over shm: changes something that the server may be about to read, or be reading. (Races are
 * meant: ThreadSanitizer is not told.) */
__attribute__((no_sanitize("thread"))) static void scribble(struct hostile_bad *b, uint64_t *rng,
							    bool mildly)
{
	static const float odd[] = {0, 1, -1, 3e38f, 1e-38f, 0x1p60f, 0x1p-60f, __builtin_nanf("")};
	uint32_t i = rnd(rng, b->model.n), slot = rnd(rng, b->r.slots);
	const struct wire_place *place = &b->r.place[i];
	const struct wire_param *p = &b->model.p[i];
	struct layout_push_head *head =
	    (void *)(b->mem + place->heads_off + slot * place->heads_stride);
	uint8_t *data = b->mem + place->slots_off + slot * place->slots_stride;
	bool table = p->storage != WIRE_DENSE;
	struct layout_request_head *request =
	    (struct layout_request_head *)(void *)(b->mem + place->request_off);

	switch (rnd(rng, table ? 8 : 4)) {
	case 0:
		__atomic_store_n(&head->seen, (uint64_t)rnd(rng, 5) - 2, __ATOMIC_RELAXED);
		break;
	case 1:
		*(volatile float *)&head->weight = odd[mildly ? rnd(rng, 2) : rnd(rng, 8)];
		break;
	case 2:
		*(volatile float *)&head->scale = odd[mildly ? rnd(rng, 2) : rnd(rng, 8)];
		break;
	case 3:
		((volatile uint16_t *)(void *)data)[rnd(rng, (uint32_t)place->slots_stride / 2)] =
		    (uint16_t)(chance(rng, 2) ? 0xffff : rnd(rng, 65536));
		break;
	case 4:
		__atomic_store_n(&head->rows, odd_count(rng, p->slot_rows), __ATOMIC_RELAXED);
		break;
	case 5:
		__atomic_store_n(&head->flags, rnd(rng, mildly ? 2 : 4), __ATOMIC_RELAXED);
		break;
	case 6:
		__atomic_store_n(&request->rows, odd_count(rng, p->pull_rows), __ATOMIC_RELAXED);
		break;
	default:
		__atomic_store_n(
		    (int64_t *)(void *)(chance(rng, 2) ? data : (uint8_t *)(request + 1)) +
			rnd(rng, 8) % p->pull_rows % p->slot_rows,
		    odd_id(rng, p), __ATOMIC_RELAXED);
		break;
	}
}

static void *scribble_main(void *arg)
{
	struct hostile_bad *b = arg;
	uint64_t rng = b->scribbles;
	bool mildly = rnd(&rng, 2);

	for (;;) {
		scribble(b, &rng, mildly);
		if (chance(&rng, 64))
			nap_us(rnd(&rng, 300));
	}
	return NULL;
}

static uint64_t credit(struct hostile_bad *b, uint32_t block)
{
	uint8_t *base = tp_arena_base(b->r.mailbox);

	return __atomic_load_n((uint64_t *)(void *)(base + layout_credit_off(block)),
			       __ATOMIC_ACQUIRE);
}

/* A slot for the next piece or push of parameter i. */
static bool has_slot(struct hostile_bad *b, uint32_t i)
{
	const struct wire_place *place = &b->r.place[i];
	bool table = b->model.p[i].storage != WIRE_DENSE;

	if (!table && b->model.opt.mode == SRV_SYNC)
		return true;
	for (int tries = 0; tries < 40; tries++) {
		uint64_t least = UINT64_MAX;

		for (uint32_t k = 0; k < (table ? 1 : place->blocks); k++) {
			uint64_t c = credit(b, place->first_block + k);

			least = c < least ? c : least;
		}
		if (b->pushes[i] < least + b->r.slots)
			return true;
		if (over(b))
			return false;
		tp_cq_wait(b->r.cq, 1);
	}
	return false;
}

static void fill(struct hostile_bad *b, uint64_t at, uint64_t len, size_t size)
{
	uint8_t *source = (uint8_t *)tp_arena_base(b->r.source) + at;

	memset(source, 0, len);
	for (uint64_t k = 0; k + size <= len && !chance(&b->rng, 4);
	     k += size * (1 + rnd(&b->rng, 50)))
		source[k + size - 1] = chance(&b->rng, 50) ? 0x7f : 0x3c;
	if (chance(&b->rng, 10) && len >= 4)
		memset(source, 0xff, 4);
}

static void push_dense(struct hostile_bad *b, uint32_t i)
{
	const struct wire_place *place = &b->r.place[i];
	const struct wire_param *p = &b->model.p[i];
	uint64_t push = b->pushes[i], slot = push % b->r.slots;
	uint32_t turn = rnd(&b->rng, place->blocks), missing = chance(&b->rng, 30);

	for (uint32_t k = 0; k + missing < place->blocks && !over(b); k++) {
		uint32_t block = (k + turn) % place->blocks;
		uint64_t first = block * place->block_elems, n = place->elems - first;

		n = (n < place->block_elems ? n : place->block_elems) * grad_size(p);
		fill(b, 0, n, grad_size(p));
		if (b->evil && chance(&b->rng, b->evil))
			slot = rnd(&b->rng, 8);
		raw_write(&b->r,
			  place->slots_off + slot % b->r.slots * place->slots_stride +
			      first * grad_size(p),
			  n,
			  imm_block(IMM_GRAD, place->first_block + block, (uint32_t)slot,
				    chance(&b->rng, 2)));
	}
	b->pushes[i]++;
}

/* False: it could not go on. */
static bool push_piece(struct hostile_bad *b, uint32_t i, uint32_t rows, bool more)
{
	const struct wire_place *place = &b->r.place[i];
	const struct wire_param *p = &b->model.p[i];
	struct layout_push_head head = {.flags = more, .rows = rows};
	uint64_t len = layout_slot_bytes(rows, p->dim[1] * grad_size(p));
	uint32_t slot;

	if (!has_slot(b, i))
		return false;
	slot = (uint32_t)(b->pushes[i]++ % b->r.slots);
	fill(b, 8 * rows, len - 8 * (rows ? rows : 1), grad_size(p));
	hostile_pick_ids(p, &b->rng, tp_arena_base(b->r.source), rows);
	if (b->evil && chance(&b->rng, b->evil) && rows)
		*(int64_t *)tp_arena_base(b->r.source) = odd_id(&b->rng, p);
	if (b->evil && chance(&b->rng, b->evil))
		head.rows = odd_count(&b->rng, p->slot_rows);
	if (chance(&b->rng, 8))
		head.weight = head.scale = (float)(1 + rnd(&b->rng, 9));
	raw_head(&b->r, i, slot, &head);
	return raw_write(&b->r, place->slots_off + slot * place->slots_stride, len,
			 imm_block(IMM_GRAD, place->first_block, slot, chance(&b->rng, 2)));
}

static void push_rows(struct hostile_bad *b, uint32_t i)
{
	const struct wire_param *p = &b->model.p[i];
	uint32_t left = rnd(&b->rng, p->push_rows + 1);
	bool ends = !chance(&b->rng, 30);

	for (int pieces = 0; pieces < 40; pieces++) {
		uint32_t most = left < p->slot_rows ? left : p->slot_rows,
			 n = rnd(&b->rng, most + 1);
		bool more = left > n || chance(&b->rng, 3);

		if (!ends && !more)
			return;
		if (!push_piece(b, i, n, more && pieces < 39) || !more)
			return;
		left -= n;
	}
}

static void pull(struct hostile_bad *b, uint32_t i)
{
	const struct wire_place *place = &b->r.place[i];
	const struct wire_param *p = &b->model.p[i];
	uint32_t block = place->first_block + rnd(&b->rng, place->blocks);
	struct layout_request_head *head = tp_arena_base(b->r.source);
	uint64_t len = 8;

	if (p->storage != WIRE_DENSE) {
		block = place->first_block;
		memset(head, 0, sizeof(*head));
		head->rows = 1 + rnd(&b->rng, p->pull_rows);
		len = layout_request_bytes(head->rows);
		hostile_pick_ids(p, &b->rng, (int64_t *)(void *)(head + 1), head->rows);
		if (b->evil && chance(&b->rng, b->evil))
			head->rows = odd_count(&b->rng, p->pull_rows);
		if (b->evil && chance(&b->rng, b->evil))
			*(int64_t *)(void *)(head + 1) = odd_id(&b->rng, p);
	}
	raw_write(&b->r, p->storage != WIRE_DENSE ? place->request_off : 0, len,
		  imm_block(IMM_PULL, block, 0, false));
	if (!chance(&b->rng, 5))
		for (uint32_t n = b->r.imms, tries = 0; n == b->r.imms && tries < 5 && !over(b);
		     tries++)
			tp_cq_wait(b->r.cq, 1);
}

static void deed_of_evil(struct hostile_bad *b)
{
	struct wire_msg msg = {.kind = WIRE_SET_RATE, .set_rate = {rnd(&b->rng, 9), 0.1}};
	uint8_t junk[64];

	switch (rnd(&b->rng, 5)) {
	case 0:
		raw_write(&b->r, 0, 8, (uint32_t)mix64(b->rng));
		break;
	case 1:
		for (uint32_t i = 0; i < sizeof(junk); i++)
			junk[i] = (uint8_t)rnd(&b->rng, 256);
		raw_send_bytes(&b->r, junk, 1 + rnd(&b->rng, 63));
		break;
	case 2:
		raw_send(&b->r, &msg);
		raw_send(&b->r, &msg);
		break;
	case 3:
		raw_barrier(&b->r, b->step + rnd(&b->rng, 3) - 1);
		break;
	default:
		msg.kind = chance(&b->rng, 2) ? WIRE_BYE : WIRE_INIT_DONE;
		raw_send(&b->r, &msg);
		break;
	}
}

static void bad_part(struct hostile_bad *b, uint32_t i)
{
	struct wire_msg rate = {.kind = WIRE_SET_RATE, .set_rate = {i, 0.001 * rnd(&b->rng, 100)}};
	bool pushed = false;

	for (int deeds = 0; deeds < 3; deeds++) {
		if (over(b))
			return;
		if (b->evil && chance(&b->rng, 4 * b->evil))
			deed_of_evil(b);
		if (chance(&b->rng, 2))
			pull(b, i);
		if (chance(&b->rng, 30))
			raw_send(&b->r, &rate);
		if ((pushed && b->model.opt.mode == SRV_SYNC) || chance(&b->rng, 3))
			continue;
		pushed = true;
		if (b->model.p[i].storage != WIRE_DENSE)
			push_rows(b, i);
		else if (has_slot(b, i))
			push_dense(b, i);
	}
}

static bool wait_step(struct hostile_bad *b)
{
	while (raw_released(&b->r) < b->step)
		if (over(b))
			return false;
		else
			tp_cq_wait(b->r.cq, 2);
	b->step++;
	return true;
}

/* URI SEED DEEDS: so many steps of one who is good, bad or hurried; then a bye, or none. */
static int live(char **arg)
{
	static struct hostile_bad b;
	uint64_t seed = strtoull(arg[1], NULL, 10);
	pthread_t thread;

	alarm(scaled(30, 90)); /* what it waits for comes, or its end is seen */
	hostile_pick(&b.model, seed >> 16);
	b.rng = mix64(seed);
	b.scribbles = mix64(b.rng);
	if (chance(&b.rng, 4))
		return hostile_mortal(
		    &(struct hostile_good){.model = &b.model, .uri = arg[0], .rng = b.rng},
		    atol(arg[2]));
	b.evil = chance(&b.rng, 3) ? 0 : 10 + rnd(&b.rng, 200);
	if (!bad_join(&b, arg[0]))
		return 0;
	if (b.mem && chance(&b.rng, 3))
		pthread_create(&thread, NULL, scribble_main, &b);
	for (long i = 0; i < atol(arg[2]) && !over(&b); i++) {
		for (uint32_t p = 0; p < b.model.n; p++)
			bad_part(&b, p);
		if (b.model.opt.mode == SRV_ASYNC)
			continue;
		raw_barrier(&b.r, b.step);
		if (!wait_step(&b))
			return 0;
	}
	if (chance(&b.rng, 2))
		raw_send(&b.r, &(struct wire_msg){.kind = WIRE_BYE});
	nap_us(1000);
	return 0;
}

int hostile_role(char **arg)
{
	_exit(live(arg)); /* the thread that scribbles goes on meanwhile */
}
