/* SPDX-License-Identifier: Apache-2.0 */
/* watch.c: malloc and getenv of the test program, counted. Sanitizers own malloc: with them their hook counts instead. */
#include "watch.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
#define SANITIZER_OWNS_MALLOC 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZER_OWNS_MALLOC 1
#endif

static _Thread_local struct {
    bool counting, failed;
    size_t fail_in; /* allocations until one fails; 0: none will */
    struct watch_counts counts;
} watched;

void watch_begin(void) {
    watched.counts = (struct watch_counts){0, 0};
    watched.counting = true;
}

struct watch_counts watch_end(void) {
    watched.counting = false;
    return watched.counts;
}

bool watch_allocation_failed(void) {
    watched.fail_in = 0;
    return watched.failed;
}

static void note_allocation(void) { watched.counts.allocations += watched.counting; }

#ifdef SANITIZER_OWNS_MALLOC

extern int __sanitizer_install_malloc_and_free_hooks(void (*malloc_hook)(const volatile void *, size_t),
                                                     void (*free_hook)(const volatile void *));

static void malloc_hook(const volatile void *memory, size_t bytes) {
    (void)memory;
    (void)bytes;
    note_allocation();
}
static void free_hook(const volatile void *memory) { (void)memory; }

__attribute__((constructor)) static void install_hooks(void) {
    (void)__sanitizer_install_malloc_and_free_hooks(malloc_hook, free_hook);
}

bool watch_fail_allocation(size_t n) {
    (void)n;
    return false;
}

#else

extern void *__libc_malloc(size_t bytes);
extern void *__libc_calloc(size_t count, size_t bytes);
extern void *__libc_realloc(void *memory, size_t bytes);
extern void *__libc_memalign(size_t alignment, size_t bytes);

bool watch_fail_allocation(size_t n) {
    watched.failed = false;
    watched.fail_in = n;
    return true;
}

static bool fails_now(void) {
    note_allocation();
    if (watched.fail_in == 0 || --watched.fail_in > 0)
        return false;
    watched.failed = true;
    errno = ENOMEM;
    return true;
}

void *malloc(size_t bytes) { return fails_now() ? NULL : __libc_malloc(bytes); }
void *calloc(size_t count, size_t bytes) { return fails_now() ? NULL : __libc_calloc(count, bytes); }
void *realloc(void *memory, size_t bytes) { return fails_now() ? NULL : __libc_realloc(memory, bytes); }
void *aligned_alloc(size_t alignment, size_t bytes) { return fails_now() ? NULL : __libc_memalign(alignment, bytes); }

#endif

extern char **environ;

char *getenv(const char *name) {
    size_t length = strlen(name);
    watched.counts.environment_reads += watched.counting;
    for (char **entry = environ; entry && *entry; entry++)
        if (strncmp(*entry, name, length) == 0 && (*entry)[length] == '=')
            return *entry + length + 1;
    return NULL;
}

char *secure_getenv(const char *name);
char *secure_getenv(const char *name) { return getenv(name); }
