/* SPDX-License-Identifier: Apache-2.0 */
/*
 * decode_time.c: the host's time of libdecode_decode and libdecode_plan_launch on the fake driver, whose calls note their arguments and
 * return, and beside them that of its launch alone. Prints; judges nothing.
 */
#include "decode_scene.h"
#include "driver.h"
#include "report.h"

enum { NUM_ROUNDS = 2001, CALLS = 100, NUM_PROBLEMS = 64 };

static void print_times(const char *title, double times[NUM_ROUNDS]) {
    const double middle = median(times, NUM_ROUNDS);
    (void)printf("  %-52s median %5.2f us, one in a hundred %5.2f us\n", title, 1e6 * middle,
                 1e6 * times[NUM_ROUNDS - NUM_ROUNDS / 100]);
}

/* The driver's launch that the last call made, made again. */
static void time_driver(void) {
    static double times[NUM_ROUNDS];
    const struct fake_cuda_call launch = *fake->last("cuLaunchKernelEx");
    const struct driver *driver = NULL;
    struct cuda_launch_config config = launch.config;
    struct cuda_launch_attribute attributes[FAKE_CUDA_MAX_ATTRIBUTES];
    _Alignas(64) uint8_t block[FAKE_CUDA_MAX_PARAMETER_BYTES];
    memcpy(attributes, launch.launch_attributes, sizeof attributes);
    memcpy(block, launch.parameters, sizeof block);
    config.attributes = attributes;
    expect_ok(driver_get(&driver));
    for (size_t round = 0; round < NUM_ROUNDS; round++) {
        const double begin = seconds_now();
        for (size_t call = 0; call < CALLS; call++)
            (void)driver->launch_kernel_ex(&config, launch.function, (void *[]){block}, NULL);
        times[round] = (seconds_now() - begin) / CALLS;
        fake->forget_calls();
    }
    print_times("the fake driver's launch alone", times);
}

/* What one call is, of `num_problems` in turns; a plan in place of a problem where there is one. */
struct work {
    const char *title;
    size_t num_problems;
    libdecode_plan *plan;
};

static void time_calls(const struct work *work) {
    static double times[NUM_ROUNDS];
    static libdecode_problem problems[NUM_PROBLEMS];
    const libdecode_tensors tensors = some_tensors();
    for (size_t index = 0; index < work->num_problems; index++) {
        problems[index] = llama3_8b();
        problems[index].batch_size = (int32_t)(1 + index % 16);
        problems[index].max_seq_len = (int32_t)(1024 << index / 16);
        expect_ok(libdecode_decode(context, &problems[index], &tensors, NULL));
    }
    for (size_t round = 0; round < NUM_ROUNDS; round++) {
        const double begin = seconds_now();
        for (size_t call = 0; call < CALLS; call++) {
            const libdecode_problem *problem = &problems[call % work->num_problems];
            expect_ok(work->plan != NULL ? libdecode_plan_launch(work->plan, &tensors, NULL)
                                         : libdecode_decode(context, problem, &tensors, NULL));
        }
        times[round] = (seconds_now() - begin) / CALLS;
        fake->forget_calls();
    }
    print_times(work->title, times);
}

int main(void) {
    void *state = NULL;
    if (begin_group(&state) != 0)
        return 1;
    const libdecode_problem problem = llama3_8b();
    libdecode_plan *plan = plan_for(&problem, NULL);
    const libdecode_tensors tensors = some_tensors();
    expect_ok(libdecode_plan_launch(plan, &tensors, NULL));
    time_driver();
    time_calls(&(struct work){"libdecode_plan_launch", 1, plan});
    time_calls(&(struct work){"libdecode_decode, one problem", 1, NULL});
    time_calls(&(struct work){"libdecode_decode, 64 problems in turns", NUM_PROBLEMS, NULL});
    libdecode_plan_destroy(plan);
    return end_group(&state) == 0 ? 0 : 1;
}
