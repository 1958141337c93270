/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cost model: every constant of it stands in the tables below. Decode attention reads the KV cache once per pass and does
 * little else, so a launch takes its fixed time, the time in which the bytes can be read, and what the reduction of a unit
 * (sequence and pass) adds: within a cluster, and between workers where a unit is split.
 * All units, laid end to end, are cut into equal ranges, one a worker (kernels/pipeline/split_schedule.cuh; the margins that MLA's
 * units have there are not counted here). Where a cut falls
 * beside the end of a unit, its worker has a piece more to begin and to hand over: numbers of workers that divide the units, or
 * divide each of them evenly, are therefore the only ones worth a look, beside as many as there is room for.
 * Fitted to 1,858 times of an H200 with random pages of 16 tokens of bf16, 75 shapes with forced numbers of workers for every
 * cluster size (tests/unit/h200_workers.tsv), and 1,949 of e4m3 (37 shapes, h200_workers_e4m3.tsv): the model's choice is the
 * fastest of them, within 2 % (e4m3: 4). 64 dims in clusters, and single rows, by 109 shapes of models that people run, whole or in parts
 * (h200_rows.tsv). Before and next: families/, select.c.
 */
#include "cost.h"

#include <stdbool.h>

#include "contract_kv.h"

enum {
    /* From the start of the kernel to the first byte, and from the last byte to the end. */
    LAUNCH_NS = 3800,
    /* Of the read ceiling, with random pages. */
    BANDWIDTH_PERMILLE = 945,

    /* The consumer warps of an SM that the formats below were measured with. */
    MEASURED_WARPS = 8,
    /* The widest tile of single warps; wider ones are those of warpgroups. */
    MMA_ROWS = 32,

    /* Of the time to read boxes with as many consumer warps, what single rows take. */
    ROW_GATHER_PERMILLE = 940,
    /* Of 16 bits and up to 128 dims, in place of that, of a token's time: half of the warps compute, and these wait for memory less. */
    ROW_GATHER_TOKEN_PERMILLE = 700,

    /* Of that, clusters of eight where smaller ones take longer steps. */
    SHORT_STEPS_PERMILLE = 1200,

    /*
     * Kernels of pages of 64 tokens and more, which take in a tile by twice the instructions (NVFP4): of a token's time with smaller pages, and beside
     * what every further unit of a worker takes; by 64 and 16 requests of 4,096 tokens and 512 of 256.
     */
    WHOLE_TILE_PAGE_SIZE = 64,
    WHOLE_TILE_PERMILLE = 925,
    WHOLE_TILE_ROUND_NS = 860,

    /* A cluster adds up what its CTAs computed. */
    CLUSTER_REDUCTION_NS = 300,
    /* Every further unit of a worker: less of it shows where the copies for a long one go on meanwhile. */
    CTA_ROUND_NS = 800,
    CLUSTER_ROUND_NS = 1400,
    CLUSTER_ROUND_ROW_NS = 80, /* for each live row but the first ones */
    HIDING_BYTES = 900 << 10,  /* of a CTA and unit, at which half of it shows */
    FIRST_ROWS = 8,            /* which the times of one query token have in them */

    /* Workers that share a unit: the last one adds up their records. Of 64 rows and more all that have time add up slices. */
    SPLIT_NS = 1100,
    SPLIT_PART_NS = 270,
    /* Of a part, for each live row of 128 dims of a CTA but the first ones: by bf16 with 2 to 8 query tokens, 31 shapes. */
    SPLIT_ROW_NS = 27,
    WIDEST_HEAD_PARTS = 2,     /* of that with 512 dims, by 23 shapes */
    LONG_TILE_SPLIT_NS = 1400, /* beside SPLIT_NS, where a tile takes long: NVFP4 of 256 dims */
    SHORT_READING_NS = 3500,   /* cost.reads_little */
    /* What a launch takes longer for 16 rows, and for 32 where CTAs are no clusters. */
    END_16_ROWS_NS = 500,
    END_32_ROWS_ALONE_NS = 1000,
    /* Cuts beside the ends of units. */
    UNEVEN_NS = 2100,
    /* And more with 64 rows and more: 8 x 8,192 of NVFP4 by 128 rows takes 126 us by 132 CTAs, 113 by 64 pairs. */
    WIDE_UNEVEN_NS = 4000,

