/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bundle_fixture.c: a list of kernels in, the bytes of a bundle out, in memory and without nvcc. Each image is a real fatbin
 * with a real cubin around no code: it passes every check of the loader, and no GPU would run it.
 *
 *     struct fixture_kernel kernel = {.name = "gqa_decode_kvbf16_d128_r8_p16_c1_o0_sm90", .target = 90};
 *     size_t bytes;
 *     uint8_t *data = fixture_bundle(&kernel, 1, &bytes);       // free(data)
 *     bundle_open_memory(data, bytes, "memory", &bundle);
 *
 * A hostile bundle is an honest one that was altered: change what you like, then fixture_seal() makes the root hash right.
 * Every function ends the program when memory runs out.
 */
#ifndef LIBDECODE_BUNDLE_FIXTURE_H
#define LIBDECODE_BUNDLE_FIXTURE_H

#include <stddef.h>
#include <stdint.h>

#include "bundle_format.h"

#define FIXTURE_REGISTERS 96u

struct fixture_kernel {
    const char *name;
    uint32_t target;                           /* 90, 100 or 120 */
    uint32_t gpus;                             /* BUNDLE_GPU_* bits; 0: all that the target serves */
    uint32_t image;                            /* kernels with equal numbers above 0 share an image; 0: one of its own */
    struct libdecode_launch_contract contract; /* .magic 0: fixture_contract() */
};

/* A plausible contract: GQA decode, bf16, head_dim 128, row_tile 8, no cluster, 100 KiB of shared memory. */
struct libdecode_launch_contract fixture_contract(void);

/* What a kernel of batch decode computes; that contract announces none of it, nor more than one query token. */
extern const uint32_t fixture_decode_features;

/* The dtypes of a KV cache, as kernels name them, and the queries that go with each. */
struct fixture_kv_dtype {
    const char *name;
    uint32_t number, query_dtypes;
};
enum { FIXTURE_KV_DTYPES = 5 };
extern const struct fixture_kv_dtype fixture_kv_dtypes[FIXTURE_KV_DTYPES];

/* A fatbin that holds these kernels (all of one target), uncompressed. */
uint8_t *fixture_image(const struct fixture_kernel *kernels, size_t num_kernels, size_t *ret_bytes);

/* A zstd dictionary, trained on such images; free(.bytes). */
struct fixture_dictionary {
    uint8_t *bytes;
    size_t num_bytes;
};
struct fixture_dictionary fixture_dictionary(void);

/* One image of a bundle to be: compressed by fixture_assemble unless `frame` is given. */
struct fixture_image_bytes {
    const uint8_t *bytes;
    size_t num_bytes;
    const uint8_t *frame; /* NULL: compress `bytes` */
    size_t frame_bytes;
    uint32_t target;
    uint32_t num_kernels;
};

/* The bundle of `kernels` (sorted here by name); .image is an index into `images`. Sealed. `dictionary` NULL: without one. */
uint8_t *fixture_assemble_with(const struct fixture_dictionary *dictionary, const struct fixture_kernel *kernels,
                               size_t num_kernels, const struct fixture_image_bytes *images, size_t num_images,
                               size_t *ret_bytes);
uint8_t *fixture_assemble(const struct fixture_kernel *kernels, size_t num_kernels, const struct fixture_image_bytes *images,
                          size_t num_images, size_t *ret_bytes);

/* Both in one: makes the images, assembles, seals. */
uint8_t *fixture_bundle_with(const struct fixture_dictionary *dictionary, const struct fixture_kernel *kernels,
                             size_t num_kernels, size_t *ret_bytes);
uint8_t *fixture_bundle(const struct fixture_kernel *kernels, size_t num_kernels, size_t *ret_bytes);

/* The root hash of tables that were altered. Reads tables_bytes from the header; does nothing if that lies. */
void fixture_seal(uint8_t *bundle, size_t bytes);

/* The tables of a bundle in memory, to alter them. */
struct bundle_header *fixture_header(uint8_t *bundle);
struct bundle_kernel *fixture_kernels(uint8_t *bundle);
struct bundle_image *fixture_images(uint8_t *bundle);
uint8_t *fixture_dictionary_of(uint8_t *bundle); /* where it is, or would be */
char *fixture_strings(uint8_t *bundle);

void fixture_write_file(const char *path, const void *data, size_t bytes);

#endif
