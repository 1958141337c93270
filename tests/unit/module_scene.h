/* SPDX-License-Identifier: Apache-2.0 */
/*
 * module_scene.c: what the tests of module.c start from: the fake driver, freshly reset, with one current context; a bundle of
 * four kernels in three images; an empty cache whose log is caught.
 */
#ifndef LIBDECODE_MODULE_SCENE_H
#define LIBDECODE_MODULE_SCENE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#undef fail /* status.h has a function of that name */

#include <stdlib.h>
#include <string.h>

#include "bundle_fixture.h"
#include "fake_cuda.h"
#include "device.h"
#include "module.h"

/* The table's order: by name. The first two share an image; the last two are just portable: 48 KiB, clusters of 8. */
enum { LARGE_SHARED, WIDE_CLUSTER, PLAIN, SECOND_PLAIN, NUM_KERNELS };

extern const struct fake_cuda *fake;
extern const struct driver *driver;
extern uint8_t *bundle_data;
extern size_t bundle_bytes;
extern struct bundle *bundle;
extern struct kernel_record *kernels;
extern struct module_cache *cache; /* of the running test; one that destroys it sets it to NULL */
extern libdecode_stream stream, other_stream;

/* The log lines of the running test. */
struct caught_log {
    int warnings;
    char warning[512];
    bool calls_back; /* the log function calls module_function itself */
};
extern struct caught_log caught;

/* False, and says why, if another libcuda.so.1 would be found. */
bool scene_find_fake(const char *program);

/* For cmocka: of the group, of a test. */
int scene_make_bundle(void **state);
int scene_free_bundle(void **state);
int scene_begin(void **state);
int scene_end(void **state);

/* As decode.c does it: module_function for the context that is current. */
libdecode_status function_here(struct module_cache *of, const struct driver *by, const struct kernel_record *record,
                               libdecode_stream on, int strict, int preparing, cuda_function *ret_function);
libdecode_status get(int kernel, cuda_function *ret_function);
libdecode_status get_strictly(int kernel, cuda_function *ret_function);
void assert_message_has(const char *text);

/* The capture mode of the calling thread. */
int thread_capture_mode(void);

#endif
