/* SPDX-License-Identifier: Apache-2.0 */
/* decode_scene.h: the fake driver with one H200, a context over the whole grid, and short ways to expect success or an error. */
#ifndef LIBDECODE_DECODE_SCENE_H
#define LIBDECODE_DECODE_SCENE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "abi.h"
#include "decode_fixture.h"
#include "fake_cuda.h"

static const struct fake_cuda *fake;
static struct grid *grid;
static libdecode_context *context;

static inline void expect_ok(libdecode_status status) {
    if (status != LIBDECODE_OK)
        fail_msg("status %d: %s", (int)status, libdecode_error_message());
}

static inline void expect_error(libdecode_status status, libdecode_status expected, const char *text) {
    if (status != expected || !strstr(libdecode_error_message(), text))
        fail_msg("status %d, message '%s', expected %d with '%s'", (int)status, libdecode_error_message(), (int)expected, text);
}

struct log {
    size_t lines[6];
    char last[6][512];
};

static inline void keep_log(void *cookie, libdecode_log_level level, const char *message) {
    struct log *log = cookie;
    log->lines[level]++;
    (void)snprintf(log->last[level], sizeof log->last[level], "%s", message);
}

static inline libdecode_context *open_grid(uint32_t flags, libdecode_log_level level, struct log *log) {
    struct grid_options options;
    libdecode_context *opened = NULL;
    grid_options(grid, &options);
    options.options.flags |= flags;
    options.options.log_level = level;
    options.options.log = log ? keep_log : NULL;
    options.options.log_cookie = log;
    expect_ok(libdecode_open(&options.options, &opened));
    return opened;
}

static inline int create_grid(void **state) {
    (void)state;
    fake = fake_cuda();
    if (!fake) {
        print_error("the fake libcuda.so.1 is not the one that is found: set LD_LIBRARY_PATH to its folder\n");
        return -1;
    }
    grid = grid_create(7);
    return 0;
}

static inline int destroy_grid(void **state) {
    (void)state;
    if (grid)
        grid_destroy(grid);
    return 0;
}

static inline int begin(void **state) {
    (void)state;
    fake->reset();
    fake->set_parameter_bytes(sizeof(struct gqa_decode_params));
    context = open_grid(0, LIBDECODE_LOG_NONE, NULL);
    return 0;
}

static inline int end(void **state) {
    (void)state;
    libdecode_close(context);
    return fake->misuses() == 0 && fake->live_modules() == 0 ? 0 : -1;
}

/* For a group of tests that share one context. */
static inline int begin_group(void **state) { return create_grid(state) == 0 ? begin(state) : -1; }
static inline int end_group(void **state) {
    const int result = context ? end(state) : -1;
    (void)destroy_grid(state);
    return result;
}

static inline libdecode_plan *plan_for(const libdecode_problem *problem, const libdecode_device *device) {
    libdecode_plan *plan = NULL;
    expect_ok(libdecode_plan_create(context, problem, device, &plan));
    return plan;
}

#endif
