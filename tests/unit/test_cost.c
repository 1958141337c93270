/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_cost.c: the cost model against times measured on an H200 with forced numbers of workers, and at the edges of what it may
 * be given.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "bundle_fixture.h"
#include "cost.h"
#include "decode_fixture.h"

static struct libdecode_launch_contract contract_for(uint32_t head_dim, uint32_t row_tile, uint32_t cluster_size) {
    struct libdecode_launch_contract contract = fixture_contract();
    contract.threads = 352;
    contract.consumer_warps = 8;
    contract.ctas_per_sm = 1;
    contract.head_dim = head_dim;
    contract.row_tile = row_tile;
    contract.cluster_size = cluster_size;
    contract.tile_tokens = 8192 / head_dim;
    return contract;
}

/* The kernel of head_dim 128 and row tile 8 of that cluster size. */
static struct libdecode_launch_contract contract_of(uint32_t cluster_size) { return contract_for(128, 8, cluster_size); }

static struct workload work_of(int64_t num_sequences, int64_t tokens) {
    return (struct workload){.num_sequences = num_sequences,
                             .row_passes = 1,
                             .tokens = tokens,
                             .total_tokens = num_sequences * tokens,
                             .token_bytes = 512,
                             .computed_token_bytes = 512};
}

/* ------------------------------------------------------------------------------------------------------------ measured */

/* h200_workers.tsv and h200_workers_e4m3.tsv: one shape. */
struct shape {
    uint32_t kv_dtype;
    int num_qo_heads, num_kv_heads, head_dim, batch_size, seq_len;
    struct {
        int workers;
        double us;  /* 0: not measured */
    } times[4][32]; /* of clusters of 1, 2, 4, 8 */
};
#define MAX_SHAPES 150
static struct shape shapes[MAX_SHAPES];
static size_t num_shapes;

static bool read_file(const char *path, uint32_t kv_dtype) {
    char line[2048];
    FILE *file = fopen(path, "r");
    if (!file)
        return false;
    while (fgets(line, sizeof line, file)) {
        struct shape row;
        int cluster_size, used;
        memset(&row, 0, sizeof row);
        row.kv_dtype = kv_dtype;
        if (sscanf(line, "%d %d %d %d %d %d%n", &row.num_qo_heads, &row.num_kv_heads, &row.head_dim, &row.batch_size,
                   &row.seq_len, &cluster_size, &used) != 6)
            continue;
        if (cluster_size == 1)
            shapes[num_shapes++] = row;
        int level = cluster_size == 8 ? 3 : cluster_size / 2, more;
        char *next = line + used;
        for (size_t i = 0; sscanf(next, " %d:%lf%n", &shapes[num_shapes - 1].times[level][i].workers,
                                  &shapes[num_shapes - 1].times[level][i].us, &more) == 2;
             i++)
            next += more;
    }
    (void)fclose(file);
    return true;
}

static int read_shapes(void **state) {
    (void)state;
    bool good = read_file(MEASURED_DIR "/h200_workers.tsv", KERNEL_DTYPE_BF16) &&
                read_file(MEASURED_DIR "/h200_workers_e4m3.tsv", KERNEL_DTYPE_E4M3);
    return good && num_shapes > 0 ? 0 : -1;
}

static int element_bytes(const struct shape *shape) { return shape->kv_dtype == KERNEL_DTYPE_E4M3 ? 1 : 2; }

static struct workload work_of_shape(const struct shape *shape) {
    struct workload work = work_of((int64_t)shape->batch_size * shape->num_kv_heads, shape->seq_len);
    work.token_bytes = work.computed_token_bytes = 2 * shape->head_dim * element_bytes(shape);
    return work;
}

static struct libdecode_launch_contract contract_of_shape(const struct shape *shape, uint32_t cluster_size) {
    int group_size = shape->num_qo_heads / shape->num_kv_heads;
    struct libdecode_launch_contract contract = contract_for((uint32_t)shape->head_dim,
                                                             group_size <= 8    ? 8
                                                             : group_size <= 16 ? 16
                                                                                : 32,
                                                             cluster_size);
    contract.kv_dtype = shape->kv_dtype;
    contract.tile_tokens = 16384 / (uint32_t)(shape->head_dim * element_bytes(shape));
    return contract;
}

