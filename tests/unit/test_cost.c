/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_cost.c: the cost model against times measured on an H200 with forced numbers of workers, and at the edges of what it may
 * be given.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "bundle_fixture.h"
#include "cost.h"
#include "decode_fixture.h"

/* The kernel of head_dim 128 and row tile 8 of that cluster size. */
static struct libdecode_launch_contract contract_of(uint32_t cluster_size) {
    struct libdecode_launch_contract contract = fixture_contract();
    contract.threads = 352;
    contract.ctas_per_sm = 1;
    contract.cluster_size = cluster_size;
    contract.tile_tokens = 64;
    return contract;
}

static struct workload work_of(int64_t num_sequences, int64_t tokens) {
    return (struct workload){.num_sequences = num_sequences,
                             .row_passes = 1,
                             .tokens = tokens,
                             .total_tokens = num_sequences * tokens,
                             .token_bytes = 512};
}

static const struct {
    int64_t num_sequences, tokens;
    struct {
        uint32_t cluster_size;
        int64_t workers;
        double us;
    } times[11]; /* bf16, head_dim 128, random pages of 16 */
} measured[] = {
    /* clang-format off: one cluster size a line */
    {8,
     4096,
     {{1, 66, 12.0},
      {1, 72, 12.1},
      {1, 128, 11.2},
      {1, 132, 13.3},
      {2, 32, 9.6},
      {2, 64, 10.2},
      {2, 66, 12.8},
      {4, 16, 9.4},
      {4, 30, 12.2},
      {8, 8, 8.5},
      {8, 15, 11.9}}},
    {8,
     32768,
     {{1, 66, 40.2},
      {1, 128, 38.8},
      {1, 132, 40.4},
      {2, 32, 37.9},
      {2, 64, 37.9},
      {2, 66, 39.8},
      {4, 16, 37.5},
      {4, 30, 40.3},
      {8, 8, 36.2},
      {8, 15, 38.4}}},
    {8,
     131072,
     {{1, 66, 133.6},
      {1, 72, 130.2},
      {1, 128, 127.8},
      {1, 132, 129.8},
      {2, 32, 130.0},
      {2, 64, 126.8},
      {2, 66, 128.4},
      {4, 16, 129.7},
      {4, 30, 132.2},
      {8, 8, 128.6},
      {8, 15, 131.1}}},
    {64,
     8192,
     {{1, 66, 71.8},
      {1, 128, 67.0},
      {1, 132, 68.8},
      {2, 32, 71.8},
      {2, 64, 66.0},
      {2, 66, 69.0},
      {4, 16, 76.3},
      {4, 30, 70.7},
      {8, 8, 84.6},
      {8, 15, 70.3}}},
    /* clang-format on */
};
#define NUM_MEASURED (sizeof measured / sizeof measured[0])

static void predictions_are_near_the_times_and_in_their_order(void **state) {
    (void)state;
    libdecode_device device = preset("sm_90");
    for (size_t set = 0; set < NUM_MEASURED; set++) {
        struct workload work = work_of(measured[set].num_sequences, measured[set].tokens);
        double predicted[11];
        size_t count = 0;
        for (; count < 11 && measured[set].times[count].workers != 0; count++) {
            struct libdecode_launch_contract contract = contract_of(measured[set].times[count].cluster_size);
            double us = measured[set].times[count].us;
            predicted[count] = (double)cost_predicted_ns(&work, &device, &contract, measured[set].times[count].workers) / 1000;
            if (predicted[count] < us * 0.95 || predicted[count] > us * 1.05)
                fail_msg("%lld tokens, clusters of %u, %lld workers: %.1f us predicted, %.1f measured",
                         (long long)measured[set].tokens, contract.cluster_size, (long long)measured[set].times[count].workers,
                         predicted[count], us);
        }
        for (size_t a = 0; a < count; a++)
            for (size_t b = 0; b < count; b++)
                if (measured[set].times[a].us < measured[set].times[b].us * 0.965 && predicted[a] >= predicted[b])
                    fail_msg("%lld tokens: %.1f and %.1f us measured, %.1f and %.1f predicted", (long long)measured[set].tokens,
                             measured[set].times[a].us, measured[set].times[b].us, predicted[a], predicted[b]);
    }
}

/* Over all cluster sizes; of each, the number of workers is the model's own. */
static void the_choice_is_the_fastest_that_was_measured(void **state) {
    (void)state;
    libdecode_device device = preset("sm_90");
    for (size_t set = 0; set < NUM_MEASURED; set++) {
        struct workload work = work_of(measured[set].num_sequences, measured[set].tokens);
        uint32_t best_cluster = 0;
        struct cost best = {.predicted_ns = INT64_MAX};
        double fastest = 1e9, chosen = 0;
        for (uint32_t cluster = 1; cluster <= 8; cluster *= 2) {
            struct libdecode_launch_contract contract = contract_of(cluster);
            struct cost cost;
            assert_true(cost_estimate(&work, &device, &contract, &cost));
            assert_int_equal(cost.predicted_ns, cost_predicted_ns(&work, &device, &contract, cost.num_workers));
            if (cost.predicted_ns < best.predicted_ns) {
                best = cost;
                best_cluster = cluster;
            }
        }
        for (size_t i = 0; i < 11 && measured[set].times[i].workers != 0; i++) {
            fastest = measured[set].times[i].us < fastest ? measured[set].times[i].us : fastest;
            if (measured[set].times[i].cluster_size == best_cluster && measured[set].times[i].workers == best.num_workers)
                chosen = measured[set].times[i].us;
        }
        if (chosen != fastest)
            fail_msg("%lld tokens: clusters of %u, %d workers (%.1f us), the fastest takes %.1f", (long long)measured[set].tokens,
                     best_cluster, best.num_workers, chosen, fastest);
    }
}

