/* SPDX-License-Identifier: Apache-2.0
 *
 * What the fuzzers' trainers declare.
 */
#ifndef GS_TESTS_FUZZ_DECLS_H
#define GS_TESTS_FUZZ_DECLS_H

#include "proto/wire.h"

#define DECL(NAME, RULE, ...)                                                              \
	{.name = NAME, .ndim = 1, .rule = RULE, .n_settings = 1, .setting = {{"lr", 0.5}}, \
	 __VA_ARGS__}

/* Blocks of one KiB: 3, 1, 2, 1, 1, 1 and 1 of them. The last two are a pack. */
static const struct wire_param decls[] = {
    DECL("dense", "sgd", .dim = {600}, .init = WIRE_INIT_CONSTANT),
    DECL("half", "momentum", .dim = {5}, .grad_type = WIRE_BF16, .weight_type = WIRE_F16,
	 .reduce = WIRE_WEIGHTED, .nonfinite = WIRE_NONFINITE_REJECT, .init = WIRE_INIT_TRAINER),
    {.name = "whole", .ndim = 1, .rule = "sgd", .n_settings = 3,
     .setting = {{"lr", 0.5}, {"clip_norm", 1}, {"clip_global_norm", 2}},
     .init = WIRE_INIT_TRAINER, .dim = {300}},
    {.name = "table", .ndim = 2, .rule = "adagrad", .n_settings = 1, .setting = {{"lr", 0.5}},
     .init = WIRE_INIT_UNIFORM, .init_a = -1, .init_b = 1, .dim = {9, 3}, .storage = WIRE_TABLE,
     .slot_rows = 3, .push_rows = 7, .pull_rows = 4},
    {.name = "hashed", .ndim = 2, .rule = "sgd", .n_settings = 2,
     .setting = {{"lr", 0.5}, {"clip_norm", 1}},
     .init = WIRE_INIT_CONSTANT, .dim = {6, 2}, .storage = WIRE_HASHED, .slot_rows = 2,
     .push_rows = 5, .pull_rows = 3, .admit_after = 2, .evict_after = 3, .grad_type = WIRE_F16,
     .nonfinite = WIRE_NONFINITE_SKIP},
    DECL("mended", "adam", .dim = {8}, .init = WIRE_INIT_NORMAL, .init_b = 1,
	 .reduce = WIRE_SUM, .schedule = "cosine:steps=10"),
    DECL("packed", "sgd", .dim = {7}, .grad_type = WIRE_F16, .init = WIRE_INIT_CONSTANT),
};

enum { DECLS = sizeof(decls) / sizeof(decls[0]) };

#endif
