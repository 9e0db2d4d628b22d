/* SPDX-License-Identifier: Apache-2.0
 *
 * `fuzz_seeds DIR`: the first inputs, from the tests' samples, in a folder for each fuzzer. The corpora
 * in the tree began with these; tests/fuzz/run --merge keeps what else was found.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"
#include "decls.h"
#include "store/checkpoint.h"
#include "tests/proto/wire_samples.h"

static const char *root;

static void put(const char *target, const char *name, const void *bytes, size_t n)
{
	char path[512];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", root, target);
	mkdir(path, 0777);
	snprintf(path, sizeof(path), "%s/%s/%s", root, target, name);
	f = fopen(path, "wb");
	if (!f || fwrite(bytes, 1, n, f) != n || fclose(f)) {
		perror(path);
		exit(1);
	}
}

static void put_text(const char *target, unsigned i, const char *before, size_t n, const char *text)
{
	char name[32], all[512];

	memcpy(all, before, n);
	memcpy(all + n, text, strlen(text));
	snprintf(name, sizeof(name), "seed-%02u", i);
	put(target, name, all, n + strlen(text));
}

static void wire(void)
{
	for (int i = 0; i < SAMPLES; i++) {
		struct wire_msg msg = sample(i);
		uint8_t buf[WIRE_MSG_MAX];
		char name[32];
		int n = wire_encode(&msg, buf, sizeof(buf));

		snprintf(name, sizeof(name), "seed-%02d", i);
		if (n > 0)
			put("wire", name, buf, (size_t)n);
	}
}

static void texts(void)
{
	static const char *const uris[] = {
		"shm:name.of-it_9", "rdma://10.0.0.7:18515", "rdma://[fe80::1%eth0]:1?dev=rxe0&gid=1",
		"rdma://*:0?tc=104&sl=3&mtu=4096", "rdma://host.name:65535",
	};
	static const char *const schedules[] = {
		"cosine:steps=1000,end=0.001", "warmup:steps=100+step:every=300,gamma=0.5",
		"multistep:at=10/20/30,gamma=0.1", "piecewise:at=5/9,rates=0.1/0.01/0.001",
		"polynomial:steps=9,end=0.1,power=2,cycle=1", "noam:d_model=512,warmup=4000",
		"one_cycle:steps=100,pct_start=0.3,div_factor=25", "exponential:gamma=0.9",
	};

	for (unsigned i = 0; i < sizeof(uris) / sizeof(uris[0]); i++)
		put_text("uri", i, "", 0, uris[i]);
	for (unsigned i = 0; i < sizeof(schedules) / sizeof(schedules[0]); i++)
		put_text("settings", i, "\0", 1, schedules[i]);
	put_text("settings", 90, "\1\3\1", 3, "sgd");
	put_text("rows", 0, "", 0, "\2\3\6\1\2\6\3\4\010\5\6\012\7\10\2\1\14\11\12\6\13\14");
}

/* A server of each mode; two trainers come, and push, and pass barriers. */
static void servers(void)
{
	unsigned i = 0;

	for (unsigned mode = 0; mode < 3; mode++)
		for (unsigned legal = 0; legal < 2; legal++) {
			uint8_t b[600] = {(uint8_t)(5u << 5 | mode << 2 | 2 | legal), 1 + (1 << 2)};
			size_t n = 2;
			char name[32];

			for (unsigned step = 0; step < 40; step++)
				for (unsigned peer = 0; peer < 2; peer++) {
					unsigned act = step < 4 ? 8 : step % 8 == 7 ? 0 : 9;

					if (!legal)
						act = act << 4 | 15;
					b[n++] = (uint8_t)(peer | act << 2);
					b[n++] = (uint8_t)(act >> 6);
					if (step >= 4)
						b[n++] = (uint8_t)(step % 8 | 2 << 4);
				}
			snprintf(name, sizeof(name), "seed-%02u", i++);
			put("server", name, b, n);
		}
}

/* A good server, and a program that pushes and pulls. */
static void trainers(void)
{
	for (unsigned mode = 0; mode < 3; mode++)
		for (unsigned load = 0; load < 2; load++) {
			uint8_t b[300] = {(uint8_t)(3u << 5 | mode << 3 | 1u << 1 | load)};
			size_t n = 1;
			char name[32];

			b[n++] = 8; /* welcome */
			memcpy(b + n, "\2\1\100\0", 4);
			n += 4;
			for (unsigned i = 0; i < 120; i++) {
				static const uint8_t acts[] = {8, 8, 8, 12, 8, 0, 8, 1, 8, 2, 8, 5, 8, 6};

				b[n++] = acts[i % sizeof(acts)];
			}
			snprintf(name, sizeof(name), "seed-%02u", mode * 2 + load);
			put("trainer", name, b, n);
		}
}

static void tensors(void)
{
	static const char header[] =
	    "{\"__metadata__\":{\"format\":\"pt\"},\"a\":{\"dtype\":\"F32\",\"shape\":[2,2],"
	    "\"data_offsets\":[0,16]},\"b\":{\"dtype\":\"BF16\",\"shape\":[],\"data_offsets\":[16,18]},"
	    "\"c\":{\"dtype\":\"BOOL\",\"shape\":[0],\"data_offsets\":[18,18]}}";
	uint8_t b[512] = {0};
	uint64_t n = sizeof(header) - 1;

	memcpy(b, &n, 8);
	memcpy(b + 8, header, n);
	put("safetensors", "seed-00", b, 8 + n + 18);
}

static void manifests(void)
{
	struct checkpoint_param param[2] = {
		{.decl = decls[0], .rate = 0.5, .block_elems = 256, .blocks = 3},
		{.decl = decls[3], .rate = 1, .block_elems = 27, .blocks = 1, .updates = 7},
	};
	struct checkpoint_manifest m = {.format = CHECKPOINT_FORMAT, .number = 12,
					.written = 1700000000, .mode = WIRE_SYNC, .step = 34,
					.trainers = 2, .server = 99, .params = 2, .param = param,
					.weights = {512, {1, 2}}, .state = {1024, {3, 4}}};
	char *text;

	for (m.params = 0; m.params <= 2; m.params++) {
		char name[32];

		if (checkpoint_manifest_print(&m, &text)) {
			fprintf(stderr, "manifest %u: %s\n", m.params, err_text());
			exit(1);
		}
		snprintf(name, sizeof(name), "seed-%02u", m.params);
		put("manifest", name, text, strlen(text));
		free(text);
	}
}

int main(int argc, char **argv)
{
	if (argc != 2) {
		fputs("usage: fuzz_seeds DIR\n", stderr);
		return 2;
	}
	root = argv[1];
	mkdir(root, 0777);
	wire();
	texts();
	servers();
	trainers();
	tensors();
	manifests();
	return 0;
}
