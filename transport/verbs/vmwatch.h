/* SPDX-License-Identifier: Apache-2.0
 *
 * Tells when memory of this process is no longer what it was: unmapped, mapped over, moved, or given
 * back (madvise(MADV_DONTNEED) and the like). A registration pins the pages that were there; after that
 * it would go on reading those, while the program writes others.
 *
 * It is the kernel that tells, by userfaultfd(2), and not hooks in the C library's functions (as
 * UCX's libucm has them): a hook is not called by system calls that are made by hand, nor by a libc of
 * the program's own (static, Go's), and has to rewrite other libraries' code in the running process.
 * The kernel sees each change, whoever made it, and the call that makes it does not return before a
 * thread of ours has read of it, which it does under the lock below, and marks under the same lock. So
 * who looks something up after that call has returned finds it marked.
 *
 * Ranges are watched in write-protect mode with nothing ever protected: no page fault comes here, and
 * nobody's signals or faults change. What a program may notice: unmapping watched memory waits for
 * that thread, and a mapping is cut at the edges of a watched range, so mremap(2) across them fails
 * (realloc(3) then copies). Private anonymous memory alone is watched: files change by other ways.
 *
 * A child of fork(2) has neither the thread nor watched ranges (the kernel leaves them out); there the
 * watch begins anew for whoever joins it.
 *
 * Locking. While vmwatch_lock is held nothing may be unmapped, also not by free(3): that would wait for
 * the thread, which waits for the lock.
 */
#ifndef GS_TRANSPORT_VERBS_VMWATCH_H
#define GS_TRANSPORT_VERBS_VMWATCH_H

#include <stdbool.h>
#include <stdint.h>

/* Both are called with the lock; `gone` by the watch's thread. */
struct vmwatch {
	void (*gone)(struct vmwatch *w, uintptr_t first, uintptr_t end);
	/* Something in there is still of interest to it. */
	bool (*wants)(struct vmwatch *w, uintptr_t first, uintptr_t end);
	struct vmwatch *next;
};

/* Errors: -EOPNOTSUPP (the kernel has no such events, or they are not allowed here: the text says so),
 * -ENOMEM. */
int vmwatch_join(struct vmwatch *w);
void vmwatch_leave(struct vmwatch *w);

void vmwatch_lock(void);
void vmwatch_unlock(void);

/* It is private anonymous memory, all of it. Reads /proc/self/maps; without the lock. */
bool vmwatch_is_anonymous(uintptr_t first, uintptr_t end);
/* From here on what happens to these pages is told. With the lock. -EOPNOTSUPP. */
int vmwatch_add(uintptr_t first, uintptr_t end);
/* No longer, if nobody wants it. With the lock. */
void vmwatch_drop(uintptr_t first, uintptr_t end);

#endif