    /*
     * What the second cache gives each SM, MB/s, where several CTAs read the same rows: as the times of MLA have it, on an H200, and on an
     * H100, whose memory gives less. Of other GPUs it is not known.
     */
    SECOND_CACHE_SM_MBPS = 53490,

    /*
     * SMs come in pairs and share what a pair takes in. With a CTA in every pair, or two in every one, all get as much; half way
     * between, some CTAs get half of what others do, and end last. Clusters of four and more crowd some GPCs, too. Not where the second
     * cache is what they wait for: MLA of 128 heads, 1 x 4,096, in 24 clusters of four.
     */
    PAIRED_PERMILLE = 67,
    PAIRED_CLUSTER_PERMILLE = 144,
    FEW_PAIRS = 16,         /* one pair in so many with a CTA alone does no harm */
    PLENTY_PERMILLE = 3000, /* nor does any where SMs could take in so much of the memory's rate */

    /* Less work than this is not worth a worker. */
    CTA_MIN_TILES = 2,
    CLUSTER_MIN_TILES = 1,

    /* Where the device does not say how many clusters fit: SMs of a graphics processing cluster (GPC). A thread block cluster lies
     * within one, so a remainder of each stays empty. */
    SMS_PER_GPC = 16
};

/*
 * What an SM needs for a token of one KV head, and for every byte of it; of that, with 16 rows, in clusters with less than 128 dims, for NVFP4 by nine
 * shapes, and with more than 128, by 40 shapes of 256 with 1 and 4 query tokens; and at the end, where nothing is left to read meanwhile, for a tile that
 * has more tokens than those of the 16-bit formats. NVFP4: with pages between 16 and 64 tokens.
 */
static const struct format {
    uint32_t kv_dtype;
    int64_t token_ps, byte_fs, rows_16_permille, narrow_cluster_permille, wide_head_permille, end_ns;
} formats[] = {{KERNEL_DTYPE_BF16, 3200, 6500, 1050, 1000, 1000, 0},
               {KERNEL_DTYPE_FP16, 3200, 6500, 1050, 1000, 1000, 0},
               {KERNEL_DTYPE_E4M3, 2900, 3900, 1850, 1000, 1200, 500},
               {KERNEL_DTYPE_E5M2, 2900, 3900, 1850, 1000, 1200, 500}, /* as e4m3: not measured */
               {KERNEL_DTYPE_NVFP4, 1600, 26000, 1840, 1200, 640, 1100}};

/*
 * Wide tiles: what an SM needs for a token with 128 dims, with pages that are copied whole and with rows one by one; how much of that for one with
 * 64; what a launch takes longer for its rows, and what it takes to share a unit (in a cluster half of it), and for each part; and what every unit
 * takes in a pair of CTAs and in a cluster of eight, by 31 shapes with 8 and 16 query tokens. By 64/8 heads with 8 and 16 query tokens, an H200: 1 to
 * 64 requests of 4,096 tokens and one of 32,768; FP8 by 1,368 times of more shapes with 2 to 16, NVFP4 and single rows by 31 shapes with 2 to 16; 32
 * rows of 16 bits, and 64 dims, by 60 shapes with 2 to 16. 64 rows take 250 us with 16-bit KV, 168 with e4m3 and 203 with NVFP4, 128 rows 264, 242
 * and 269, at the card's limit of power.
 */
enum kv_width { KV_16_BITS, KV_8_BITS, KV_4_BITS };
static const struct many_rows {
    uint32_t row_tile;
    enum kv_width width;
    int64_t token_ps, single_row_ps, narrow_permille, end_ns, split_ns, part_ns, pair_unit_ns, cluster_unit_ns;
} many_rows[] = {
    /* clang-format off */
    {32, KV_16_BITS, 10000, 20000, 420, 1900, 0, 0, 0, 0},
    {64, KV_16_BITS, 7000, 14500, 1000, 0, 2700, 300, 2300, 3600},
    {128, KV_16_BITS, 14000, 18500, 730, 0, 500, 600, 2300, 5400},
    {32, KV_8_BITS, 13400, 15000, 530, 1800, 0, 600, 0, 0},
    {64, KV_8_BITS, 9700, 12700, 700, 0, 4200, 160, 3000, 2800},
    {128, KV_8_BITS, 14500, 15500, 770, 0, 5500, 165, 5400, 5000},
    {32, KV_4_BITS, 16500, 17300, 420, 2000, 0, 600, 0, 0},
    {64, KV_4_BITS, 11600, 16500, 900, 0, 3600, 160, 4600, 3200},
    {128, KV_4_BITS, 15500, 19800, 800, 0, 3500, 165, 4500, 5000},
    /* clang-format on */
};