static void no_more_clusters_are_planned_than_the_device_says_fit(void **state) {
    (void)state;
    libdecode_device device = preset("sm_90");
    struct workload work = work_of(131, 4096); /* a prime: only as many as fit cut as evenly as any */
    struct libdecode_launch_contract contract = contract_of(4);
    struct cost cost;
    device.resident_clusters_4 = 0; /* not known: a guess */
    assert_true(cost_estimate(&work, &device, &contract, &cost));
    assert_int_equal(cost.num_workers, 31);
    for (int32_t resident = 33; resident >= 29; resident -= 2) {
        device.resident_clusters_4 = resident;
        assert_true(cost_estimate(&work, &device, &contract, &cost));
        assert_int_equal(cost.num_workers, resident);
    }
    device.resident_clusters_16 = 7;
    contract = contract_of(16);
    assert_true(cost_estimate(&work, &device, &contract, &cost));
    assert_int_equal(cost.num_workers, 7);
    device.resident_clusters_16 = 0;
    device.sm_count = 15;
    assert_false(cost_estimate(&work, &device, &contract, &cost));
}

static void a_ragged_batch_is_planned_by_what_it_holds(void **state) {
    (void)state;
    libdecode_device device = preset("sm_90");
    struct libdecode_launch_contract contract = contract_of(1);
    struct workload even = work_of(64 * 8, 65536), ragged = even;
    struct cost even_cost, ragged_cost;
    ragged.total_tokens = even.total_tokens / 8;
    assert_true(cost_estimate(&even, &device, &contract, &even_cost));
    assert_true(cost_estimate(&ragged, &device, &contract, &ragged_cost));
    assert_in_range(ragged_cost.predicted_ns, even_cost.predicted_ns / 9, even_cost.predicted_ns / 7);
    assert_int_equal(even_cost.num_workers, 128);   /* four whole units each */
    assert_int_equal(ragged_cost.num_workers, 132); /* no number cuts them evenly: all there is room for */
    assert_int_equal(ragged_cost.records_bytes, even_cost.records_bytes);
}

/* One GB/s and the longest request there can be took -1.8 s. */
static void what_no_number_can_hold_counts_as_the_largest(void **state) {
    (void)state;
    libdecode_device device = preset("sm_90");
    static const int64_t tokens[] = {1, 4096, INT32_MAX, INT64_MAX}, sequences[] = {1, 7, INT32_MAX, INT64_MAX};
    static const int32_t bandwidths[] = {1, 4670, 1 << 24};
    for (size_t i = 0; i < 4 * 4 * 3 * 2; i++) {
        struct workload work = {.num_sequences = sequences[i % 4],
                                .tokens = tokens[i / 4 % 4],
                                .total_tokens = i % 5 == 0 ? INT64_MAX : tokens[i / 4 % 4],
                                .row_passes = i / 16 % 2 == 0 ? 1 : INT64_MAX,
                                .token_bytes = 512};
        device.memory_bandwidth_gbps = bandwidths[i / 32 % 3];
        for (uint32_t cluster = 1; cluster <= 16; cluster *= 2) {
            struct libdecode_launch_contract contract = contract_of(cluster);
            struct cost cost;
            assert_true(cost_estimate(&work, &device, &contract, &cost));
            assert_true(cost.predicted_ns >= 4000 && cost.num_workers >= 1 && cost.row_passes >= 1);
            assert_true((uint32_t)cost.num_workers * cluster <= 132);
        }
    }
    struct workload longest = work_of(1, INT32_MAX);
    struct libdecode_launch_contract contract = contract_of(1);
    struct cost cost;
    device.memory_bandwidth_gbps = 1;
    assert_true(cost_estimate(&longest, &device, &contract, &cost));
    assert_true(cost.predicted_ns > (int64_t)INT32_MAX * 512); /* 18 minutes */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(predictions_are_near_the_times_and_in_their_order),
        cmocka_unit_test(the_choice_is_the_fastest_that_was_measured),
        cmocka_unit_test(no_more_clusters_are_planned_than_the_device_says_fit),
        cmocka_unit_test(a_ragged_batch_is_planned_by_what_it_holds),
        cmocka_unit_test(what_no_number_can_hold_counts_as_the_largest),
    };
    return cmocka_run_group_tests_name("cost", tests, NULL, NULL);
}
