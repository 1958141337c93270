/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bytes of a bundle: the one definition, shared by the writer (gen/pack.c) and the reader (loader/bundle.c).
 *
 * Little-endian, fixed width, no pointers, everything 8-byte aligned. One file per GPU family:
 *
 *     struct bundle_header
 *     struct bundle_kernel [num_kernels]   sorted by name, names unique
 *     struct bundle_image  [num_images]
 *     char                 strings[strings_bytes]   NUL-terminated; offset 0 is ""
 *     dictionary                            dictionary_bytes of a zstd dictionary that every frame needs; may be absent
 *     frames                                one zstd frame per image, in the order of the images
 *
 * Dictionary and frames are 8-byte aligned, with zeros between. The tables stand in front, so that one read of
 * header.tables_bytes gives all metadata. root_hash is sha256_of_halves (sha256.h) of the first tables_bytes with root_hash
 * itself taken as zero: it binds the tables, and through the hashes in them the dictionary and the images.
 */
#ifndef LIBDECODE_BUNDLE_FORMAT_H
#define LIBDECODE_BUNDLE_FORMAT_H

#include <stdint.h>

#include "abi.h"

#define BUNDLE_MAGIC "\x89LDKB\r\n\x1a" /* 8 bytes; a transfer in text mode destroys it */
#define BUNDLE_VERSION 2u
#define BUNDLE_SUFFIX ".bundle"

/* The five GPUs, as bits of bundle_kernel.gpus. The numbers are permanent. */
enum {
    BUNDLE_GPU_SM90 = 1u << 0,
    BUNDLE_GPU_SM100 = 1u << 1,
    BUNDLE_GPU_SM103 = 1u << 2,
    BUNDLE_GPU_SM120 = 1u << 3,
    BUNDLE_GPU_SM121 = 1u << 4
};

/* Limits: a file beyond them is damaged, whatever its tables say. */
#define BUNDLE_MAX_KERNELS (1u << 16)
#define BUNDLE_MAX_IMAGES (1u << 16)
#define BUNDLE_MAX_STRINGS_BYTES (1u << 24)
#define BUNDLE_MAX_IMAGE_BYTES (64u << 20)
#define BUNDLE_MAX_ALL_IMAGES_BYTES ((uint64_t)4 << 30) /* bounds the work that a file of a few KB can ask for */
#define BUNDLE_MAX_NAME_BYTES 128u
#define BUNDLE_MAX_DICTIONARY_BYTES (1u << 20)

struct bundle_header {
    uint8_t magic[8];
    uint32_t version;    /* BUNDLE_VERSION */
    uint32_t kernel_abi; /* LIBDECODE_KERNEL_ABI of the parameter blocks inside */
    uint64_t file_bytes;
    uint64_t tables_bytes; /* header, kernels, images, strings */
    uint32_t num_kernels;  /* how many it must hold: a partial file is an error */
    uint32_t num_images;
    uint64_t strings_bytes;
    uint32_t gpus;             /* union of the kernels' */
    uint32_t min_driver;       /* of the toolkit that made the images: 13000 */
    uint32_t toolkit;          /* nvcc's version, 13000 */
    uint32_t dictionary_bytes; /* 0: none */
    uint8_t root_hash[32];
    uint8_t dictionary_sha256[32]; /* zeros if there is none */
};

struct bundle_kernel {
    uint32_t name;                             /* offset in strings: file name, symbol, record name and log text in one */
    uint32_t image;                            /* index */
    uint32_t gpus;                             /* GPUs that this image serves */
    uint32_t registers;                        /* per thread, from the image */
    struct libdecode_launch_contract contract; /* as lifted from the image */
};

struct bundle_image {
    uint64_t offset; /* of the frame, from the start of the file */
    uint64_t frame_bytes;
    uint64_t image_bytes; /* uncompressed */
    uint32_t target;      /* sm number of the ELF inside: 90, 100, 120 */
    uint32_t num_kernels;
    uint8_t sha256[32]; /* of the uncompressed image */
};

_Static_assert(sizeof(struct bundle_header) == 128, "bundle_header has no padding");
_Static_assert(sizeof(struct bundle_kernel) == 16 + sizeof(struct libdecode_launch_contract), "bundle_kernel has no padding");
_Static_assert(sizeof(struct bundle_image) == 64, "bundle_image has no padding");

#endif