static double fastest_us(const struct shape *shape) {
    double fastest = INFINITY;
    for (int level = 0; level < 4; level++)
        for (size_t i = 0; shape->times[level][i].us > 0; i++)
            fastest = fmin(fastest, shape->times[level][i].us);
    return fastest;
}

/* 0: not measured. */
static double measured_us(const struct shape *shape, int level, int workers) {
    for (size_t i = 0; shape->times[level][i].us > 0; i++)
        if (shape->times[level][i].workers == workers)
            return shape->times[level][i].us;
    return 0;
}

/* Over all cluster sizes; of each, the number of workers is the model's own. */
static void the_choice_is_the_fastest_that_was_measured(void **state) {
    (void)state;
    libdecode_device device = preset("sm_90");
    size_t known = 0;
    for (size_t index = 0; index < num_shapes; index++) {
        const struct shape *shape = &shapes[index];
        struct workload work = work_of_shape(shape);
        struct cost best = {.predicted_ns = INT64_MAX};
        int best_level = 0;
        for (int level = 0; level < 4; level++) {
            struct libdecode_launch_contract contract = contract_of_shape(shape, 1u << level);
            struct cost cost;
            assert_true(cost_estimate(&work, &device, &contract, &cost));
            assert_int_equal(cost.predicted_ns, cost_predicted_ns(&work, &device, &contract, cost.num_workers));
            if (cost.predicted_ns < best.predicted_ns) {
                best = cost;
                best_level = level;
            }
        }
        double chosen = measured_us(shape, best_level, best.num_workers), fastest = fastest_us(shape);
        known += chosen > 0;
        const double allowed = shape->kv_dtype == KERNEL_DTYPE_BF16 ? 1.02 : 1.04;
        if (chosen > fastest * allowed)
            fail_msg("dtype %u, %d/%d heads of %d, %d x %d: clusters of %d, %d workers take %.2f us, the fastest %.2f",
                     shape->kv_dtype, shape->num_qo_heads, shape->num_kv_heads, shape->head_dim, shape->batch_size,
                     shape->seq_len, 1 << best_level, best.num_workers, chosen, fastest);
    }
    assert_true(known * 100 >= num_shapes * 95); /* a choice that was not measured says nothing */
}

/* Of the fast ones; to choose by, only their order matters. */
static void predictions_are_near_the_times(void **state) {
    (void)state;
    libdecode_device device = preset("sm_90");
    for (size_t index = 0; index < num_shapes; index++) {
        const struct shape *shape = &shapes[index];
        struct workload work = work_of_shape(shape);
        for (int level = 0; level < 4; level++) {
            struct libdecode_launch_contract contract = contract_of_shape(shape, 1u << level);
            for (size_t i = 0; shape->times[level][i].us > 0; i++) {
                double us = shape->times[level][i].us, predicted;
                predicted = (double)cost_predicted_ns(&work, &device, &contract, shape->times[level][i].workers) / 1000;
                if (us < fastest_us(shape) * 1.03 && (predicted < us * 0.8 || predicted > us * 1.2))
                    fail_msg("dtype %u, %d/%d heads of %d, %d x %d, clusters of %d, %d workers: %.1f us predicted, %.1f measured",
                             shape->kv_dtype, shape->num_qo_heads, shape->num_kv_heads, shape->head_dim, shape->batch_size,
                             shape->seq_len, 1 << level, shape->times[level][i].workers, predicted, us);
            }
        }
    }
}

