/* SPDX-License-Identifier: Apache-2.0
 *
 * Sync mode with deaths: the barrier, a lost trainer's place in it, and its coming back, by its
 * session's token or as a new process. Two trainers, two blocks, some steps, some deaths, each at any
 * point; the parameter's actor lags behind the poller.
 *
 * Holds: each trainer's gradient of each block is in each step that it passed, once; nobody's is in a
 * step twice; no block is updated for a step while a trainer reads it that has yet to push in that
 * step; whoever resumes finds the step that it was in, or the next if its barrier was posted; a good
 * trainer is never ended for a breach; and all end.
 *
 * Broken on purpose: BREAK_DOUBLE_REPLAY (who comes back does not look at the kept words),
 * BREAK_LOST_REPLAY (it takes an older step's kept word for this one's), BREAK_EARLY_UPDATE (a lost
 * trainer is not waited for in a block), BREAK_GIVE_UP (it is waited for for ever), BREAK_ADMIT (who
 * comes gets into a step that gradients were left in), BREAK_LATE_LEDGER (kept words are of what was
 * merged, not of what was taken), BREAK_LATE_JOINER (who joins gets into the step under way),
 * BREAK_FORGET_REWIND (a trainer that was told that it lost its place, and whose connection is lost
 * again before it starts, resumes the session that it never trained in).
 */
#define RANKS  2
#define STEPS  2
#define DEATHS 2

/* enum barrier_rank, server/barrier.h */
#define ABSENT      0
#define JOINING     1
#define MEMBER      2
#define PASSED      3
#define LOST        4 /* its connection is gone, the step waits for it */
#define LOST_PASSED 5

/* server/round.c and barrier.c */
byte rank[RANKS];
byte step;        /* being made; 0: not begun */
byte expected;    /* open_step(): members when the step began */
bool left_grads;  /* gradients of somebody who is gone are in the step */
bool ending;      /* the barrier is complete, blocks are being settled */
byte unsettled;   /* blocks */

/* blocks, index rank * 2 + block */
bool queued[4];   /* taken by the poller, not yet by the actor: in the parameter's queue */
bool merged[4];   /* by_rank[] of the block, server/block.c */
bool settled[2];
bool settle[2];   /* ITEM_SETTLE is in the queue */
byte weights[2];  /* the last step whose gradients are in the block */
byte ledger[4];   /* the kept words, proto/layout.h: the last step of which the gradient is there */

/* connections: what a trainer says, in order; and what it is told */
#define BARRIER 2 /* block 0, block 1, or the barrier */
#define CLOSED  3
chan data[RANKS] = [4] of {byte, byte};
bool knocks[RANKS];   /* it says hello */
bool token[RANKS];    /* with its session's token */
bool alive[RANKS];    /* the server has not seen the end of its connection */
bool resumed[RANKS];  /* welcome */
byte start[RANKS];    /* the start message's step; 0: none yet */
byte released[RANKS]; /* the mailbox's head */
byte kept[4];         /* the mailbox's kept words */
bool bye[RANKS];

byte deaths;

bool reads[4]; /* the trainer may still read the block as it was before its step */

#define GOING(r)   (rank[r] >= MEMBER)
#define DONE(r)    (rank[r] == PASSED || rank[r] == LOST_PASSED)
#define MEMBERS    (GOING(0) + GOING(1))
#define HAS_PASSED (DONE(0) + DONE(1))

/* ---- the round, server/round.c ---- */

inline open_step()
{
	ending = false;
	left_grads = false;
	unsettled = 2;
	settled[0] = false; settled[1] = false;
	expected = MEMBERS;
}

/* start_joined(), activate(): the kept words stand in the mailbox since the welcome */
inline start_joined()
{
	if :: rank[0] == MEMBER && alive[0] && start[0] == 0 -> start[0] = step :: else fi;
	if :: rank[1] == MEMBER && alive[1] && start[1] == 0 -> start[1] = step :: else fi
}

inline admit_joining()
{
	if :: rank[0] == JOINING -> rank[0] = MEMBER :: else fi;
	if :: rank[1] == JOINING -> rank[1] = MEMBER :: else fi
}

inline advance_one(r)
{
	if
	:: rank[r] == PASSED -> rank[r] = MEMBER
	:: rank[r] == LOST_PASSED -> rank[r] = LOST
	:: else
	fi
}

/* end_step(): the books of the next step first, then the releases */
inline end_step()
{
	assert(!queued[0] && !queued[1] && !queued[2] && !queued[3]);
	/* none lost: */
	assert(!DONE(0) || (merged[0] && merged[1]));
	assert(!DONE(1) || (merged[2] && merged[3]));
	merged[0] = false; merged[1] = false; merged[2] = false; merged[3] = false;
	if :: alive[0] && start[0] != 0 && start[0] <= step -> released[0] = step :: else fi;
	if :: alive[1] && start[1] != 0 && start[1] <= step -> released[1] = step :: else fi;
	advance_one(0);
	advance_one(1);
	admit_joining();
	step++;
	open_step();
	start_joined()
}

