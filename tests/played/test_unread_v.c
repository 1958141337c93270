/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_unread_v.c: skip-softmax leaves V of the tiles that no row needs unread. The device memory of the host GPU is memory of this process,
 * so V can lie where the first access to each page of memory is seen: a kernel that is played says so itself what it has read.
 *
 * It plays the one kernel of LIBDECODE_BUNDLE_PATH.
 */
#define _GNU_SOURCE /* MAP_ANONYMOUS, sigaction */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "element.h"
#include "gpu.h"

/*
 * What is read for certain. Units are a multiple of the workers and of one length, so that each is one piece, which its worker reads from
 * token 0 on. The first tokens of a unit score the same, all others far less. A warp compares a tile with what it has itself seen of this
 * piece: so with scores of the first tokens, if those are a whole number of tiles for every team. Then no warp wants a later tile, and each
 * wants those that hold first tokens: one because there was none before, the others because what equals the largest score does not lie below it.
 */
enum {
    BATCH = 2,
    KV_HEADS = 8,
    UNITS = BATCH * KV_HEADS,
    TOKENS = 1024,
    FIRST_TOKENS = 256, /* tiles of up to 128 tokens, of one team or of two */
    PAGE_SIZE = 16,
    PAGES = TOKENS / PAGE_SIZE, /* of a request */
    FIRST_PAGES = FIRST_TOKENS / PAGE_SIZE,
    MAX_HEAD_DIM = 128,
    MAX_ROWS = 16,
    MOST_MEMORY_PAGES = BATCH * PAGES * KV_HEADS * PAGE_SIZE * MAX_HEAD_DIM * 2 / 4096
};

static uint8_t *v;
static size_t v_bytes, memory_page;
static volatile unsigned char was_read[MOST_MEMORY_PAGES];

/* From then on the page of memory can be read; the instruction is done again. CTAs are threads: two may come here for one page. */
static void note_page(int signal_number, siginfo_t *info, void *context) {
    const size_t offset = (uintptr_t)info->si_addr - (uintptr_t)v;
    (void)context;
    if (offset >= v_bytes) {
        (void)signal(signal_number, SIG_DFL); /* a defect of another kind: it ends the program when it is done again */
        return;
    }
    was_read[offset / memory_page] = 1;
    (void)mprotect(v + offset / memory_page * memory_page, memory_page, PROT_READ);
}

static size_t pages_read(size_t begin, size_t end) {
    size_t count = 0;
    for (size_t page = begin; page < end; page++)
        count += was_read[page];
    return count;
}

static struct gpu gpu;

static uint16_t *device_memory(size_t bytes) {
    uint64_t address;
    assert_true(gpu_alloc(&gpu, bytes, "a test", &address));
    return gpu_pointer(address);
}

static void fill(uint16_t *elements, size_t count, double value) {
    for (size_t i = 0; i < count; i++)
        elements[i] = bf16_encode(value);
}

/* Of the pool the pages of first tokens lie in front, whoever's they are. */
static int32_t page_id(int32_t request, int32_t page) {
    return page < FIRST_PAGES ? request * FIRST_PAGES + page
                              : BATCH * FIRST_PAGES + request * (PAGES - FIRST_PAGES) + page - FIRST_PAGES;
}

static libdecode_kernel_info the_kernel(const libdecode_context *context) {
    libdecode_kernel_info kernel = LIBDECODE_KERNEL_INFO_INIT;
    assert_int_equal(libdecode_kernel_count(context), 1);
    assert_int_equal(libdecode_kernel_get_info(context, 0, &kernel), LIBDECODE_OK);
    assert_int_equal(kernel.kv_dtype, LIBDECODE_DTYPE_BF16);
    assert_true(kernel.features & LIBDECODE_FEATURE_SKIP_SOFTMAX);
    assert_true(kernel.head_dim <= MAX_HEAD_DIM && kernel.row_tile <= MAX_ROWS);
    return kernel;
}

static void launch(libdecode_context *context, const libdecode_problem *problem, libdecode_tensors *tensors) {
    libdecode_plan *plan;
    libdecode_plan_info info = LIBDECODE_PLAN_INFO_INIT;
    if (libdecode_plan_create(context, problem, NULL, &plan) != LIBDECODE_OK)
        fail_msg("%s", libdecode_error_message());
    assert_int_equal(libdecode_plan_get_info(plan, &info), LIBDECODE_OK);
    assert_int_equal(UNITS % info.workers, 0);
    tensors->workspace_bytes = info.workspace_bytes;
    tensors->workspace = device_memory(info.workspace_bytes);
    assert_int_equal(libdecode_workspace_init(context, tensors->workspace, info.workspace_bytes, NULL), LIBDECODE_OK);
    if (libdecode_plan_launch(plan, tensors, NULL) != LIBDECODE_OK)
        fail_msg("%s", libdecode_error_message());
    assert_true(gpu_wait(&gpu, NULL));
    libdecode_plan_destroy(plan);
}