/* The same H200 with 32 / 8 heads of 128: pages of 16 tokens as boxes, of one by rows; the model's own number of workers. */
static void predictions_are_near_the_times_of_other_formats_and_of_rows(void **state) {
    (void)state;
    enum { BF16 = KERNEL_DTYPE_BF16, E4M3 = KERNEL_DTYPE_E4M3, NVFP4 = KERNEL_DTYPE_NVFP4 };
    static const struct {
        uint32_t kv_dtype;
        int64_t token_bytes;
        int batch_size, seq_len;
        bool gathers_rows;
        uint32_t cluster_size;
        double us;
    } measured[] = {{E4M3, 256, 1, 4096, false, 8, 7.1},    {E4M3, 256, 16, 4096, false, 1, 35.4},
                    {E4M3, 256, 64, 4096, false, 1, 125.8}, {E4M3, 256, 128, 8192, false, 1, 482},
                    {E4M3, 256, 64, 4096, true, 1, 132.5},  {BF16, 512, 64, 4096, true, 1, 249},
                    {NVFP4, 144, 1, 4096, false, 8, 8.2},   {NVFP4, 144, 16, 4096, false, 1, 28.1},
                    {NVFP4, 144, 64, 4096, false, 1, 95.8}, {NVFP4, 144, 128, 8192, false, 1, 348}};
    libdecode_device device = preset("sm_90");
    for (size_t i = 0; i < sizeof measured / sizeof measured[0]; i++) {
        struct workload work = work_of((int64_t)measured[i].batch_size * 8, measured[i].seq_len);
        struct libdecode_launch_contract contract = contract_of(measured[i].cluster_size);
        struct cost cost;
        work.token_bytes = work.computed_token_bytes = measured[i].token_bytes;
        contract.kv_dtype = measured[i].kv_dtype;
        contract.tile_tokens = 16384 / ((uint32_t)measured[i].token_bytes / 2 & ~15u); /* 16 KiB of K */
        contract.consumer_warps = measured[i].gathers_rows ? 4 : 8;
        contract.flags = measured[i].gathers_rows ? CONTRACT_FLAG_ROW_GATHER : 0;
        assert_true(cost_estimate(&work, &device, &contract, &cost));
        double predicted = (double)cost.predicted_ns / 1000;
        double tolerance = measured[i].kv_dtype == NVFP4 ? 0.08 : 0.05;
        if (predicted < measured[i].us * (1 - tolerance) || predicted > measured[i].us * (1 + tolerance))
            fail_msg("dtype %u, %d x %d, clusters of %u: %.1f us predicted, %.1f measured", measured[i].kv_dtype,
                     measured[i].batch_size, measured[i].seq_len, measured[i].cluster_size, predicted, measured[i].us);
    }
}

/* FP8 has longer steps in clusters of less than eight, for head_dim 128, 8 rows and whole pages: nothing else is slower in eight. */
static void clusters_of_eight_are_slower_only_where_others_take_longer_steps(void **state) {
    (void)state;
    libdecode_device device = preset("sm_90");
    struct workload work = work_of(1, 1 << 20);
    work.token_bytes = work.computed_token_bytes = 256;
    for (uint32_t i = 0; i < 4; i++) {
        const uint32_t cluster_size = 4 + i % 2 * 4;
        struct libdecode_launch_contract box = contract_of(cluster_size), narrow = box, tall = box, rows = box;
        box.kv_dtype = narrow.kv_dtype = tall.kv_dtype = rows.kv_dtype = i < 2 ? KERNEL_DTYPE_E4M3 : KERNEL_DTYPE_E5M2;
        narrow.head_dim = 64;
        tall.row_tile = 16;
        rows.flags = CONTRACT_FLAG_ROW_GATHER;
        int64_t ns = cost_predicted_ns(&work, &device, &box, 1), narrow_ns = cost_predicted_ns(&work, &device, &narrow, 1);
        int64_t tall_ns = cost_predicted_ns(&work, &device, &tall, 1), rows_ns = cost_predicted_ns(&work, &device, &rows, 1);
        assert_true(cluster_size == 8 ? narrow_ns < ns : narrow_ns == ns);
        assert_true(cluster_size == 8 ? tall_ns * 100 < ns * 170
                                      : tall_ns * 100 > ns * 170); /* twice the rows take 1.85 of the time */
        assert_true(cluster_size == 8 ? rows_ns * 100 < ns * 85 : rows_ns * 100 > ns * 90);
    }
}

/* What copies and hands out work beside the consumers makes nothing faster. */
static void warps_that_do_not_compute_do_not_count(void **state) {
    (void)state;
    libdecode_device device = preset("sm_90");
    struct workload work = work_of(64 * 8, 4096);
    struct libdecode_launch_contract contract = contract_of(1);
    struct cost few, many, fewer_consumers;
    assert_true(cost_estimate(&work, &device, &contract, &few));
    contract.threads = 1024;
    assert_true(cost_estimate(&work, &device, &contract, &many));
    assert_int_equal(few.predicted_ns, many.predicted_ns);
    contract.consumer_warps = 4;
    assert_true(cost_estimate(&work, &device, &contract, &fewer_consumers));
    assert_true(fewer_consumers.predicted_ns > many.predicted_ns);
}

