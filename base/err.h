/* SPDX-License-Identifier: Apache-2.0
 *
 * Errors are negative errno values. The text behind one, which says what was wrong (the value and
 * the limit) and what to do about it, is kept for the calling thread until its next error.
 */
#ifndef GS_BASE_ERR_H
#define GS_BASE_ERR_H

/* Sets the calling thread's error text and returns -err (err > 0), so that a caller writes
 * `return err_set(EINVAL, "slot %u: the ring has %u", s, n);`. Texts are cut at 511 bytes. */
int err_set(int err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Puts "prefix: " in front of the calling thread's text; returns rc unchanged. */
int err_wrap(int rc, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* The calling thread's last text; "" when there was none. Valid until its next error. */
const char *err_text(void);

#endif