/*
 * Where rows are copied one by one, by kernels that have half of the warps to compute with: what a CTA alone needs longer for each part of a unit, of
 * which those of a cluster do a share; what cuts beside the ends of units and a launch take longer. By bf16 and e4m3, 31 shapes with 2 to 8 query tokens,
 * an H200.
 */
static const struct single_rows {
    uint32_t row_tile;
    int64_t part_ns, uneven_ns;
} single_rows[] = {{8, 130, 800}, {16, 480, 2500}, {32, 1690, 3500}};

/* Of the memory's rate, what is reached by SMs that together could take in so much of it: each waits for the other at times. */
static const struct {
    int64_t could_permille, reached_permille;
} reach[] = {{0, 0}, {500, 500}, {750, 730}, {1000, 890}, {1250, 960}, {1500, 987}, {2000, 998}, {3000, 1000}};
#define NUM_REACH (sizeof reach / sizeof reach[0])

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

static enum kv_width width_of(const struct libdecode_launch_contract *contract) {
    if (contract_has_16_bit_kv(contract))
        return KV_16_BITS;
    return contract->kv_dtype == KERNEL_DTYPE_NVFP4 ? KV_4_BITS : KV_8_BITS;
}

/* NULL: pages are copied whole, or the tile is one of warpgroups. */
static const struct single_rows *single_rows_of(const struct libdecode_launch_contract *contract) {
    for (size_t i = 0; i < sizeof single_rows / sizeof single_rows[0]; i++)
        if (contract_copies_rows(contract) && single_rows[i].row_tile == contract->row_tile)
            return &single_rows[i];
    return NULL;
}

/* NULL: tiles that are like those of 8 rows. */
static const struct many_rows *many_rows_of(const struct libdecode_launch_contract *contract) {
    for (size_t i = 0; i < sizeof many_rows / sizeof many_rows[0]; i++)
        if (many_rows[i].row_tile == contract->row_tile && many_rows[i].width == width_of(contract))
            return &many_rows[i];
    return NULL;
}

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

/* Of numbers that are not negative; what leaves 63 bits counts as the largest. scaled: a * numerator / denominator. */
static int64_t sum(int64_t a, int64_t b) { return a > INT64_MAX - b ? INT64_MAX : a + b; }
static int64_t product(int64_t a, int64_t b) {
    int64_t result;
    return __builtin_mul_overflow(a, b, &result) ? INT64_MAX : result;
}
static int64_t quotient_up(int64_t a, int64_t b) { return a / b + (a % b != 0); }
static int64_t scaled(int64_t a, int64_t numerator, int64_t denominator) {
    return a > INT64_MAX / numerator ? product(a / denominator, numerator) : a * numerator / denominator;
}

/* ------------------------------------------------------------------------------------------------------------ a launch */

/* A launch but for its number of workers. */
struct launch {
    int64_t cluster;        /* CTAs of a worker */
    int64_t units, tiles;   /* of the longest unit, */
    int64_t steps;          /* and those that its CTAs take side by side */
    int64_t unit_share;     /* units of that length that would be as much work */
    bool even;              /* all units have it */
    int64_t chunks;         /* of the longest unit, cut at fixed places; 0: it is cut anywhere */
    int64_t unit_bytes;     /* of an average unit */
    int64_t memory_ns;      /* to read everything as fast as memory gives it, or the second cache, */
    bool from_second_cache; /* by boxes: single rows lose there what they lose from memory */
    int64_t cta_ns;         /* or as one CTA takes it in, */
    int64_t copy_permille;  /* of that time, by what a copy brings */
    int64_t fixed_ns;       /* from the start of the kernel to the first byte, and from the last byte to the end */
    int64_t part_ns;        /* of each worker that shares a unit, to add up its record */
    int64_t sm_pairs;
    int64_t split_ns;  /* where workers share a unit, beside the constants above */
    int64_t round_ns;  /* of every further unit of a worker, */
    int64_t unit_ns;   /* or of every one, which nothing hides; 0: rounds */
    int64_t uneven_ns; /* where cuts lie beside the ends of units */
    bool whole_tiles;  /* workers that share a unit evenly have whole tiles of it */
};

