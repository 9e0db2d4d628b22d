/* SPDX-License-Identifier: Apache-2.0
 *
 * Sync mode, a server that dies at any moment and is started again from its last checkpoint on disk:
 * two trainers, two blocks, some steps and deaths, and a snapshot that goes on while the next step's
 * gradients come.
 *
 * Holds: each step's gradient of each trainer is in each block once, in the order of the steps, as if
 * nothing had happened; what is on disk is the end of one step, in all blocks; and all end.
 *
 * Broken on purpose: BREAK_TORN_CUT (an update does not look whether its block was copied),
 * BREAK_LATE_CUT (the cut is made behind the releases), BREAK_EARLY_COMMIT (a checkpoint is renamed
 * before all is copied), BREAK_NO_REWIND (a trainer goes on with its own step), BREAK_REPLAY (it sends
 * what the old run had not confirmed to the new one), BREAK_OTHER_STEP (the new run begins behind the
 * step that its weights are of).
 */
#define STEPS  3
#define DEATHS 2

#define BARRIER 2

/* the server's memory; all of it goes with the process */
bool up = true;
byte run_id;        /* welcome.server */
byte step;          /* being made; 0: not begun */
byte base;          /* what step begins behind: manifest.step */
byte weights[2];    /* steps that are in the block */
bool merged[4];     /* rank * 2 + block: delivered in this step */
bool passed[2], joined[2];

/* its snapshot, server/snapshot.c */
bool wanted;        /* the writer's files are ready, it has asked for the cut */
bool copying;
byte snap_step;
bool to_copy[2];
byte copy[2];       /* in the mapped files */

/* the disk */
byte disk_step, disk[2];

/* to the trainers */
chan data[2] = [3] of {byte, byte}; /* thing, and the step that its trainer made it in */
byte start[2], released[2];
byte deaths, gone; /* gone: trainers that have seen the last step's end */

/* apply_begin(): copy on write */
inline copy_block(b)
{
	copy[b] = weights[b];
	to_copy[b] = false;
	if
	:: !to_copy[0] && !to_copy[1] ->
		/* the writer: checksums, fsync, rename: checkpoint_commit() */
		disk_step = snap_step;
		disk[0] = copy[0]; disk[1] = copy[1];
		assert(disk[0] == disk_step && disk[1] == disk_step);
		copying = false
	:: else
	fi
}

inline update(b)
{
	if
	:: merged[b] && merged[2 + b] ->
#ifndef BREAK_TORN_CUT
		if
		:: copying && to_copy[b] -> copy_block(b)
		:: else
		fi;
#endif
		weights[b]++;
		assert(weights[b] == step)
	:: else
	fi
}

/* snapshot items go to each parameter's actor */
inline cut(s)
{
	wanted = false;
	copying = true;
	snap_step = s;
	to_copy[0] = true; to_copy[1] = true;
#ifdef BREAK_EARLY_COMMIT
	disk_step = s;
	disk[0] = copy[0]; disk[1] = copy[1];
	assert(disk[0] == disk_step && disk[1] == disk_step)
#endif
}

/* end_step(): the cut, then the books of the next step, then the releases */
inline end_if_complete()
{
	if
	:: passed[0] && passed[1] ->
		assert(merged[0] && merged[1] && merged[2] && merged[3]);
#ifndef BREAK_LATE_CUT
		if
		:: wanted -> cut(step)
		:: else
		fi;
#endif
		merged[0] = false; merged[1] = false; merged[2] = false; merged[3] = false;
		passed[0] = false; passed[1] = false;
		released[0] = step; released[1] = step;
		step++
	:: else
	fi
}

inline take(r)
{
	if
	:: thing == BARRIER ->
		assert(made == step && !passed[r]);
		passed[r] = true;
		end_if_complete()
	:: else ->
		/* It says nothing of its step: it must be the one that is being made. */
		assert(made == step);
		assert(!merged[r * 2 + thing]);
		merged[r * 2 + thing] = true;
		update(thing)
	fi
}

inline lose_memory()
{
	up = false;
	gone = 0;
	step = 0; weights[0] = 0; weights[1] = 0;
	merged[0] = false; merged[1] = false; merged[2] = false; merged[3] = false;
	passed[0] = false; passed[1] = false;
	joined[0] = false; joined[1] = false;
	start[0] = 0; start[1] = 0; released[0] = 0; released[1] = 0;
	wanted = false; copying = false; snap_step = 0;
	to_copy[0] = false; to_copy[1] = false; copy[0] = 0; copy[1] = 0;
	do
	:: data[0]?thing, made
	:: data[1]?thing, made
	:: empty(data[0]) && empty(data[1]) -> break
	od
}

active proctype server()
{
	byte thing, made;

end:	do
	:: d_step { up && joined[0] && joined[1] && step == 0 ->
		step = base + 1;
		start[0] = step; start[1] = step }
	:: d_step { up && data[0]?[thing, made] -> data[0]?thing, made; take(0); thing = 0; made = 0 }
	:: d_step { up && data[1]?[thing, made] -> data[1]?thing, made; take(1); thing = 0; made = 0 }
	/* checkpoint.c: the cadence; in time for any step */
	:: d_step { up && step > 0 && !wanted && !copying && disk_step + 1 < STEPS -> wanted = true }
#ifdef BREAK_LATE_CUT
	:: d_step { up && wanted && step > 1 && !copying -> cut(step - 1) }
#endif
	/* snapshot.c: one block, then the next */
	:: d_step { up && copying && to_copy[0] -> copy_block(0) }
	:: d_step { up && copying && to_copy[1] -> copy_block(1) }
	/* kill -9, and restore.c */
	:: d_step { up && deaths < DEATHS && gone < 2 -> deaths++; lose_memory(); thing = 0; made = 0 }
	:: d_step { !up ->
		up = true;
		run_id++;
#ifdef BREAK_OTHER_STEP
		base = 0;
#else
		base = disk_step;
#endif
		weights[0] = disk[0]; weights[1] = disk[1] }
	od
}

#define LOST_IT (known != run_id || !up)

/* A trainer: gs_reconnect() when its server is another one. */
inline say(what)
{
	if
	:: atomic { !LOST_IT -> data[r]!what, k; at = what + 1 }
	:: atomic { LOST_IT -> goto again }
	fi
}

proctype trainer(byte r)
{
	byte k, at, known, replays;

again:
	atomic { up -> known = run_id; joined[r] = true }
	if
	:: atomic { !LOST_IT && start[r] != 0 ->
#ifdef BREAK_NO_REWIND
		if :: k == 0 -> k = start[r] :: else fi;
#else
#ifdef BREAK_REPLAY
		if
		:: k != 0 && k != start[r] && at == 1 -> data[r]!0, k
		:: else
		fi;
#endif
		k = start[r]; /* rewound: nothing is replayed */
#endif
		at = 0 }
	:: atomic { LOST_IT -> goto again }
	fi;
	do
	:: k <= STEPS ->
		say(0);
		say(1);
		say(BARRIER);
		if
		:: atomic { !LOST_IT && released[r] >= k -> k++; at = 0 }
		:: atomic { LOST_IT -> goto again }
		fi
	:: else -> break
	od;
	/* Who has seen the last step's end stays until all have, or comes again with them. */
	if
	:: atomic { !LOST_IT -> gone++ }
	:: atomic { LOST_IT -> goto again }
	fi;
	if
	:: atomic { gone == 2 -> assert(weights[0] == STEPS && weights[1] == STEPS) }
	:: atomic { LOST_IT && gone < 2 -> goto again }
	fi
}

init
{
	atomic { run trainer(0); run trainer(1) }
}