/* ---------------------------------------------------------------------------------------------------------------- edges */

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
    device.resident_clusters_16 = -1; /* not one */
    assert_false(cost_estimate(&work, &device, &contract, &cost));
    device.resident_clusters_16 = 0;
    device.sm_count = 15;
    assert_false(cost_estimate(&work, &device, &contract, &cost));
}

static void a_ragged_batch_is_planned_by_what_it_holds(void **state) {
    (void)state;
    libdecode_device device = preset("sm_90");
    struct libdecode_launch_contract contract = contract_of(1);
    struct workload even = work_of(64 * 8, 4096), ragged = even;
    struct cost even_cost, ragged_cost;
    ragged.total_tokens = even.total_tokens / 8;
    assert_true(cost_estimate(&even, &device, &contract, &even_cost));
    assert_true(cost_estimate(&ragged, &device, &contract, &ragged_cost));
    assert_in_range(ragged_cost.predicted_ns, even_cost.predicted_ns / 9, even_cost.predicted_ns / 5);
    assert_int_equal(even_cost.num_workers, 128);   /* four whole units each */
    assert_int_equal(ragged_cost.num_workers, 132); /* no number cuts them evenly: all there is room for */
    assert_int_equal(ragged_cost.records_bytes, even_cost.records_bytes);
}

/* Of Llama-3-8B, beside the best kernel that may cut units anywhere. */
static void fixed_chunks_cost_little_where_workers_get_equally_many(void **state) {
    (void)state;
    static const struct {
        int64_t batch_size, tokens;
        int32_t workers;
        int64_t most_percent;
    } cases[] = {{64, 4096, 128, 105}, {1, 32768, 128, 115}, {16, 4096, 128, 105}, {128, 8192, 128, 105}};
    libdecode_device device = preset("sm_90");
    struct libdecode_launch_contract contract = contract_of(1), clusters = contract_of(8);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct workload work = work_of(cases[i].batch_size * 8, cases[i].tokens);
        struct cost free_cost, cluster_cost, cost;
        assert_true(cost_estimate(&work, &device, &contract, &free_cost));
        assert_true(cost_estimate(&work, &device, &clusters, &cluster_cost));
        work.max_chunks = 16;
        work.min_chunk_tokens = 2048;
        assert_true(cost_estimate(&work, &device, &contract, &cost));
        const int64_t best =
            free_cost.predicted_ns < cluster_cost.predicted_ns ? free_cost.predicted_ns : cluster_cost.predicted_ns;
        assert_int_equal(cost.num_workers, cases[i].workers);
        assert_in_range(cost.predicted_ns * 100 / best, 100, cases[i].most_percent);
        assert_int_equal(cost.records_bytes, free_cost.records_bytes * 16);
    }
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
                                .max_chunks = i % 3 == 0 ? 32 : 0,
                                .min_chunk_tokens = 2048,
                                .token_bytes = 512,
                                .computed_token_bytes = 512};
        device.memory_bandwidth_gbps = bandwidths[i / 32 % 3];
        for (uint32_t cluster = 1; cluster <= 16; cluster *= 2) {
            struct libdecode_launch_contract contract = contract_of(cluster);
            struct cost cost;
            assert_true(cost_estimate(&work, &device, &contract, &cost));
            assert_true(cost.predicted_ns >= 3700 && cost.num_workers >= 1 && cost.row_passes >= 1);
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
        cmocka_unit_test(the_choice_is_the_fastest_that_was_measured),
        cmocka_unit_test(predictions_are_near_the_times),
        cmocka_unit_test(predictions_are_near_the_times_of_other_formats_and_of_rows),
        cmocka_unit_test(clusters_of_eight_are_slower_only_where_others_take_longer_steps),
        cmocka_unit_test(warps_that_do_not_compute_do_not_count),
        cmocka_unit_test(no_more_clusters_are_planned_than_the_device_says_fit),
        cmocka_unit_test(a_ragged_batch_is_planned_by_what_it_holds),
        cmocka_unit_test(fixed_chunks_cost_little_where_workers_get_equally_many),
        cmocka_unit_test(what_no_number_can_hold_counts_as_the_largest),
    };
    return cmocka_run_group_tests_name("cost", tests, read_shapes, NULL);
}
