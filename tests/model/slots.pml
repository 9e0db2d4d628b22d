/* SPDX-License-Identifier: Apache-2.0
 *
 * Slots and credits, async mode: one trainer, a parameter of two blocks, a ring of two slots, and a
 * connection whose room comes and goes.
 *
 * Holds: no slot is written while it is queued; gradients are applied in order, none lost, none
 * twice; all of them in the end, so that a credit that found no room is never forgotten.
 *
 * Broken on purpose: BREAK_EARLY_CREDIT (the credit says taken, not applied), BREAK_RING (one push
 * too many before the first credit), BREAK_PARK (no second look at the room before a credit is
 * parked), BREAK_ORDER (the credit is written before the slot is free).
 */
#define BLOCKS 2
#define SLOTS  2
#define PUSHES 4
#define RETRY  7

bool queued[4];        /* [block * SLOTS + slot]: SLOT_QUEUED, server/session.h */
byte holds[4];         /* what was written there: the number of the push */
byte applied[BLOCKS];  /* pushes of the block that are in its weights */
byte words[BLOCKS];    /* the server's copy of the credits, session_credit() */
byte credit[BLOCKS];   /* the trainer's mailbox */

chan wire = [4] of {byte, byte};  /* block, slot: immediates under way, in order */
chan actor = [6] of {byte, byte}; /* the parameter's queue; slot RETRY: ITEM_CREDIT, a parked one's */

bool room = true, want_room, room_event; /* transport.h, invariant 4 */
byte room_gen;
bool parked[BLOCKS];                     /* credit.parked: in the session's list, or on its way back */
bool in_list[BLOCKS];

/* trainer/push.c: push_credited() with credits_needed() of credits.h. */
#ifdef BREAK_RING
#define CREDITED(b, n) (n < SLOTS + 1 || credit[b] >= n - SLOTS)
#else
#define CREDITED(b, n) (n < SLOTS || credit[b] >= n - SLOTS + 1)
#endif

proctype trainer()
{
	byte n, b;

	do
	:: n < PUSHES ->
		/* gs_push(): wait_for_slot(), then send_from() */
		CREDITED(0, n) && CREDITED(1, n);
		b = 0;
		do
		:: b < BLOCKS ->
			d_step {
				assert(!queued[b * SLOTS + n % SLOTS]);
				holds[b * SLOTS + n % SLOTS] = n;
			}
			wire!b, n % SLOTS;
			b++
		:: else -> break
		od;
		n++
	:: else -> break
	od;
	/* gs_wait_applied() */
	credit[0] == PUSHES && credit[1] == PUSHES;
	assert(applied[0] == PUSHES && applied[1] == PUSHES)
}

/* server/poller.c */
active proctype poller()
{
	byte b, s;

end:	do
	/* on_gradient(), poller_slot(): "filled without a credit"; enqueue() */
	:: wire?b, s ->
		atomic {
			assert(!queued[b * SLOTS + s]);
			queued[b * SLOTS + s] = true;
#ifdef BREAK_EARLY_CREDIT
			credit[b] = credit[b] + 1;
#endif
		}
		actor!b, s
	/* TP_EV_ROOM: session_unpark() */
	:: room_event ->
		d_step {
			room_event = false;
			room_gen++;
		}
		b = 0;
		do
		:: b < BLOCKS ->
			if
			:: in_list[b] -> in_list[b] = false; actor!b, RETRY
			:: else
			fi;
			b++
		:: else -> break
		od
	od
}

/* session_words.c: write_credit() and park(). The look at the generation, the post and the parking
 * are three steps: the poller runs meanwhile. */
inline write_credit(b)
{
	gen = room_gen;
	if
	:: atomic { room -> credit[b] = words[b]; parked[b] = false }
	:: atomic { !room -> want_room = true }
		if
#ifdef BREAK_PARK
		:: true ->
#else
		:: atomic { room_gen == gen ->
#endif
			parked[b] = true; in_list[b] = true
#ifndef BREAK_PARK
		   }
		:: atomic { room_gen != gen -> parked[b] = true }
			actor!b, RETRY
#endif
		fi
	fi
}

/* server/param.c: param_handle() */
active proctype parameter()
{
	byte b, s, gen;

end:	do
	:: actor?b, s ->
		if
		/* ITEM_CREDIT: session_retry_credit() */
		:: s == RETRY ->
			parked[b] = false;
			write_credit(b)
		/* ITEM_GRAD: async_gradient(), then param_credit() */
		:: else ->
			d_step {
				assert(queued[b * SLOTS + s]);
				/* in order: none lost, none twice */
				assert(holds[b * SLOTS + s] == applied[b]);
				applied[b]++;
			}
#ifdef BREAK_ORDER
			credit[b] = applied[b];
			queued[b * SLOTS + s] = false
#else
			/* session_free_slot(), then session_credit() */
			queued[b * SLOTS + s] = false;
#ifndef BREAK_EARLY_CREDIT
			words[b]++;
			if
			:: !parked[b] -> write_credit(b)
			:: else /* the parked one takes the count along */
			fi
#endif
#endif
		fi
	od
}

/* The network: it may be full at any time, a few times. */
active proctype network()
{
	byte filled;

end:	do
	:: atomic { room && filled < 2 -> room = false; filled++ }
	:: atomic { !room -> room = true;
		if
		:: want_room -> want_room = false; room_event = true
		:: else
		fi
	   }
	od
}

init { run trainer() }
