/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cost.c: (workload, device, launch contract) in, how the kernel would be launched and how long it would take out. Integer
 * arithmetic only, so that every host gives the same answer. Asked by the families; select.c compares the answers.
 */
#ifndef LIBDECODE_COST_H
#define LIBDECODE_COST_H

#include <stdbool.h>

#include "abi.h"
#include "libdecode.h"

/* What a launch has to do, in the numbers that every family's problems come down to. */
struct workload {
    int64_t num_sequences; /* requests times KV heads */
    int64_t row_passes;    /* over the KV of each, since a pass computes row_tile query rows; a sequence and a pass are a unit */
    int64_t tokens;        /* of the longest sequence that are visible, */
    int64_t total_tokens;  /* and of all */
    int64_t unit_rows;     /* of a pass that are not computed for nothing */
    int64_t max_chunks;    /* that a unit is cut into, at fixed places, one for every min_chunk_tokens; 0: cut anywhere */
    int64_t min_chunk_tokens;
    int64_t token_bytes;          /* of K and V, as memory gives them, */
    int64_t computed_token_bytes; /* and with what the kernel computes beside: zeros that pad a row */
    int64_t further_token_ps;     /* what options add for a token and pass, of one CTA, */
    int64_t further_round_ns;     /* for every further unit of a worker, */
    int64_t further_ns;           /* and for a launch */
    int64_t token_ps;             /* that one CTA takes for a token and pass; 0: as the formats have it, by bytes and row tile */
    int64_t split_ns;             /* that a unit takes longer where workers share it, beside what cost.c counts */
    int64_t part_ns;              /* of each of these workers, to add up its record; 0: both as cost.c has them */
    int64_t uneven_ns;            /* where cuts lie beside the ends of units; 0: likewise */
    int64_t unit_ns; /* in place of rounds: of every unit of a worker, beside its tiles, which nothing hides; 0: rounds */
    /*
     * Passes, and sequences beyond distinct_tokens, read the same rows side by side: memory gives each once, the second cache the others.
     * Few passes are then no end in themselves.
     */
    bool passes_share_rows;
    int64_t distinct_tokens;
};

struct cost {
    int32_t row_passes;     /* over the KV, */
    bool passes_share_rows; /* which it gives once, and so few of them are no end in themselves */
    int32_t num_workers;    /* clusters (CTAs where cluster_size is 1) */
    int32_t min_tiles_per_worker;
    int64_t predicted_ns; /* at max_seq_len */
    bool reads_little;    /* a pass over all KV is so short that several of narrower tiles may be the fastest */
    /*
     * By which kernels are ranked that are alike but for their time: predicted_ns. With fixed chunks what does not depend on the batch: the two above
     * are false then, and this is of a token.
     */
    int64_t rank_ns;
    size_t records_bytes; /* of workspace: two records a CTA, its first and its last unit may be shared; or two units' chunks */
    size_t scratch_bytes; /* likewise */
};

/* False if the device has no room for a single worker. `contract` has passed contract_is_sane. */
bool cost_estimate(const struct workload *work, const libdecode_device *device, const struct libdecode_launch_contract *contract,
                   struct cost *ret_cost);

/* How long it would take with that number of workers (at least 1), whether or not it is a good one. */
int64_t cost_predicted_ns(const struct workload *work, const libdecode_device *device,
                          const struct libdecode_launch_contract *contract, int64_t workers);

/* GB/s that a GPU of this compute capability sustains when it does not say so itself. */
int32_t typical_bandwidth_gbps(int32_t compute_capability);

#endif