/* end_if_complete(): with nobody left there is something to end only if gradients were left */
inline end_if_complete()
{
	if
	:: !ending && step > 0 && HAS_PASSED == MEMBERS && (MEMBERS > 0 || left_grads) ->
		ending = true;
		if :: !settled[0] -> settle[0] = true :: else fi;
		if :: !settled[1] -> settle[1] = true :: else fi;
		if :: unsettled == 0 -> end_step() :: else fi
	:: else
	fi
}

/* admit(): the first step, or one that nobody is in */
inline admit()
{
	if
	:: step == 0 && rank[0] == JOINING && rank[1] == JOINING ->
		admit_joining();
		step = 1;
		open_step();
		start_joined()
#ifdef BREAK_ADMIT
	:: step > 0 && MEMBERS == 0 && (rank[0] == JOINING || rank[1] == JOINING) ->
#else
	:: step > 0 && MEMBERS == 0 && !ending && !left_grads &&
	   (rank[0] == JOINING || rank[1] == JOINING) ->
#endif
		admit_joining();
		open_step();
		start_joined()
#ifdef BREAK_LATE_JOINER
	:: step > 0 && MEMBERS > 0 && (rank[0] == JOINING || rank[1] == JOINING) ->
		admit_joining();
		start_joined()
#endif
	:: else
	fi
}

inline let_go(r)
{
	if
	:: step > 0 && (ledger[r * 2] == step || ledger[r * 2 + 1] == step) -> left_grads = true
	:: else
	fi;
	rank[r] = ABSENT;
	end_if_complete();
	admit()
}

/* ---- the parameter's actor, server/block.c ---- */

/* settle(): one update from those that delivered */
inline settle_block(b)
{
	if
	:: merged[b] || merged[2 + b] ->
		/* A reader that has yet to push looks at these weights. */
		assert(!reads[b] && !reads[2 + b]);
		weights[b] = step
	:: else
	fi;
	settled[b] = true;
	settle[b] = false;
	unsettled--;
	if
	:: unsettled == 0 && ending -> end_step(); end_if_complete(); admit()
	:: else
	fi
}

#ifdef BREAK_EARLY_UPDATE
#define ALL_DELIVERED(b) (merged[b] + merged[2 + b] == (rank[0] == MEMBER || rank[0] == PASSED) + \
						       (rank[1] == MEMBER || rank[1] == PASSED))
#else
#define ALL_DELIVERED(b) (merged[b] + merged[2 + b] == expected)
#endif

/* ITEM_GRAD: sync_gradient() */
inline merge(r, b)
{
	queued[r * 2 + b] = false;
	assert(!merged[r * 2 + b]); /* none twice */
	assert(!settled[b]);
	merged[r * 2 + b] = true;
#ifdef BREAK_LATE_LEDGER
	ledger[r * 2 + b] = step;
#endif
	if
	:: ALL_DELIVERED(b) -> settle_block(b)
	:: else
	fi
}

active proctype parameter()
{
end:	do
	:: d_step { queued[0] -> merge(0, 0) }
	:: d_step { queued[1] -> merge(0, 1) }
	:: d_step { queued[2] -> merge(1, 0) }
	:: d_step { queued[3] -> merge(1, 1) }
	/* ITEM_SETTLE, behind the gradients that were queued before: block_settle() */
	:: d_step { settle[0] && !queued[0] && !queued[2] -> settle_block(0) }
	:: d_step { settle[1] && !queued[1] && !queued[3] -> settle_block(1) }
	od
}

/* ---- poller and control thread ---- */

/* server/poller.c: on_gradient(), on_barrier() */
inline take(r)
{
	if
	:: what < BARRIER ->
		/* step_allows() */
		assert(about == step);
#ifndef BREAK_LATE_LEDGER
		assert(ledger[r * 2 + what] != step);
		ledger[r * 2 + what] = step;
#endif
		assert(!queued[r * 2 + what]);
		queued[r * 2 + what] = true
	:: what == BARRIER ->
		assert(about == step && rank[r] == MEMBER);
		rank[r] = PASSED;
		end_if_complete();
		admit()
	/* server/leave.c: leave_closed(), with a bye or without */
	:: what == CLOSED ->
		alive[r] = false;
		start[r] = 0;
		if
		:: bye[r] || rank[r] == JOINING -> let_go(r)
		:: !bye[r] && rank[r] == MEMBER -> rank[r] = LOST
		:: !bye[r] && rank[r] == PASSED -> rank[r] = LOST_PASSED
		fi
	fi
}

