/* SPDX-License-Identifier: Apache-2.0
 *
 * What a checkpoint's tensors are called and how they are shaped: for who writes them and for who
 * reads them.
 *
 * weights.safetensors has each parameter's weights under its name, as they were declared (of a
 * hashed table: a row for each that it may have). state.safetensors has, under NAME/…
 *
 *   state0 …  the optimizer's arrays, shaped as the weights; of tables [rows, floats of a row]
 *   updates   dense: of each block
 *   applied   async, ssp: pushes in the weights, [rank][block]; of tables [rank][1]
 *   keys, touched, newer, older   hashed: of each row; those below map's `used` count
 *   map       hashed: numbers of the map (server/snapshot.h)
 *   sketch    hashed, where keys have to earn their rows: its counters
 */
#ifndef GS_SERVER_SAVED_H
#define GS_SERVER_SAVED_H

#include <stdbool.h>

#include "server/table.h"
#include "store/store.h"

enum saved_kind {
	SAVED_STATE,
	SAVED_UPDATES = SAVED_STATE + KERN_STATE_MAX,
	SAVED_APPLIED,
	SAVED_KEYS,
	SAVED_TOUCHED,
	SAVED_NEWER,
	SAVED_OLDER,
	SAVED_MAP,
	SAVED_SKETCH,
	SAVED_KINDS,
};

void saved_weights(const struct param *p, struct store_tensor *out);
/* Name, type and shape of one beside them; false: the parameter has none of that kind. */
bool saved_tensor(const struct param *p, enum saved_kind kind, struct store_tensor *out);
/* The name alone. */
void saved_name(const struct param *p, enum saved_kind kind, char out[STORE_NAME_MAX + 1]);

#endif
