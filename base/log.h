/* SPDX-License-Identifier: Apache-2.0
 *
 * Log lines, to stderr. Libraries return errors; whoever handles one logs it, once.
 */
#ifndef GS_BASE_LOG_H
#define GS_BASE_LOG_H

enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG };

/* What is printed: this level and the graver ones. Default LOG_INFO. Call before threads start. */
void log_set_level(enum log_level level);

/* One line: time, level, text; control characters in it become spaces. A line is written whole, by
 * one write(2); any thread. */
void log_line(enum log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#define log_error(...) log_line(LOG_ERROR, __VA_ARGS__)
#define log_warn(...)  log_line(LOG_WARN, __VA_ARGS__)
#define log_info(...)  log_line(LOG_INFO, __VA_ARGS__)
#define log_debug(...) log_line(LOG_DEBUG, __VA_ARGS__)

#endif
