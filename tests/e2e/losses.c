/* SPDX-License-Identifier: Apache-2.0 */
#include "losses.h"

struct srv_options loss_options(uint32_t trainers, uint32_t wait_ms)
{
	struct srv_options opt = bed_options(trainers, SRV_SYNC);

	opt.on_loss = SRV_LOSS_WAIT;
	opt.loss_wait_ms = wait_ms;
	opt.block_kib = 1;
	return opt;
}

void loss_join(struct raw *r, uint32_t n, const char *uri)
{
	for (uint32_t i = 0; i < n; i++)
		raw_join(&r[i], uri, (int32_t)i);
	for (uint32_t i = 0; i < n; i++)
		raw_wait_start(&r[i]);
}

void loss_push(struct raw *r, uint32_t from, uint32_t to, float value)
{
	for (uint32_t b = from; b < to; b++)
		raw_gradient(r, 0, b, r->step % r->slots, value, false);
}

void loss_push_all(struct raw *r, float value)
{
	loss_push(r, 0, 4, value);
	raw_gradient(r, 1, 0, r->step % r->slots, value, false);
}

void loss_still_waits(struct raw *r, uint64_t step)
{
	for (int i = 0; i < 20; i++) {
		raw_poll(r);
		nap_us(1000);
	}
	must(raw_released(r) < step, "step %llu is over", (unsigned long long)step);
}

void loss_of(struct raw *r, struct bed *bed, uint64_t losses)
{
	raw_free(r);
	bed_wait_lost(bed, losses);
}

bool loss_is_given_up(void *bed)
{
	return bed_stats(bed).given_up > 0;
}

void loss_resume(struct raw *r, const char *uri, int32_t rank, const struct raw *old)
{
	struct wire_welcome was = old->welcome;

	raw_connect(r, uri, 0);
	raw_hello_again(r, rank, was.session);
	r->welcome = raw_expect(r, WIRE_WELCOME).welcome;
	must(r->welcome.resumed, "not resumed");
	must(r->welcome.server == was.server, "another server");
	must(memcmp(r->welcome.session, was.session, WIRE_SESSION_LEN), "the same session");
	raw_declare(r, raw_lines, 2);
	raw_take_grant(r);
	raw_attach(r, 0);
	raw_expect(r, WIRE_READY);
}

void loss_ends(struct raw *r, uint64_t step)
{
	raw_wait_release(r, step);
	r->step = step + 1;
}

void loss_sees(const char *uri, const float want[4])
{
	gs_trainer *t = connect_as(uri, -1);
	gs_param *a = declare_line(t, "a", RAW_A_ELEMS, 1, 0);
	float w[RAW_A_ELEMS];

	declare_line(t, "b", RAW_B_ELEMS, 1, 0);
	ok(gs_start(t));
	ok(gs_pull(t, a, GS_ORDERED, w));
	for (int b = 0; b < 4; b++)
		must(w[256 * b] == want[b], "block %d is %g instead of %g", b, (double)w[256 * b],
		     (double)want[b]);
	leave(t);
}
