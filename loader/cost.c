/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cost model: every constant of it stands in the table below. Decode attention reads the KV cache once per row group and
 * does little else, so a launch takes its fixed time, the bytes over the sustained read rate, and what the reduction of
 * units (request, KV head, row group) that are split over workers adds. The two forms of kernel differ in that reduction.
 * Numbers measured on an H200 with random pages of 16 tokens. Before and next: select.c.
 */
#include "cost.h"

#include "launch.h"

enum {
    /* From the start of the kernel to the first byte, and from the last byte to the end. */
    LAUNCH_NS = 3600,
    /* Of the read ceiling, with random pages. */
    BANDWIDTH_PERCENT = 95,
    /* What one CTA can take in: 64 KiB in flight at a time. */
    CTA_BANDWIDTH_GBPS = 50,

    /* Balanced form (cluster_size 1): every CTA is a worker, the last one to arrive at a unit adds up the partial results. */
    BALANCED_REDUCTION_NS = 1500,
    BALANCED_PIECE_NS = 100, /* for every worker that shares a unit */
    BALANCED_MIN_TILES_PER_WORKER = 2,

    /* Cluster form: the CTAs of a cluster share a unit and reduce through distributed shared memory. */
    CLUSTER_REDUCTION_NS = 700,
    CLUSTER_SPLIT_NS = 1500, /* when several clusters share a unit after all */
    CLUSTER_ROUND_NS = 1300, /* for every further unit: all CTAs of the cluster meet */
    CLUSTER_MIN_TILES_PER_WORKER = 1,

    /* Workers are given up, so that units of equal length need not be split, while at least this share stays. */
    KEPT_WORKERS_PERCENT = 90
};

int32_t typical_bandwidth_gbps(int32_t compute_capability) {
    switch (compute_capability) {
    case 90: return 4670;  /* H200 */
    case 100: return 7600; /* B200 */
    case 103: return 7600; /* B300 */
    case 120: return 1702; /* RTX 5090 */
    case 121: return 259;  /* DGX Spark */
    default: return 1000;
    }
}

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

static int64_t saturating_product(int64_t a, int64_t b) {
    int64_t product;
    return __builtin_mul_overflow(a, b, &product) ? INT64_MAX : product;
}

static int64_t ceiling_quotient(int64_t a, int64_t b) { return a / b + (a % b != 0); }

/* KV tokens that the query tokens of the longest request see. */
static int64_t visible_tokens(const libdecode_problem *given) {
    int64_t tokens = given->max_seq_len;
    if (given->window_left >= 0)
        tokens = smaller(tokens, (int64_t)given->window_left / given->position_stride + given->q_len);
    return tokens;
}

/*
 * Workers of the balanced form: for units of equal length, so many that none is split, or all into the same number of parts.
 * One CTA on nearly every SM with one unit each is best, else nearly all CTAs; where neither can be, all. (A CTA that is
 * launched for nothing costs time too: it takes a place beside one that works.)
 */
static int64_t balanced_workers(int64_t ctas, int64_t sms, int64_t units) {
    if (units <= sms && units * 100 >= sms * KEPT_WORKERS_PERCENT)
        return units;
    int64_t even = units >= ctas ? ceiling_quotient(units, ceiling_quotient(units, ctas)) : ctas / units * units;
    return even * 100 >= ctas * KEPT_WORKERS_PERCENT ? even : ctas;
}

static int64_t balanced_ns(int64_t bytes, int64_t bandwidth, int64_t pieces) {
    int64_t reduction = pieces > 1 ? BALANCED_REDUCTION_NS + BALANCED_PIECE_NS * pieces : 0;
    return bytes / bandwidth + LAUNCH_NS + reduction; /* bytes over GB/s are nanoseconds */
}

static int64_t cluster_ns(int64_t bytes, int64_t bandwidth, int64_t units, int64_t workers, int64_t cluster) {
    int64_t reachable = smaller(bandwidth, workers * cluster * CTA_BANDWIDTH_GBPS);
    int64_t rounds = ceiling_quotient(units, workers);
    int64_t reduction = CLUSTER_REDUCTION_NS + saturating_product(rounds - 1, CLUSTER_ROUND_NS);
    return bytes / reachable + LAUNCH_NS + smaller(reduction, INT64_MAX / 4) + (units % workers != 0 ? CLUSTER_SPLIT_NS : 0);
}

/* The best whole number of clusters a unit, one CTA an SM: a second one there would share its bandwidth, and so come last. */
static int64_t cluster_workers(int64_t clusters, int64_t bytes, int64_t bandwidth, int64_t units, int64_t cluster) {
    int64_t best = smaller(units, clusters);
    for (int64_t workers = best + units; workers <= clusters; workers += units)
        if (cluster_ns(bytes, bandwidth, units, workers, cluster) < cluster_ns(bytes, bandwidth, units, best, cluster))
            best = workers;
    return best;
}

bool cost_estimate(const struct problem *problem, const libdecode_device *device,
                   const struct libdecode_launch_contract *contract, struct cost *ret_cost) {
    const libdecode_problem *given = &problem->given;
    int64_t cluster = contract->cluster_size, counters = (int64_t)(WORKSPACE_COUNTER_BYTES / sizeof(uint32_t));
    int64_t ctas = smaller((int64_t)device->sm_count * contract->ctas_per_sm, counters);
    int64_t clusters = smaller(device->sm_count, counters) / cluster;
    if (ctas < 1 || clusters < 1)
        return false;

    int64_t rows = (int64_t)problem->group_size * given->q_len;
    int64_t row_groups = ceiling_quotient(rows, contract->row_tile);
    int64_t units = larger(saturating_product(saturating_product(given->batch_size, given->num_kv_heads), row_groups), 1);
    int64_t tokens = visible_tokens(given);
    int64_t row_bytes = 2 * (int64_t)given->head_dim * dtype_bits(given->kv_dtype) / 8; /* of K and of V */
    int64_t bytes = saturating_product(saturating_product(units, tokens), row_bytes);
    int64_t bandwidth =
        device->memory_bandwidth_gbps > 0 ? device->memory_bandwidth_gbps : typical_bandwidth_gbps(device->compute_capability);
    bandwidth = larger(bandwidth * BANDWIDTH_PERCENT / 100, 1);

    struct cost cost = {.row_groups = (int32_t)smaller(row_groups, INT32_MAX)};
    if (cluster == 1) {
        int64_t workers = balanced_workers(ctas, device->sm_count, units);
        int64_t tiles = ceiling_quotient(tokens, contract->tile_tokens);
        int64_t pieces = units % workers == 0 ? 1 : larger(smaller(workers / units, tiles / BALANCED_MIN_TILES_PER_WORKER), 2);
        cost.num_workers = (int32_t)workers;
        cost.min_tiles_per_worker = BALANCED_MIN_TILES_PER_WORKER;
        cost.predicted_ns = balanced_ns(bytes, bandwidth, pieces);
    } else {
        int64_t workers = cluster_workers(clusters, bytes, bandwidth, units, cluster);
        cost.num_workers = (int32_t)workers;
        cost.min_tiles_per_worker = CLUSTER_MIN_TILES_PER_WORKER;
        cost.predicted_ns = cluster_ns(bytes, bandwidth, units, workers, cluster);
    }
    /* The same for every form of the row tile, so that one workspace serves short requests and long ones. */
    cost.partials_bytes = (size_t)ctas * 2 * GQA_PARTIAL_FLOATS((size_t)contract->row_tile, contract->head_dim, 1) * sizeof(float);
    *ret_cost = cost;
    return true;
}
