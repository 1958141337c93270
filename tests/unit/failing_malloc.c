/* SPDX-License-Identifier: Apache-2.0 */
/* failing_malloc.c: an allocation in; memory, or on the n-th call none. Between the code under test and the C library. */
#include "failing_malloc.h"

#include <zstd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>

#include <cmocka.h>

static atomic_size_t countdown; /* 0: off */
static atomic_bool has_failed;

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t count, size_t bytes);
void *__real_realloc(void *memory, size_t bytes);
char *__real_strdup(const char *text);
void *__real_aligned_alloc(size_t alignment, size_t bytes);
ZSTD_DCtx *__real_ZSTD_createDCtx(void);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);
void *__wrap_realloc(void *memory, size_t bytes);
char *__wrap_strdup(const char *text);
void *__wrap_aligned_alloc(size_t alignment, size_t bytes);
ZSTD_DCtx *__wrap_ZSTD_createDCtx(void);

void fail_allocation(size_t n) {
    atomic_store(&has_failed, false);
    atomic_store(&countdown, n);
}

bool allocation_failed(void) { return atomic_load(&has_failed); }

size_t fail_each_allocation(libdecode_status (*run)(void)) {
    for (size_t num_failures = 0;; num_failures++) {
        fail_allocation(num_failures + 1);
        libdecode_status status = run();
        bool failed = allocation_failed();
        fail_allocation(0);
        assert_int_equal(status, failed ? LIBDECODE_ERROR_OUT_OF_MEMORY : LIBDECODE_OK);
        if (!failed)
            return num_failures;
    }
}

static bool is_due(void) {
    size_t left = atomic_load(&countdown);
    while (left > 0 && !atomic_compare_exchange_weak(&countdown, &left, left - 1))
        continue;
    if (left != 1)
        return false;
    atomic_store(&has_failed, true);
    return true;
}

void *__wrap_malloc(size_t bytes) { return is_due() ? NULL : __real_malloc(bytes); }

void *__wrap_calloc(size_t count, size_t bytes) { return is_due() ? NULL : __real_calloc(count, bytes); }

void *__wrap_realloc(void *memory, size_t bytes) { return is_due() ? NULL : __real_realloc(memory, bytes); }

char *__wrap_strdup(const char *text) { return is_due() ? NULL : __real_strdup(text); }

void *__wrap_aligned_alloc(size_t alignment, size_t bytes) { return is_due() ? NULL : __real_aligned_alloc(alignment, bytes); }

ZSTD_DCtx *__wrap_ZSTD_createDCtx(void) { return is_due() ? NULL : __real_ZSTD_createDCtx(); }