/* Without a factor all of V is read; with it, of the first tokens and no more. The result is the same: the others weigh 2^-180. */
static void v_of_tiles_that_no_row_needs_is_not_read(void **state) {
    const struct sigaction action = {.sa_sigaction = note_page, .sa_flags = SA_SIGINFO};
    libdecode_context *context;
    (void)state;
    assert_int_equal(libdecode_open(NULL, &context), LIBDECODE_OK);
    const libdecode_kernel_info kernel = the_kernel(context);
    const size_t page_elements = (size_t)(KV_HEADS * PAGE_SIZE * kernel.head_dim), kv_elements = BATCH * PAGES * page_elements;
    const size_t first_elements = BATCH * FIRST_PAGES * page_elements;
    const size_t query_elements = (size_t)(UNITS * kernel.row_tile * kernel.head_dim);
    uint16_t *const query = device_memory(query_elements * 2), *const out = device_memory(query_elements * 2);
    uint16_t *const k = device_memory(kv_elements * 2);
    int32_t *const page_table = (int32_t *)device_memory(BATCH * PAGES * sizeof(int32_t));
    int32_t *const seq_lens = (int32_t *)device_memory(BATCH * sizeof(int32_t));
    v_bytes = kv_elements * 2;
    v = mmap(NULL, v_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(v != MAP_FAILED);
    assert_int_equal(sigaction(SIGSEGV, &action, NULL), 0); /* here, for cmocka has one of its own around every test */
    const size_t of_first = first_elements * 2 / memory_page, of_all = v_bytes / memory_page; /* pages of memory */
    assert_int_equal(of_first * memory_page, first_elements * 2);
    fill(query, query_elements, 1);
    fill(k, first_elements, 1); /* scores of head_dim and -head_dim: the difference, in base 2, is 184 and more */
    fill(k + first_elements, kv_elements - first_elements, -1);
    fill((uint16_t *)v, first_elements, 1);
    fill((uint16_t *)v + first_elements, kv_elements - first_elements, 2);
    for (int32_t request = 0; request < BATCH; request++) {
        seq_lens[request] = TOKENS;
        for (int32_t page = 0; page < PAGES; page++)
            page_table[request * PAGES + page] = page_id(request, page);
    }
    libdecode_problem problem = {.struct_size = sizeof problem,
                                 .query_dtype = LIBDECODE_DTYPE_BF16,
                                 .features = LIBDECODE_FEATURE_SKIP_SOFTMAX,
                                 .batch_size = BATCH,
                                 .num_qo_heads = KV_HEADS * kernel.row_tile,
                                 .num_kv_heads = KV_HEADS,
                                 .head_dim = kernel.head_dim,
                                 .page_size = PAGE_SIZE,
                                 .max_seq_len = TOKENS};
    libdecode_tensors tensors = {.struct_size = sizeof tensors,
                                 .query = query,
                                 .k_cache = k,
                                 .v_cache = v,
                                 .page_table = page_table,
                                 .seq_lens = seq_lens,
                                 .out = out};
    static const float factors[] = {0, 0.01f};
    for (int i = 0; i < 2; i++) {
        problem.skip_softmax_threshold_scale_factor = factors[i];
        memset((void *)was_read, 0, sizeof was_read);
        assert_int_equal(mprotect(v, v_bytes, PROT_NONE), 0);
        fill(out, query_elements, 0);
        launch(context, &problem, &tensors);
        assert_int_equal(pages_read(0, of_first), of_first);
        assert_int_equal(pages_read(of_first, of_all), factors[i] == 0 ? of_all - of_first : 0);
        for (size_t element = 0; element < query_elements; element++)
            assert_int_equal(out[element], bf16_encode(1));
    }
    libdecode_close(context);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(v_of_tiles_that_no_row_needs_is_not_read)};
    char why[256];
    memory_page = (size_t)sysconf(_SC_PAGESIZE);
    if (gpu_find(&gpu, why, sizeof why) != GPU_PRESENT || !gpu_open(&gpu, 0))
        return 1;
    return cmocka_run_group_tests_name("unread_v", tests, NULL, NULL);
}
