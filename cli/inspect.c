/* SPDX-License-Identifier: Apache-2.0
 *
 * `gradslot inspect`: what is in a checkpoint, in a directory of them, or in a file of tensors.
 */
#include "cli/cmd.h"
#include "cli/inspect.h"
#include "cli/opt.h"

#include <sys/stat.h>

#include "store/checkpoint.h"

static int inspect(const char *path, const struct inspect *how)
{
	struct stat st;

	if (checkpoint_is_one(path))
		return inspect_checkpoint(path, how);
	if (stat(path, &st) == 0 && S_ISDIR(st.st_mode))
		return inspect_directory(path, how);
	return inspect_file(path, how);
}

int cmd_inspect(int argc, char **argv)
{
	const char *path = NULL;
	struct inspect how = {0};
	const struct opt opts[] = {
	    {"json", OPT_FLAG, &how.json, NULL, .help = "print one JSON object"},
	    {"stats", OPT_FLAG, &how.stats, NULL,
	     .help = "with least, mean, greatest value and norm of each tensor"},
	    {NULL},
	};
	const struct opt_operand operands[] = {{"PATH", &path}, {NULL, NULL}};
	const struct opt_command cmd = {
	    "gradslot inspect",
	    "Says what is in a checkpoint, a directory of them or a safetensors file, and verifies "
	    "it.",
	    "Exits with 0 if it is sound; of a directory, if one of its checkpoints is.\n", opts};

	int rc = opt_parse_with(&cmd, operands, argc, argv);
	return rc != OPT_RUN ? rc : inspect(path, &how);
}
