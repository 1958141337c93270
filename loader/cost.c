/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cost model: every constant of it stands in the table below. Decode attention reads the KV cache once per pass and does
 * little else, so a launch takes its fixed time, the time in which the bytes can be read, and what the reduction of a unit
 * (sequence and pass) adds: within a cluster, and between workers where a unit is split.
 * All units, laid end to end, are cut into equal ranges, one a worker (kernels/pipeline/split_schedule.cuh). Where a cut falls
 * besides the end of a unit, its worker has a piece more to begin and to hand over: numbers of workers that divide the units, or
 * divide each of them evenly, are therefore the only ones worth a look, beside as many as there is room for.
 * Fitted to an H200 with random pages of 16 tokens, 1 to 64 requests of 4k to 128k tokens, all cluster sizes with forced
 * numbers of workers; the order of those comes out right (tests/unit/test_cost.c). Before and next: families/, select.c.
 */
#include "cost.h"

#include <stdbool.h>

enum {
    /* From the start of the kernel to the first byte, and from the last byte to the end. */
    LAUNCH_NS = 4000,
    /* Of the read ceiling, with random pages. */
    BANDWIDTH_PERMILLE = 935,
    /* What an SM takes in for each warp of a CTA there: 68 GB/s with eleven; 48 where two read the same tokens for other rows. */
    WARP_BANDWIDTH_MBPS = 6190,
    ROWS_PER_WARP = 16,
    SHARED_TOKENS_PERMILLE = 710,
    /* Where memory and SMs would take nearly as long, each waits for the other now and then. */
    NEARLY_PERMILLE = 766,
    NEARNESS_PERMILLE = 77,

    /* A cluster adds up what its CTAs computed. For every further unit its CTAs meet again, and read nothing meanwhile. */
    CLUSTER_REDUCTION_NS = 860,
    CLUSTER_ROUND_NS = 2700,

    /* Workers that share a unit: the last one adds up their records, some time for each. More of it is a CTA's than a cluster's,
     * where every CTA has a share of the columns. */
    CTA_SPLIT_NS = 1580,
    CLUSTER_SPLIT_NS = 620,
    SPLIT_PART_NS = 100,
    /* Cuts beside the ends of units. */
    CTA_UNEVEN_NS = 1800,
    CLUSTER_UNEVEN_NS = 2400,

    /* Workers that take in less than this of what memory gives are not looked at. */
    FEWEST_PERMILLE = 700,
    /* Less work than this is not worth a worker. */
    CTA_MIN_TILES = 2,
    CLUSTER_MIN_TILES = 1,