static int64_t min_tiles(int64_t cluster) { return cluster == 1 ? CTA_MIN_TILES : CLUSTER_MIN_TILES; }

/* Whether all cuts fall on the ends of units, or divide each unit alike. */
static bool cuts_evenly(const struct launch *launch, int64_t workers) {
    if (!launch->even)
        return false;
    if (workers <= launch->units)
        return launch->units % workers == 0;
    return workers % launch->units == 0;
}

/* Workers that share the longest unit: as many as find enough to do there. */
static int64_t most_parts(const struct launch *launch) { return larger(launch->tiles / min_tiles(launch->cluster), 1); }
static int64_t parts(const struct launch *launch, int64_t workers, bool evenly) {
    const int64_t of_unit = evenly ? workers / launch->units : workers / launch->unit_share + 2;
    return larger(smaller(of_unit, most_parts(launch)), 1);
}

static int64_t reached_permille(int64_t could_permille) {
    for (size_t i = 1; i < NUM_REACH; i++) {
        int64_t before = reach[i - 1].could_permille, step = reach[i].could_permille - before;
        if (could_permille <= reach[i].could_permille)
            return reach[i - 1].reached_permille +
                   (could_permille - before) * (reach[i].reached_permille - reach[i - 1].reached_permille) / step;
    }
    return reach[NUM_REACH - 1].reached_permille;
}

/* Of the rate, what CTAs lose that are neither alone in their pair of SMs nor all in twos. */
static int64_t paired_permille(const struct launch *launch, int64_t ctas) {
    int64_t pairs_of_two = ctas - launch->sm_pairs, pairs_of_one = launch->sm_pairs - pairs_of_two;
    pairs_of_one -= launch->sm_pairs / FEW_PAIRS;
    if (pairs_of_two <= 0 || pairs_of_one <= 0)
        return 0;
    int64_t most = launch->cluster > 2 ? PAIRED_CLUSTER_PERMILLE : PAIRED_PERMILLE;
    return most * 2 * smaller(pairs_of_two, pairs_of_one) / launch->sm_pairs;
}

static int64_t reading_ns(const struct launch *launch, int64_t workers) {
    if (launch->even)
        workers = smaller(workers, product(launch->units, most_parts(launch)));
    int64_t ctas = workers * launch->cluster, taking_ns = larger(launch->cta_ns / ctas, 1);
    int64_t could_permille = smaller(launch->memory_ns, INT64_MAX / 1000) * 1000 / taking_ns;
    bool may_lose = could_permille < PLENTY_PERMILLE && !launch->from_second_cache;
    int64_t lost_permille = may_lose ? paired_permille(launch, ctas) : 0;
    int64_t permille = larger(reached_permille(could_permille) * (1000 - lost_permille) / 1000, 1);
    return scaled(launch->memory_ns, launch->copy_permille, permille);
}

/* `units`, or pieces that are as much work as one each to begin and to hand over, of so many bytes. Not cut evenly, a worker has one more. */
static int64_t rounds_ns(const struct launch *launch, int64_t workers, int64_t units, int64_t unit_bytes, bool evenly) {
    int64_t further = quotient_up(units, workers) - 1;
    if (launch->unit_ns > 0)
        return product(further + (evenly ? 1 : 2), launch->unit_ns);
    int64_t bytes = smaller(unit_bytes / launch->cluster, INT64_MAX / 2);
    return product(further, launch->round_ns * HIDING_BYTES / (HIDING_BYTES + bytes));
}

static int64_t split_ns(const struct launch *launch, int64_t parts) {
    return parts > 1 ? SPLIT_NS + launch->split_ns + product(parts, launch->part_ns) : 0;
}

/* Of all units; as many as can be doubled. */
static int64_t all_chunks(const struct launch *launch) {
    int64_t of_long_units = product(launch->even ? launch->units : launch->unit_share, launch->chunks);
    return smaller(larger(of_long_units, launch->units), INT64_MAX / 4);
}

/* A worker computes whole chunks: of equal ones some workers have one more than others; of others, half a chunk more. */
static int64_t predicted_ns_of_chunks(const struct launch *launch, int64_t workers) {
    int64_t chunks = all_chunks(launch);
    int64_t most_halves = launch->even ? quotient_up(chunks, workers) * 2 : chunks * 2 / workers + 1;
    int64_t reading = scaled(reading_ns(launch, workers), product(most_halves, workers), chunks * 2);
    int64_t rounds = rounds_ns(launch, workers, chunks, launch->unit_bytes / launch->chunks, true);
    return sum(sum(reading, rounds), sum(launch->fixed_ns, split_ns(launch, launch->chunks)));
}

