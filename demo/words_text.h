/* SPDX-License-Identifier: Apache-2.0
 *
 * Where the text comes from.
 */
#ifndef GS_DEMO_WORDS_TEXT_H
#define GS_DEMO_WORDS_TEXT_H

/* Reads `file`, a sentence or paragraph a line, or when it is NULL the King James Bible, a verse a
 * line, of which Debian's package bible-kjv has a packed copy and a program to read it. *out ends
 * with a NUL, has no other, and is the caller's to free. Starts a process for the Bible, so call it
 * before RDMA devices are opened.
 * Errors: -ENOENT and others of open (the text says what to install), -EFBIG, -EBADMSG (a NUL: not
 * a text), -EIO, -ENOMEM. */
int words_text_read(const char *file, char **out);

/* The longest text, in bytes. */
enum { WORDS_TEXT_MAX = 1 << 30 };

#endif