    /* Where the device does not say how many clusters fit: SMs that share what a cluster needs. A cluster lies within such a
     * group, so a remainder of each stays empty. */
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

/* Of numbers that are not negative; what leaves 63 bits counts as the largest. */
static int64_t sum(int64_t a, int64_t b) { return a > INT64_MAX - b ? INT64_MAX : a + b; }
static int64_t product(int64_t a, int64_t b) {
    int64_t result;
    return __builtin_mul_overflow(a, b, &result) ? INT64_MAX : result;
}
static int64_t permille(int64_t a, int64_t share) { return a > INT64_MAX / 1000 ? a / 1000 * share : a * share / 1000; }
static int64_t quotient_up(int64_t a, int64_t b) { return a / b + (a % b != 0); }

/* ------------------------------------------------------------------------------------------------------------ a launch */

/* A launch but for its number of workers. */
struct launch {
    int64_t cluster;      /* CTAs of a worker */
    int64_t units, tiles; /* of the longest unit */
    int64_t unit_share;   /* units of that length that would be as much work */
    bool even;            /* all units have it */
    int64_t memory_ns;    /* to read everything as fast as memory gives it, */
    int64_t cta_ns;       /* or as one CTA takes it in */
};

static int64_t min_tiles(int64_t cluster) { return cluster == 1 ? CTA_MIN_TILES : CLUSTER_MIN_TILES; }

/* Whether all cuts fall on the ends of units, or divide each unit alike. */
static bool cuts_evenly(const struct launch *launch, int64_t workers) {
    if (!launch->even)
        return false;
    if (workers <= launch->units)
        return launch->units % workers == 0;
    return workers % launch->units == 0 && launch->tiles % (workers / launch->units) == 0;
}

/* Workers that share the longest unit. */
static int64_t parts(const struct launch *launch, int64_t workers, bool evenly) {
    if (evenly)
        return larger(workers / launch->units, 1);
    return larger(smaller(workers / launch->unit_share + 2, launch->tiles / min_tiles(launch->cluster)), 1);
}

static int64_t reading_ns(const struct launch *launch, int64_t workers) {
    int64_t taking_ns = launch->cta_ns / (workers * launch->cluster);
    if (launch->cluster > 1)
        taking_ns = sum(taking_ns, product(quotient_up(launch->units, workers) - 1, CLUSTER_ROUND_NS));
    int64_t longer = larger(taking_ns, launch->memory_ns), shorter = smaller(taking_ns, launch->memory_ns);
    int64_t nearness = larger(shorter - permille(longer, NEARLY_PERMILLE), 0);
    return sum(longer, permille(nearness, NEARNESS_PERMILLE));
}

static int64_t predicted_ns(const struct launch *launch, int64_t workers) {
    bool clusters = launch->cluster > 1, evenly = cuts_evenly(launch, workers);
    int64_t shared_by = parts(launch, workers, evenly);
    int64_t ns = LAUNCH_NS;
    if (clusters)
        ns += CLUSTER_REDUCTION_NS;
    if (shared_by > 1)
        ns += (clusters ? CLUSTER_SPLIT_NS : CTA_SPLIT_NS) + shared_by * SPLIT_PART_NS;
    if (!evenly)
        ns += clusters ? CLUSTER_UNEVEN_NS : CTA_UNEVEN_NS;
    return sum(reading_ns(launch, workers), ns);
}

/* Of the numbers worth a look, from as many as there is room for down to those that leave much of the memory's rate unused. */
static int64_t best_workers(const struct launch *launch, int64_t most) {
    int64_t at_memory = launch->memory_ns > 0 ? launch->cta_ns / launch->memory_ns / launch->cluster : most;
    int64_t fewest = larger(smaller(at_memory * FEWEST_PERMILLE / 1000, most), 1);
    int64_t best = most, best_ns = predicted_ns(launch, most);
    for (int64_t workers = most - 1; workers >= fewest; workers--) {
        if (workers > fewest && !cuts_evenly(launch, workers))
            continue;
        int64_t ns = predicted_ns(launch, workers);
        if (ns < best_ns) {
            best = workers;
            best_ns = ns;
        }
    }
    return best;
}

/* ------------------------------------------------------------------------------------------------- device and contract */

static int64_t bytes_ns(int64_t bytes, int64_t mbps) {
    return bytes > INT64_MAX / 1000 ? product(bytes / mbps, 1000) : bytes * 1000 / mbps;
}

static int64_t memory_mbps(const libdecode_device *device) {
    int64_t gbps =
        device->memory_bandwidth_gbps > 0 ? device->memory_bandwidth_gbps : typical_bandwidth_gbps(device->compute_capability);
    return gbps * BANDWIDTH_PERMILLE;
}

static int64_t cta_mbps(const struct libdecode_launch_contract *contract) {
    int64_t mbps = (int64_t)contract->threads / 32 * WARP_BANDWIDTH_MBPS;
    return contract->row_tile > ROWS_PER_WARP ? permille(mbps, SHARED_TOKENS_PERMILLE) : mbps;
}

/* Clusters of this size that are resident at once where a CTA fills an SM. */
static int64_t resident_clusters(const libdecode_device *device, uint32_t cluster_size) {
    const struct {
        uint32_t size;
        int32_t known;
    } sizes[] = {{2, device->resident_clusters_2},
                 {4, device->resident_clusters_4},
                 {8, device->resident_clusters_8},
                 {16, device->resident_clusters_16}};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        if (sizes[i].size == cluster_size && sizes[i].known > 0)
            return sizes[i].known;
    int64_t sms = device->sm_count;
    if (cluster_size > 2) /* what clusters leave empty, on average, as SMs come in pairs */
        sms -= sms / SMS_PER_GROUP * (cluster_size - 2) / 2;
    return sms / cluster_size;
}

static struct launch plan_launch(const struct workload *work, const libdecode_device *device,
                                 const struct libdecode_launch_contract *contract) {
    int64_t unit_tokens = product(work->total_tokens, work->row_passes);
    int64_t bytes = product(unit_tokens, work->token_bytes);
    return (struct launch){.cluster = contract->cluster_size,
                           .units = larger(product(work->num_sequences, work->row_passes), 1),
                           .tiles = quotient_up(work->tokens, contract->tile_tokens),
                           .unit_share = larger(unit_tokens / larger(work->tokens, 1), 1),
                           .even = work->total_tokens == product(work->num_sequences, work->tokens),
                           .memory_ns = bytes_ns(bytes, memory_mbps(device)),
                           .cta_ns = bytes_ns(bytes, cta_mbps(contract))};
}

int64_t cost_predicted_ns(const struct workload *work, const libdecode_device *device,
                          const struct libdecode_launch_contract *contract, int64_t workers) {
    const struct launch launch = plan_launch(work, device, contract);
    return predicted_ns(&launch, workers);
}

bool cost_estimate(const struct workload *work, const libdecode_device *device, const struct libdecode_launch_contract *contract,
                   struct cost *ret_cost) {
    int64_t most = resident_clusters(device, contract->cluster_size) * contract->ctas_per_sm;
    if (most < 1)
        return false;
    const struct launch launch = plan_launch(work, device, contract);
    int64_t workers = best_workers(&launch, most);
    /* As much for every number of workers and every cluster size, so that one workspace serves short requests and long ones. */
    size_t records = (size_t)device->sm_count * contract->ctas_per_sm * 2;
    *ret_cost = (struct cost){.row_passes = (int32_t)smaller(work->row_passes, INT32_MAX),
                              .num_workers = (int32_t)workers,
                              .min_tiles_per_worker = (int32_t)min_tiles(launch.cluster),
                              .predicted_ns = predicted_ns(&launch, workers),
                              .records_bytes = records * contract->record_bytes};
    return true;
}
