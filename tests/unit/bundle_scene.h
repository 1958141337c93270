/* SPDX-License-Identifier: Apache-2.0 */
/* bundle_scene.h: the bundle that the tests of bundle.c start from, and what they do with it: read everything, look at the
 * message. */
#ifndef LIBDECODE_BUNDLE_SCENE_H
#define LIBDECODE_BUNDLE_SCENE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "kernel_table.h"
#include "bundle_fixture.h"

static const struct fixture_kernel scene_kernels[] = {
    {.name = "alpha_sm90", .target = 90, .image = 1},
    {.name = "beta_sm90", .target = 90, .image = 1},
    {.name = "gamma_sm100", .target = 100},
    {.name = "gamma_sm120", .target = 120, .gpus = BUNDLE_GPU_SM121},
};
enum { NUM_KERNELS = 4, NUM_IMAGES = 3 };

/* A copy of its own size, so that a sanitizer sees every step beyond its end. */
static inline uint8_t *copy_of(const uint8_t *data, size_t bytes) {
    uint8_t *copy = malloc(bytes ? bytes : 1);
    assert_non_null(copy);
    memcpy(copy, data, bytes);
    return copy;
}

/* Reads every image: the first status that is not OK. */
static inline libdecode_status read_all(struct bundle *bundle) {
    libdecode_status status = LIBDECODE_OK;
    for (uint32_t image = 0; image < bundle_header(bundle)->num_images && status == LIBDECODE_OK; image++) {
        void *bytes = NULL;
        status = bundle_read_image(bundle, image, &bytes);
        free(bytes);
    }
    return status;
}

static inline libdecode_status open_and_read(const uint8_t *data, size_t bytes) {
    struct bundle *bundle = NULL;
    libdecode_status status = bundle_open_memory(data, bytes, "memory", &bundle);
    if (status != LIBDECODE_OK) {
        assert_null(bundle);
        return status;
    }
    status = read_all(bundle);
    bundle_close(bundle);
    return status;
}

static inline void assert_message_has(const char *text) {
    if (!strstr(libdecode_error_message(), text))
        fail_msg("'%s' is not in '%s'", text, libdecode_error_message());
}

#endif