/* hello_take(), then round's join(): it waits for the end of the old connection */
inline welcome(r)
{
	knocks[r] = false;
	alive[r] = true;
	start[r] = 0;
	released[r] = 0;
	kept[r * 2] = ledger[r * 2];
	kept[r * 2 + 1] = ledger[r * 2 + 1];
	if
	:: rank[r] == LOST -> resumed[r] = token[r]; rank[r] = MEMBER; start_joined()
	:: rank[r] == LOST_PASSED -> resumed[r] = token[r]; rank[r] = PASSED
	:: else -> resumed[r] = false; rank[r] = JOINING; admit()
	fi
}

active proctype server()
{
	byte what, about;

end:	do
	:: d_step { data[0]?what, about -> take(0); what = 0; about = 0 }
	:: d_step { data[1]?what, about -> take(1); what = 0; about = 0 }
	:: d_step { knocks[0] && !alive[0] && empty(data[0]) -> welcome(0) }
	:: d_step { knocks[1] && !alive[1] && empty(data[1]) -> welcome(1) }
#ifndef BREAK_GIVE_UP
	/* loss_wait_ms have passed: server/ledger.c */
	:: d_step { rank[0] == LOST || rank[0] == LOST_PASSED -> let_go(0) }
	:: d_step { rank[1] == LOST || rank[1] == LOST_PASSED -> let_go(1) }
#endif
	od
}


/* ---- a trainer: trainer/step.c, push.c, and gs_reconnect ---- */

#define POSTED 3

/* It may die before anything it says: as a process, or only its connection. */
inline may_die()
{
	if
	:: atomic { deaths < DEATHS ->
		deaths++;
		reads[r * 2] = false; reads[r * 2 + 1] = false;
		if
		:: knocks[r] -> knocks[r] = false
		:: else -> data[r]!CLOSED, 0;
			if
#ifndef BREAK_FORGET_REWIND
			/* welcome told it that its place is gone: that holds on, whatever the next says */
			:: resumes && !resumed[r] -> k = 0
#endif
			:: else
			fi
		fi;
		if
		:: k > 0 -> resumes = true
		:: resumes = false; k = 0; at = 0
		:: step > 0 -> goto gone /* for good; the first step waits for all */
		fi;
		goto hello }
	:: skip
	fi
}

inline begin_step(first0, first1)
{
	at = 0;
	has[0] = false; has[1] = false;
	reads[r * 2] = first0; reads[r * 2 + 1] = first1;
	assert(!reads[r * 2] || weights[0] < k);
	assert(!reads[r * 2 + 1] || weights[1] < k)
}

/* START came: where it goes on from, and what the server has of this step already */
inline take_start()
{
	if
	:: resumes && resumed[r] && start[r] == k ->
		/* What it had pushed it does not read any more. */
		begin_step(at < 1 && kept[r * 2] != k, at < 2 && kept[r * 2 + 1] != k)
	:: resumes && resumed[r] && start[r] != k ->
		/* released meanwhile */
		assert(at == POSTED && start[r] == k + 1);
		k = start[r];
		begin_step(true, true)
	:: else ->
		k = start[r];
		begin_step(kept[r * 2] != k, kept[r * 2 + 1] != k)
	fi;
#ifdef BREAK_LOST_REPLAY
	has[0] = kept[r * 2] != 0; has[1] = kept[r * 2 + 1] != 0
#else
#ifndef BREAK_DOUBLE_REPLAY
	has[0] = kept[r * 2] == k; has[1] = kept[r * 2 + 1] == k
#endif
#endif
}

inline push(b)
{
	may_die();
	if
	:: has[b] -> reads[r * 2 + b] = false
	:: else -> atomic { reads[r * 2 + b] = false; data[r]!b, k }
	fi;
	if
	:: at == b -> at = b + 1
	:: else
	fi
}

proctype trainer(byte r)
{
	byte k, at; /* t->step; what of it was done */
	bool resumes, has[2];

hello:
	atomic { token[r] = resumes; knocks[r] = true }
	may_die();
	atomic { !knocks[r] && start[r] != 0 -> take_start() }
	do
	:: k <= STEPS ->
		push(0);
		push(1);
		may_die();
		atomic { data[r]!BARRIER, k; at = POSTED }
		may_die();
		/* gs_step_wait() */
		atomic { released[r] >= k -> k++; begin_step(true, true) }
	:: else -> break
	od;
	/* gs_leave() */
	atomic { reads[r * 2] = false; reads[r * 2 + 1] = false; bye[r] = true; data[r]!CLOSED, 0 }
gone:
	skip
}

init
{
	atomic { run trainer(0); run trainer(1) }
}
