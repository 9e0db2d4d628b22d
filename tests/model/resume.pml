/* SPDX-License-Identifier: Apache-2.0
 *
 * Async mode, a connection that is lost at any moment and resumed with the same run of the server: one
 * trainer, two blocks, a ring of two slots, and the kept words.
 *
 * Holds: each push is in each block once, in order, though what was under way is lost from any point
 * on; what is sent again is still in the ring; no slot is written while it is queued; and all end.
 *
 * Broken on purpose: BREAK_NO_REAP (kept words are told while gradients of the old connection are
 * still queued), BREAK_LEAST (what a block has beyond the others is sent again), BREAK_MOST (what a
 * block lacks is not), BREAK_CREDIT (credits begin at nothing), BREAK_HALF_RING (a connection that is
 * lost in the midst of a replay leaves the half filled ring as the old one).
 */
#define SLOTS  2
#define PUSHES 4
#define LOSSES 2
#define CLOSED 2

/* server: what is in the weights outlives connections */
byte applied[2];
bool alive, knocks;
chan wire = [6] of {byte, byte, byte};  /* block, slot; CLOSED. The push is for the assertions. */
chan queue = [6] of {byte, byte, byte}; /* the parameter's */
bool queued[4];                         /* block * SLOTS + slot */
/* the trainer's mailbox; all of a connection */
byte credit[2], kept[2];
byte welcomed;
byte losses;

#define LEAST (kept[0] < kept[1] -> kept[0] : kept[1])
#define MOST  (kept[0] > kept[1] -> kept[0] : kept[1])

active proctype server()
{
	byte b, s, n;
	bool cut; /* from here on nothing of the old connection arrives */

end:	do
	/* server/poller.c */
	:: d_step { wire?[b, s, n] -> wire?b, s, n;
		if
		:: b == CLOSED -> alive = false; cut = false
		:: b != CLOSED && !cut ->
			assert(!queued[b * SLOTS + s]);
			queued[b * SLOTS + s] = true;
			queue!b, s, n
		:: else
		fi;
		b = 0; s = 0; n = 0 }
	:: d_step { wire??[eval(CLOSED), _, _] && !cut -> cut = true }
	/* server/block.c: async_gradient(), param_credit(); the ledger counts for the rank */
	:: d_step { queue?[b, s, n] -> queue?b, s, n;
		assert(n == applied[b]);
		applied[b]++;
		queued[b * SLOTS + s] = false;
		if
		:: alive -> credit[b]++ /* into a mailbox that is there */
		:: else
		fi;
		b = 0; s = 0; n = 0 }
	/* hello_take(): once the old session is over, and reaped */
#ifdef BREAK_NO_REAP
	:: d_step { knocks && !alive && !wire??[eval(CLOSED), _, _] ->
#else
	:: d_step { knocks && !alive && !wire??[eval(CLOSED), _, _] && empty(queue) ->
#endif
		knocks = false;
		alive = true;
		kept[0] = applied[0]; kept[1] = applied[1];
#ifdef BREAK_CREDIT
		credit[0] = 0; credit[1] = 0;
#else
		credit[0] = kept[0] - LEAST; credit[1] = kept[1] - LEAST;
#endif
		welcomed++ }
	od
}

/* trainer/push.c, replay.c */
active proctype trainer()
{
	byte made;          /* pushes whose call returned */
	byte from;          /* rank push number of this connection's push 0 */
	byte ring[SLOTS], old[SLOTS], old_from; /* the push that each slot holds; before: of t->old */
	byte n, b, connection;
	bool replaying;

again:
	atomic { knocks = true; connection = welcomed }
	atomic { welcomed != connection ->
#ifdef BREAK_MOST
		from = MOST;
#else
		from = LEAST;
#endif
		n = from }
	do
	/* replay(): out of the old ring, in order; then gs_push() */
	:: n < PUSHES ->
		replaying = n < made;
		/* push_credited() */
		if
		:: n - from < SLOTS || (credit[0] > n - from - SLOTS && credit[1] > n - from - SLOTS)
		:: losses < LOSSES -> goto lost
		fi;
		if
		:: replaying -> assert(old[(n - old_from) % SLOTS] == n)
		:: else
		fi;
		ring[(n - from) % SLOTS] = n;
		b = 0;
		do
		:: b < 2 ->
			if
#ifdef BREAK_LEAST
			:: true -> wire!b, (n - from) % SLOTS, n
#else
			:: kept[b] > n
			:: kept[b] <= n -> wire!b, (n - from) % SLOTS, n
#endif
			:: losses < LOSSES -> goto lost
			fi;
			b++
		:: else -> break
		od;
		n++;
		/* A push whose call failed was not made: who calls makes it again. */
		if
		:: n > made -> made = n
		:: else
		fi
	:: n == PUSHES ->
		/* gs_wait_applied() */
		if
		:: credit[0] == PUSHES - from && credit[1] == PUSHES - from -> break
		:: losses < LOSSES -> goto lost
		fi
	od;
	assert(applied[0] == PUSHES && applied[1] == PUSHES);
	goto done;
lost:
	atomic {
		losses++;
		wire!CLOSED, 0, 0;
#ifdef BREAK_HALF_RING
		if
		:: true ->
#else
		/* Nothing of t->old is changed before all of it was sent again. */
		if
		:: replaying && n < made /* keeps the older one */
		:: else ->
#endif
			old[0] = ring[0]; old[1] = ring[1]; old_from = from
		fi;
		goto again
	}
done:
	skip
}
