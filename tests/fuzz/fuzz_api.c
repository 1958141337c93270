/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_api.c: any bytes in, read as calls of libdecode.h with nearly right arguments over the fake driver, whose calls may fail:
 * each ends in success or in a named error, writes its output only in success, and leaves nothing behind.
 * Run by libFuzzer (-Dfuzzing=libfuzzer, with the fake's folder in LD_LIBRARY_PATH), and over its corpus by replay.c.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "arbitrary.h"
#include "bundle_fixture.h"
#include "decode_fixture.h"
#include "fake_cuda.h"

#define MAX_CALLS 24
#define NUM_CONTEXTS 3
#define NUM_PLANS 6
#define NUM_KERNELS 5

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

struct session {
    struct feed feed;
    libdecode_context *contexts[NUM_CONTEXTS];
    struct {
        libdecode_plan *plan;
        size_t context;
        uint32_t features;
    } plans[NUM_PLANS];
    uint8_t *bundles[NUM_CONTEXTS]; /* altered ones, which live as long as the context */
};

static const struct fake_cuda *fake;
static uint8_t *small_bundle; /* a few kernels, quick to open */
static size_t small_bundle_bytes;

static void begin_once(void) {
    static const struct {
        const char *name;
        uint32_t dtype, head_dim, row_tile, cluster_size;
    } kernels[] = {{"a_sm90", KERNEL_DTYPE_BF16, 128, 8, 1},
                   {"b_sm90", KERNEL_DTYPE_BF16, 128, 8, 4},
                   {"c_sm90", KERNEL_DTYPE_BF16, 64, 8, 1},
                   {"d_sm90", KERNEL_DTYPE_FP16, 128, 32, 2},
                   {"e_sm90", KERNEL_DTYPE_FP16, 64, 16, 1}};
    struct fixture_kernel fixtures[NUM_KERNELS];
    if (fake != NULL)
        return;
    fake = fake_cuda();
    require(fake != NULL);
    for (size_t index = 0; index < NUM_KERNELS; index++) {
        struct libdecode_launch_contract contract = fixture_contract();
        contract.kv_dtype = kernels[index].dtype;
        contract.query_dtypes = 1u << contract.kv_dtype;
        contract.out_dtypes = 1u << KERNEL_DTYPE_BF16 | 1u << KERNEL_DTYPE_FP16;
        contract.head_dim = kernels[index].head_dim;
        contract.row_tile = kernels[index].row_tile;
        contract.cluster_size = kernels[index].cluster_size;
        contract.features = CONTRACT_FEATURE_WINDOW | CONTRACT_FEATURE_SINKS | CONTRACT_FEATURE_LSE |
                            CONTRACT_FEATURE_V_PAGE_TABLE | CONTRACT_FEATURE_QUERY_POSITIONS | CONTRACT_FEATURE_SKIP_SOFTMAX |
                            (contract.cluster_size == 1 ? CONTRACT_FEATURE_BATCH_INVARIANT : 0u);
        fixtures[index] = (struct fixture_kernel){.name = kernels[index].name, .target = 90, .contract = contract};
    }
    small_bundle = fixture_bundle(fixtures, NUM_KERNELS, &small_bundle_bytes);
}

static void count_line(void *cookie, libdecode_log_level level, const char *message) {
    (void)level;
    *(size_t *)cookie += strlen(message);
}

static void count_verdict(void *cookie, const libdecode_verdict *verdict) {
    *(size_t *)cookie += strlen(verdict->kernel) + strlen(verdict->reason);
}

static size_t letters; /* of all that callbacks got */

/* ---------------------------------------------------------------------------------------------------------- contexts */

static void close_context(struct session *session, size_t index) {
    for (size_t plan = 0; plan < NUM_PLANS; plan++) {
        if (session->plans[plan].plan != NULL && session->plans[plan].context == index) {
            libdecode_plan_destroy(session->plans[plan].plan);
            session->plans[plan].plan = NULL;
        }
    }
    libdecode_close(session->contexts[index]);
    session->contexts[index] = NULL;
    free(session->bundles[index]);
    session->bundles[index] = NULL;
}

/* Pieces of kernel policies, one after the other. */
static void arbitrary_policy(struct feed *feed, char *text, size_t size) {
    static const char *const pieces[] = {"force=", "prefer=",       "deny=", "*", "a_*",   "?_sm90",
                                         ",",      "batch_decode:", "x",     "",  "c_sm90"};
    text[0] = '\0';
    for (uint32_t left = feed_below(feed, 8); left > 0; left--) {
        const char *piece = pieces[feed_below(feed, sizeof pieces / sizeof pieces[0])];
        if (strlen(text) + strlen(piece) + 1 < size)
            memcpy(text + strlen(text), piece, strlen(piece) + 1);
    }
}

static void open_one(struct session *session) {
    struct feed *feed = &session->feed;
    const size_t index = feed_below(feed, NUM_CONTEXTS);
    char policy[160];
    close_context(session, index);
    session->bundles[index] = malloc(small_bundle_bytes);
    require(session->bundles[index] != NULL);
    memcpy(session->bundles[index], small_bundle, small_bundle_bytes);
    const uint32_t kind = feed_below(feed, 8);
    if (kind == 0)
        feed_mutations(feed, session->bundles[index], small_bundle_bytes, 4);
    const libdecode_memory_bundle bundle = {session->bundles[index],
                                            kind == 1 ? feed_byte(feed) * small_bundle_bytes / 256 : small_bundle_bytes};
    const uint8_t hashes[1][32] = {{1}};
    const char *const paths[] = {"/nowhere/at.bundle"};
    libdecode_open_options options = {.struct_size = sizeof options};
    options.flags = LIBDECODE_OPEN_IGNORE_ENVIRONMENT | LIBDECODE_OPEN_BUNDLES_ONLY;
    options.flags |= feed_below(feed, 4) == 0 ? LIBDECODE_OPEN_STRICT : 0u;
    options.log_level = (libdecode_log_level)feed_below(feed, 7);
    options.log = count_line;
    options.log_cookie = &letters;
    options.memory_bundles = &bundle;
    options.num_memory_bundles = feed_below(feed, 16) == 0 ? 0 : 1;
    if (feed_below(feed, 3) == 0) {
        arbitrary_policy(feed, policy, sizeof policy);
        options.kernel_policy = policy;
    }
    if (kind == 2) {
        options.root_hashes = hashes;
        options.num_root_hashes = 1;
    }
    if (kind == 3) {
        options.bundle_paths = paths;
        options.num_bundle_paths = 1;
    }
    if (kind == 4)
        options.struct_size = (size_t)feed_number(feed) % (2 * sizeof options);
    if (options.struct_size > sizeof options)
        return; /* what lies behind the struct is not the library's to be given */
    libdecode_context *context = NULL;
    require(settled(libdecode_open(&options, &context)) == (context != NULL));
    session->contexts[index] = context;
}

static libdecode_context *some_context(struct session *session, size_t *ret_index) {
    *ret_index = feed_below(&session->feed, NUM_CONTEXTS);
    for (size_t index = 0; session->contexts[*ret_index] == NULL && index < NUM_CONTEXTS; index++)
        *ret_index = (*ret_index + 1) % NUM_CONTEXTS;
    return session->contexts[*ret_index];
}

/* -------------------------------------------------------------------------------------------------- plans and launches */

/* What most inputs begin with, so that there is something to launch. */
static void plan_llama(struct session *session) {
    const libdecode_problem problem = llama3_8b();
    for (size_t index = 0; index < NUM_CONTEXTS && session->plans[0].plan == NULL; index++) {
        if (session->contexts[index] != NULL)
            (void)settled(libdecode_plan_create(session->contexts[index], &problem, NULL, &session->plans[0].plan));
        session->plans[0].context = index;
    }
}

static void create_plan(struct session *session) {
    struct feed *feed = &session->feed;
    size_t index;
    libdecode_context *context = some_context(session, &index);
    const size_t slot = feed_below(feed, NUM_PLANS);
    const libdecode_problem problem = arbitrary_problem(feed);
    const libdecode_device device = arbitrary_device(feed);
    libdecode_plan *plan = NULL;
    libdecode_plan_destroy(session->plans[slot].plan);
    session->plans[slot].plan = NULL;
    const libdecode_device *given = feed_below(feed, 3) == 0 ? NULL : &device;
    require(settled(libdecode_plan_create(context, &problem, given, &plan)) == (plan != NULL));
    session->plans[slot].plan = plan;
    session->plans[slot].context = index;
    session->plans[slot].features = problem.features;
}

/* One of the plans that there are, if there is any. */
static size_t some_slot(struct session *session) {
    size_t slot = feed_below(&session->feed, NUM_PLANS);
    for (size_t index = 0; session->plans[slot].plan == NULL && index < NUM_PLANS; index++)
        slot = (slot + 1) % NUM_PLANS;
    return slot;
}

static libdecode_plan *some_plan(struct session *session) { return session->plans[some_slot(session)].plan; }

static libdecode_stream some_stream(struct feed *feed) {
    return feed_below(feed, 2) == 0 ? NULL : (libdecode_stream)(uintptr_t)0x1000;
}

static void launch_plan(struct session *session) {
    struct feed *feed = &session->feed;
    const size_t slot = some_slot(session);
    libdecode_plan *plan = session->plans[slot].plan;
    const libdecode_problem problem = {.features = feed_below(feed, 2) == 0 ? session->plans[slot].features : feed_byte(feed)};
    const libdecode_tensors tensors = arbitrary_tensors(feed, &problem);
    (void)settled(libdecode_plan_launch(plan, &tensors, some_stream(feed)));
}

static void prepare_plans(struct session *session) {
    struct feed *feed = &session->feed;
    size_t index;
    libdecode_context *context = some_context(session, &index);
    libdecode_plan *plans[4];
    const size_t count = feed_below(feed, 5);
    for (size_t plan = 0; plan < count; plan++)
        plans[plan] = some_plan(session);
    (void)settled(libdecode_prepare(context, plans, count));
}

static void decode(struct session *session) {
    struct feed *feed = &session->feed;
    size_t index, bytes = 77;
    libdecode_context *context = some_context(session, &index);
    const libdecode_problem problem = arbitrary_problem(feed);
    const libdecode_tensors tensors = arbitrary_tensors(feed, &problem);
    for (uint32_t times = feed_below(feed, 3); times > 0; times--)
        (void)settled(libdecode_decode(context, &problem, &tensors, some_stream(feed)));
    require(settled(libdecode_decode_workspace_bytes(context, &problem, &bytes)) || bytes == 77);
}

static void explain(struct session *session) {
    size_t index;
    libdecode_context *context = some_context(session, &index);
    const libdecode_problem problem = arbitrary_problem(&session->feed);
    const libdecode_device device = arbitrary_device(&session->feed);
    (void)settled(libdecode_explain(context, &problem, &device, count_verdict, &letters));
}

/* Into memory of exactly so many bytes, whatever the caller's struct_size is. */
static void *caller_struct(struct feed *feed, size_t known_bytes) {
    size_t bytes = feed_below(feed, 2) == 0 ? known_bytes : sizeof(size_t) + feed_byte(feed);
    void *memory = calloc(1, bytes);
    require(memory != NULL);
    memcpy(memory, &bytes, sizeof bytes);
    return memory;
}

static void look_inside(struct session *session) {
    struct feed *feed = &session->feed;
    size_t index;
    libdecode_context *context = some_context(session, &index);
    libdecode_plan_info *plan_info = caller_struct(feed, sizeof *plan_info);
    libdecode_kernel_info *kernel_info = caller_struct(feed, sizeof *kernel_info);
    libdecode_bundle_info *bundle_info = caller_struct(feed, sizeof *bundle_info);
    libdecode_device *device = caller_struct(feed, sizeof *device);
    (void)settled(libdecode_plan_get_info(some_plan(session), plan_info));
    const size_t wanted = feed_byte(feed);
    (void)settled(libdecode_kernel_get_info(context, wanted, kernel_info));
    (void)settled(libdecode_bundle_get_info(context, wanted, bundle_info));
    (void)settled(libdecode_device_current(context, device));
    letters += libdecode_kernel_count(context) + libdecode_bundle_count(context);
    if (feed_below(feed, 8) == 0)
        (void)settled(libdecode_verify(context));
    (void)libdecode_plan_workspace_bytes(some_plan(session));
    free(plan_info);
    free(kernel_info);
    free(bundle_info);
    free(device);
}

static void init_workspace(struct session *session) {
    size_t index;
    libdecode_context *context = some_context(session, &index);
    const uintptr_t address = (uintptr_t)feed_number(&session->feed);
    (void)settled(
        libdecode_workspace_init(context, (void *)address, (size_t)feed_number(&session->feed), some_stream(&session->feed)));
}

/* What a driver and a program may do beside. */
static void change_the_world(struct feed *feed) {
    static const int results[] = {1, 2, 100, 201, 400, 700, 900, 999};
    switch (feed_below(feed, 6)) {
    case 0:
        fake->fail_at(1 + feed_below(feed, 12), (cuda_result)results[feed_below(feed, 8)]);
        break;
    case 1:
        fake->set_capture((libdecode_stream)(uintptr_t)0x1000, (int)feed_below(feed, 3));
        break;
    case 2:
        fake->context_set_current(feed_below(feed, 3) == 0 ? NULL : fake->context_create(0));
        break;
    case 3:
        fake->refuse_loads_in_capture(feed_below(feed, 2) == 0 ? 0 : 900);
        break;
    case 4:
        fake->set_driver_version((int)(12000 + 10 * feed_below(feed, 200)));
        break;
    default:
        fake->fail_at(0, 0);
        break;
    }
}

/* -------------------------------------------------------------------------------------------------------------- input */

static void call_one(struct session *session) {
    switch (feed_below(&session->feed, 15)) {
    case 0:
        open_one(session);
        break;
    case 1:
    case 2:
    case 3:
        create_plan(session);
        break;
    case 4:
    case 5:
    case 6:
        launch_plan(session);
        break;
    case 7:
        prepare_plans(session);
        break;
    case 8:
    case 9:
        decode(session);
        break;
    case 10:
        explain(session);
        break;
    case 11:
        look_inside(session);
        break;
    case 12:
    case 13:
        change_the_world(&session->feed);
        break;
    default:
        init_workspace(session);
        break;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    begin_once();
    fake->reset();
    fake->set_parameter_bytes(sizeof(struct gqa_decode_params));
    struct session session = {.feed = {data, bytes}};
    open_one(&session);
    if (feed_below(&session.feed, 4) != 0)
        plan_llama(&session);
    for (int call = 0; call < MAX_CALLS && session.feed.left > 0; call++)
        call_one(&session);
    for (size_t index = 0; index < NUM_CONTEXTS; index++)
        close_context(&session, index);
    require(fake->misuses() == 0);
    return 0;
}