static int64_t predicted_ns(const struct launch *launch, int64_t workers) {
    if (launch->chunks > 0)
        return predicted_ns_of_chunks(launch, workers);
    bool evenly = cuts_evenly(launch, workers);
    int64_t shared_by = parts(launch, workers, evenly);
    int64_t ns = sum(launch->fixed_ns, split_ns(launch, shared_by));
    if (launch->cluster > 1)
        ns = sum(ns, CLUSTER_REDUCTION_NS);
    if (!evenly)
        ns = sum(ns, launch->uneven_ns);
    int64_t reading = reading_ns(launch, workers);
    if (launch->whole_tiles && evenly && shared_by > 1)
        reading = scaled(reading, product(quotient_up(launch->steps, shared_by), shared_by), launch->steps);
    return sum(sum(reading, rounds_ns(launch, workers, launch->units, launch->unit_bytes, evenly)), ns);
}

/* Of the numbers worth a look; of equally good ones the largest. */
static int64_t best_workers(const struct launch *launch, int64_t most) {
    if (launch->chunks > 0)
        most = smaller(most, all_chunks(launch));
    int64_t best = most, best_ns = predicted_ns(launch, most);
    for (int64_t workers = most - 1; workers > 0; workers--) {
        if (launch->chunks == 0 && !cuts_evenly(launch, workers))
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

/* To read all bytes, of which some come from the second cache. */
static int64_t memory_ns(const struct workload *work, int64_t bytes, const libdecode_device *device,
                         bool *ret_from_second_cache) {
    const int64_t gbps =
        device->memory_bandwidth_gbps > 0 ? device->memory_bandwidth_gbps : typical_bandwidth_gbps(device->compute_capability);
    const int64_t mbps = gbps * BANDWIDTH_PERMILLE;
    if (!work->passes_share_rows)
        return bytes_ns(bytes, mbps);
    int64_t second_ns = bytes_ns(bytes, device->sm_count * (int64_t)SECOND_CACHE_SM_MBPS);
    int64_t memory_ns = bytes_ns(product(work->distinct_tokens, work->token_bytes), mbps);
    *ret_from_second_cache = second_ns > memory_ns;
    return larger(second_ns, memory_ns);
}

/* Of a pass over all KV, as memory gives it: alike for all kernels. */
static int64_t pass_ns(const struct workload *work, const libdecode_device *device) {
    bool from_second_cache = false;
    return memory_ns(work, product(work->total_tokens, work->token_bytes), device, &from_second_cache);
}

static const struct format *format_of(uint32_t kv_dtype) {
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++)
        if (formats[i].kv_dtype == kv_dtype)
            return &formats[i];
    return &formats[0];
}

/* Where the others of its kind take long ones, which the rate of the format was measured with (families/gqa_decode.cu). */
static bool takes_short_steps(const struct libdecode_launch_contract *contract) {
    return width_of(contract) == KV_8_BITS && contract->head_dim == 128 && contract->row_tile == 8 &&
           contract->cluster_size >= 8 && !contract_copies_rows(contract);
}

static bool takes_whole_tiles(const struct libdecode_launch_contract *contract) {
    return !contract_copies_rows(contract) && contract->min_page_size >= WHOLE_TILE_PAGE_SIZE;
}

/* NVFP4 of 256 dims: four warps take a tile of 128 tokens in at a time, or what there is of it, which takes as long. */
static bool takes_long_tiles(const struct libdecode_launch_contract *contract) {
    return contract->kv_dtype == KERNEL_DTYPE_NVFP4 && contract->head_dim > 128;
}

static bool gathers_light_rows(const struct libdecode_launch_contract *contract) {
    return contract_copies_rows(contract) && contract_has_16_bit_kv(contract) && contract->head_dim <= 128 &&
           !many_rows_of(contract);
}

/* What a CTA needs for a token. */
static int64_t token_ps(const struct libdecode_launch_contract *contract, int64_t token_bytes) {
    const struct many_rows *many = many_rows_of(contract);
    if (many)
        return (contract_copies_rows(contract) ? many->single_row_ps : many->token_ps) *
               (contract->head_dim < 128 ? many->narrow_permille : 1000) / 1000;
    const struct format *format = format_of(contract->kv_dtype);
    int64_t ps = (format->token_ps + token_bytes * format->byte_fs / 1000) * MEASURED_WARPS / contract->consumer_warps;
    if (takes_short_steps(contract))
        ps = ps * SHORT_STEPS_PERMILLE / 1000;
    if (takes_whole_tiles(contract))
        ps = ps * WHOLE_TILE_PERMILLE / 1000;
    if (gathers_light_rows(contract))
        ps = ps * ROW_GATHER_TOKEN_PERMILLE / 1000;
    if (contract->row_tile > 8)
        ps = ps * format->rows_16_permille / 1000;
    else if (contract->head_dim < 128 && contract->cluster_size > 1 && !contract_copies_rows(contract))
        ps = ps * format->narrow_cluster_permille / 1000;
    if (contract->head_dim > 128)
        ps = ps * format->wide_head_permille / 1000;
    return ps;
}

/* Each CTA of a cluster adds up as many of the rows. */
static int64_t part_ns(const struct libdecode_launch_contract *contract, int64_t rows) {
    const struct many_rows *many = many_rows_of(contract);
    const struct single_rows *single = single_rows_of(contract);
    if (many && many->part_ns > 0 && (contract->row_tile > MMA_ROWS || single))
        return many->part_ns;
    if (single)
        return SPLIT_PART_NS + single->part_ns / contract->cluster_size;
    const int64_t rows_of_128 = rows * larger(contract->head_dim, 128) / 128;
    const int64_t ns = SPLIT_PART_NS + SPLIT_ROW_NS * larger(rows_of_128 / contract->cluster_size - FIRST_ROWS, 0);
    return contract->head_dim > 256 ? ns * WIDEST_HEAD_PARTS : ns;
}

static int64_t end_ns(const struct libdecode_launch_contract *contract) {
    const struct many_rows *many = many_rows_of(contract);
    const int64_t ns = format_of(contract->kv_dtype)->end_ns + (many                     ? many->end_ns
                                                                : contract->row_tile > 8 ? END_16_ROWS_NS
                                                                                         : 0);
    return ns + (contract->row_tile == MMA_ROWS && contract->cluster_size == 1 ? END_32_ROWS_ALONE_NS : 0);
}

static int64_t uneven_ns(const struct libdecode_launch_contract *contract) {
    const struct single_rows *single = single_rows_of(contract);
    return UNEVEN_NS + (single ? single->uneven_ns : contract->row_tile > MMA_ROWS ? WIDE_UNEVEN_NS : 0);
}

static int64_t further_split_ns(const struct libdecode_launch_contract *contract) {
    const struct many_rows *many = many_rows_of(contract);
    if (takes_long_tiles(contract))
        return LONG_TILE_SPLIT_NS;
    return !many ? 0 : contract->cluster_size > 1 ? many->split_ns / 2 : many->split_ns;
}

/* Of tiles of warpgroups in clusters, whose CTAs exchange what they have of a unit before KV of the next one may come; 0: something hides it. */
static int64_t unit_ns(const struct libdecode_launch_contract *contract) {
    const struct many_rows *many = many_rows_of(contract);
    if (!many || contract->cluster_size == 1)
        return 0;
    const int64_t ns = contract->cluster_size == 2 ? many->pair_unit_ns : many->cluster_unit_ns;
    return contract->head_dim < 128 ? ns * 3 / 4 : ns;
}

/* Of every further unit of a worker. */
static int64_t round_ns(const struct libdecode_launch_contract *contract, int64_t rows) {
    const int64_t further = contract->cluster_size == 1 ? 0 : CLUSTER_ROUND_ROW_NS * larger(rows - FIRST_ROWS, 0);
    return (contract->cluster_size == 1 ? CTA_ROUND_NS : CLUSTER_ROUND_NS) + further +
           (takes_whole_tiles(contract) ? WHOLE_TILE_ROUND_NS : 0);
}

/* For `tokens` tokens of one KV head and pass, one CTA alone. */
static int64_t cta_ns(const struct workload *work, const struct libdecode_launch_contract *contract, int64_t tokens) {
    const int64_t ps =
        work->token_ps > 0 ? work->token_ps : token_ps(contract, work->computed_token_bytes) + work->further_token_ps;
    return product(tokens, ps) == INT64_MAX ? product(tokens / 1000, ps) : tokens * ps / 1000;
}

/* Results of fixed chunks do not depend on the batch, and so neither may the choice of their kernel: it goes by what an SM takes for a token. */
static int64_t rank_ns(const struct workload *work, const struct libdecode_launch_contract *contract, int64_t predicted_ns) {
    enum { TOKENS = 1 << 20 };
    if (work->max_chunks == 0)
        return predicted_ns;
    return product(cta_ns(work, contract, TOKENS), work->row_passes) / contract->ctas_per_sm;
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
        if (sizes[i].size == cluster_size && sizes[i].known != 0)
            return larger(sizes[i].known, 0);
    int64_t sms = device->sm_count;
    if (cluster_size > 2) /* what clusters leave empty, on average, as SMs come in pairs */
        sms -= sms / SMS_PER_GPC * (cluster_size - 2) / 2;
    return sms / cluster_size;
}

/* Of the longest unit. */
static int64_t chunks(const struct workload *work) {
    return work->max_chunks == 0 ? 0 : larger(smaller(quotient_up(work->tokens, work->min_chunk_tokens), work->max_chunks), 1);
}

static struct launch plan_launch(const struct workload *work, const libdecode_device *device,
                                 const struct libdecode_launch_contract *contract) {
    int64_t unit_tokens = product(work->total_tokens, work->row_passes);
    int64_t bytes = product(unit_tokens, work->token_bytes);
    bool from_second_cache = false;
    int64_t reading_ns = memory_ns(work, bytes, device, &from_second_cache);
    return (struct launch){.cluster = contract->cluster_size,
                           .units = larger(product(work->num_sequences, work->row_passes), 1),
                           .tiles = quotient_up(work->tokens, contract->tile_tokens),
                           .steps = larger(quotient_up(work->tokens, contract->tile_tokens * contract->cluster_size), 1),
                           .unit_share = larger(unit_tokens / larger(work->tokens, 1), 1),
                           .even = work->total_tokens == product(work->num_sequences, work->tokens),
                           .chunks = chunks(work),
                           .unit_bytes = bytes / larger(product(work->num_sequences, work->row_passes), 1),
                           .memory_ns = reading_ns,
                           .from_second_cache = from_second_cache && !contract_copies_rows(contract),
                           .cta_ns = cta_ns(work, contract, unit_tokens),
                           .copy_permille =
                               contract_copies_rows(contract) && !gathers_light_rows(contract) ? ROW_GATHER_PERMILLE : 1000,
                           .fixed_ns = LAUNCH_NS + work->further_ns + (work->unit_ns > 0 ? 0 : end_ns(contract)),
                           .part_ns = work->part_ns > 0 ? work->part_ns : part_ns(contract, work->unit_rows),
                           .sm_pairs = device->sm_count / 2,
                           .split_ns = work->part_ns > 0 ? work->split_ns : further_split_ns(contract),
                           .uneven_ns = work->uneven_ns > 0 ? work->uneven_ns : uneven_ns(contract),
                           .round_ns = round_ns(contract, work->unit_rows) + work->further_round_ns,
                           .unit_ns = work->unit_ns > 0 ? work->unit_ns : unit_ns(contract),
                           .whole_tiles = work->passes_share_rows || contract->row_tile > MMA_ROWS || takes_long_tiles(contract)};
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
    const int64_t workers = best_workers(&launch, most), ns = predicted_ns(&launch, workers);
    /* As much for every number of workers and every cluster size, so that one workspace serves short requests and long ones. */
    size_t records = (size_t)device->sm_count * contract->ctas_per_sm * 2 * (size_t)larger(work->max_chunks, 1);
    *ret_cost = (struct cost){.row_passes = (int32_t)smaller(work->row_passes, INT32_MAX),
                              .num_workers = (int32_t)workers,
                              .min_tiles_per_worker = (int32_t)min_tiles(launch.cluster),
                              .predicted_ns = ns,
                              .rank_ns = rank_ns(work, contract, ns),
                              .passes_share_rows = work->passes_share_rows && work->max_chunks == 0,
                              .reads_little = work->max_chunks == 0 && pass_ns(work, device) < SHORT_READING_NS,
                              .records_bytes = records * contract->record_bytes,
                              .scratch_bytes = records * contract->scratch_bytes};
    return true;
}
