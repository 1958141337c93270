/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cost model: every constant of it stands in the table below. Decode attention reads the KV cache once per row group and
 * does little else, so a launch takes its fixed time, the bytes over the rate at which they can be read, and what is added by
 * the reduction of a unit (request, KV head, row group): within a cluster, and between workers where a unit is split.
 * Numbers measured on an H200 with random pages of 16 tokens. Before and next: select.c.
 */
#include "cost.h"

enum {
    /* From the start of the kernel to the first byte, and from the last byte to the end. */
    LAUNCH_NS = 3800,
    /* Of the read ceiling, with random pages. */
    BANDWIDTH_PERCENT = 95,
    /* What an SM takes in for each warp of a CTA there: 66 GB/s with eleven; 47 where two read the same tokens for other rows. */
    WARP_BANDWIDTH_MBPS = 6000,
    ROWS_PER_WARP = 16,
    SHARED_TOKENS_PERCENT = 71,

    /* A cluster adds up what its CTAs computed; for every further unit all of them meet again. */
    CLUSTER_REDUCTION_NS = 700,
    CLUSTER_ROUND_NS = 2000,

    /* Workers that share a unit: the last one adds up their records, some time for each. More of it is a CTA's than a cluster's,
     * where every CTA has a share of the columns. */
    CTA_SPLIT_NS = 2500,
    CLUSTER_SPLIT_NS = 1300,
    SPLIT_PART_NS = 100,

    /* Less work than this is not worth a worker. */
    CTA_MIN_TILES = 2,
    CLUSTER_MIN_TILES = 1,

    /* SMs that share what a cluster needs: a cluster lies within such a group, so a remainder of each stays empty. */
    SMS_PER_GROUP = 16
};

int32_t typical_bandwidth_gbps(int32_t compute_capability) {
    switch (compute_capability) {
    case 90:
        return 4670; /* H200 */
    case 100:
        return 7600; /* B200 */
    case 103:
        return 7600; /* B300 */
    case 120:
        return 1702; /* RTX 5090 */
    case 121:
        return 259; /* DGX Spark */
    default:
        return 1000;
    }
}

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

static int64_t saturating_product(int64_t a, int64_t b) {
    int64_t product;
    return __builtin_mul_overflow(a, b, &product) ? INT64_MAX : product;
}

static int64_t ceiling_quotient(int64_t a, int64_t b) { return a / b + (a % b != 0); }

/* What of a launch its workers decide. */
struct split {
    int64_t cluster; /* CTAs of a worker */
    int64_t units;
    int64_t tiles; /* of the longest unit */
    int64_t bytes;
    int64_t bandwidth;    /* GB/s: of the GPU, */
    int64_t sm_bandwidth; /* and what one SM takes in */
};

static int64_t min_tiles(int64_t cluster) { return cluster == 1 ? CTA_MIN_TILES : CLUSTER_MIN_TILES; }

/* Workers that share a unit, at most, when all units are as long. */
static int64_t parts(const struct split *split, int64_t workers) {
    if (split->units % workers == 0)
        return 1;
    int64_t even = workers % split->units == 0 ? workers / split->units : workers / split->units + 2;
    return larger(smaller(even, split->tiles / min_tiles(split->cluster)), 1);
}

static int64_t predicted_ns(const struct split *split, int64_t workers) {
    int64_t reachable = smaller(split->bandwidth, workers * split->cluster * split->sm_bandwidth);
    int64_t shared_by = parts(split, workers);
    int64_t ns = split->bytes / reachable + LAUNCH_NS; /* bytes over GB/s are nanoseconds */
    if (split->cluster > 1) {
        int64_t further_rounds = ceiling_quotient(split->units, workers) - 1;
        ns += CLUSTER_REDUCTION_NS + smaller(saturating_product(further_rounds, CLUSTER_ROUND_NS), INT64_MAX / 4);
    }
    if (shared_by > 1)
        ns += (split->cluster > 1 ? CLUSTER_SPLIT_NS : CTA_SPLIT_NS) + SPLIT_PART_NS * shared_by;
    return ns;
}

/* Of at most `most`; of equally good numbers the largest. */
static int64_t best_workers(const struct split *split, int64_t most) {
    int64_t best = most, best_ns = predicted_ns(split, most);
    for (int64_t workers = most - 1; workers > 0; workers--) {
        int64_t ns = predicted_ns(split, workers);
        if (ns < best_ns) {
            best = workers;
            best_ns = ns;
        }
    }
    return best;
}

static int64_t sm_bandwidth(const struct libdecode_launch_contract *contract) {
    int64_t warps = contract->threads / 32 * contract->ctas_per_sm;
    int64_t percent = contract->row_tile > ROWS_PER_WARP ? SHARED_TOKENS_PERCENT : 100;
    return larger(warps * WARP_BANDWIDTH_MBPS * percent / 100 / 1000, 1);
}

/* Workers that are resident at once: with the remainder that clusters leave empty, on average, as SMs come in pairs. */
static int64_t resident_workers(const libdecode_device *device, int64_t cluster, int64_t ctas_per_sm) {
    int64_t sms = device->sm_count;
    if (cluster > 2)
        sms -= sms / SMS_PER_GROUP * (cluster - 2) / 2;
    return sms * ctas_per_sm / cluster;
}

bool cost_estimate(const struct workload *work, const libdecode_device *device, const struct libdecode_launch_contract *contract,
                   struct cost *ret_cost) {
    int64_t cluster = contract->cluster_size, most = resident_workers(device, cluster, contract->ctas_per_sm);
    if (most < 1)
        return false;
    int64_t units = larger(saturating_product(work->num_sequences, work->row_passes), 1);
    int64_t bandwidth =
        device->memory_bandwidth_gbps > 0 ? device->memory_bandwidth_gbps : typical_bandwidth_gbps(device->compute_capability);
    const struct split split = {.cluster = cluster,
                                .units = units,
                                .tiles = ceiling_quotient(work->tokens, contract->tile_tokens),
                                .bytes = saturating_product(saturating_product(units, work->tokens), work->token_bytes),
                                .bandwidth = larger(bandwidth * BANDWIDTH_PERCENT / 100, 1),
                                .sm_bandwidth = sm_bandwidth(contract)};
    int64_t workers = best_workers(&split, most);
    /* As much for every number of workers and every cluster size, so that one workspace serves short requests and long ones. */
    size_t records = (size_t)device->sm_count * contract->ctas_per_sm * 2;
    *ret_cost = (struct cost){.row_passes = (int32_t)smaller(work->row_passes, INT32_MAX),
                              .num_workers = (int32_t)workers,
                              .min_tiles_per_worker = (int32_t)min_tiles(cluster),
                              .predicted_ns = predicted_ns(&split, workers),
                              .records_bytes = records * contract->record_bytes};
    return true;
}
