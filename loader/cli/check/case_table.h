/* SPDX-License-Identifier: Apache-2.0 */
/* case_table.c: which test cases there are, as rows of a table; random ones are drawn from a seed. Next: cases.c, check.c. */
#ifndef LIBDECODE_CLI_CASE_TABLE_H
#define LIBDECODE_CLI_CASE_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "abi.h"

/* What is special about a case. */
#define CASE_FLAG(bit) (UINT64_C(1) << (bit))
#define CASE_LSE CASE_FLAG(0)
#define CASE_SINKS CASE_FLAG(1)
#define CASE_WINDOW CASE_FLAG(2)
#define CASE_NHD CASE_FLAG(3)
#define CASE_COMBINED_POOL CASE_FLAG(4)   /* a page of K and the page of V side by side */
#define CASE_PADDED_STRIDES CASE_FLAG(5)  /* K as HND, V as NHD, gaps in every axis, query and out strided */
#define CASE_PER_HEAD CASE_FLAG(6)        /* a length and a page table for every KV head */
#define CASE_V_PAGE_TABLE CASE_FLAG(7)    /* V has page ids of its own */
#define CASE_QUERY_POSITIONS CASE_FLAG(8) /* before, at and after the last token, one before every token */
#define CASE_POSITION_RULE CASE_FLAG(9)   /* position_stride 3, position_offset 2 */
#define CASE_NEGATIVE_IDS CASE_FLAG(10)   /* every third page: zero rows */
#define CASE_FOREIGN_IDS CASE_FLAG(11)    /* every third page lies outside the pool: zero rows */
#define CASE_OUTLIERS CASE_FLAG(12)       /* a few huge channels, and huge keys at the borders of tiles */
#define CASE_DEVICE_SCALES CASE_FLAG(13)
#define CASE_DEVICE_SCALE_LOG2 CASE_FLAG(14)
#define CASE_PAGE_EDGES CASE_FLAG(15)   /* lengths 0, 1, page - 1, page, page + 1, ... */
#define CASE_SPLIT_EDGES CASE_FLAG(16)  /* one request of two tiles for every SM, and lens[0] tokens more */
#define CASE_LOW_HINT CASE_FLAG(17)     /* max_seq_len says far less than there is */
#define CASE_UNKNOWN_POOL CASE_FLAG(18) /* num_pages is 0 */
#define CASE_REPEAT CASE_FLAG(19)       /* also repeated under load for equal bits */
#define CASE_GRAPH CASE_FLAG(20)        /* launched from a CUDA graph */
#define CASE_PROGRAMMATIC CASE_FLAG(21) /* launched with programmatic dependent launch, also back to back */
#define CASE_QUICK CASE_FLAG(22)        /* part of --quick */
#define CASE_RANDOM CASE_FLAG(23)       /* everything drawn from the seed */
#define CASE_NEGATIVE_SCALE CASE_FLAG(24)
#define CASE_ZERO_SCALE CASE_FLAG(25)     /* with a device scale: a host scale of 0 means 1 */
#define CASE_INFINITE_SINKS CASE_FLAG(26) /* of every three heads one +infinity, one -infinity */
#define CASE_ODD_LENGTHS CASE_FLAG(27)    /* BEYOND_TABLE and BELOW_ZERO stand among the lengths */
#define CASE_HUGE_SCORES CASE_FLAG(28)    /* with CASE_DEVICE_SCALE_LOG2: 2^27 and some steps of 16 */
#define CASE_OTHER_OUT CASE_FLAG(29)      /* out of another dtype than the query */
#define CASE_OUT_E4M3 CASE_FLAG(30)       /* out of e4m3 where the operation has it, else CASE_OTHER_OUT */
#define CASE_OUT_NVFP4 CASE_FLAG(31)      /* likewise, of NVFP4 */
#define CASE_NARROW_HEAD CASE_FLAG(32)    /* a head_dim that is less than the kernel's */
#define CASE_INTERLEAVED CASE_FLAG(33)    /* V scales by V_INTERLEAVE4 where that can be, else linear; without: drawn */
#define CASE_SPECIAL_VALUES CASE_FLAG(34) /* every finite e4m3 or e5m2 number, every e2m1 code with every scale */
#define CASE_VISIBLE_NAN CASE_FLAG(35)    /* here and there a NaN that the query sees, in K, in V or in a scale; q_len is 1 */
#define CASE_QUERY_RANGE CASE_FLAG(36)    /* rows of one batch are tiny, huge, zero, or of all magnitudes */
#define CASE_QUERY_HUGE CASE_FLAG(37)     /* with CASE_QUERY_RANGE: ordinary scores come from queries of 1e30 */
#define CASE_QUERY_TINY CASE_FLAG(38)     /* likewise, of 1e-30 */
#define CASE_RAGGED_Q CASE_FLAG(39)       /* requests of 0, 1, q_len and any number between of query tokens */
#define CASE_DRAFT_MASK CASE_FLAG(40) /* trees, full masks, draft tokens that nobody sees; q_len is at most MAX_MASKED_TOKENS */
#define CASE_SOFT_CAP CASE_FLAG(41)
#define CASE_ALIBI CASE_FLAG(42) /* slopes of both signs, of none, and steep ones */
#define CASE_LSE_NATURAL CASE_FLAG(43)
#define CASE_SKIP_SOFTMAX CASE_FLAG(44)    /* scores so far apart that tiles are passed over */
#define CASE_BATCH_INVARIANT CASE_FLAG(45) /* also in random batches of its requests, which must have the same bits */
#define CASE_ROPE CASE_FLAG(46)
#define CASE_FAR_POSITIONS CASE_FLAG(47) /* position_stride 100003, position_offset 1000000000 */
#define CASE_QUERY_ROPE CASE_FLAG(48)    /* of MLA: the query in two tensors */

#define CASE_CONTIGUOUS                                                                                                          \
    CASE_FLAG(49) /* no pages; room for page_size tokens behind the longest sequence, or with CASE_ODD_LENGTHS none */
#define CASE_NO_LENGTHS CASE_FLAG(50) /* with CASE_CONTIGUOUS: every request is as long as there is room */

#define CASE_TOP_K_LENS CASE_FLAG(55)  /* of sparse attention: the ids of each query token that count */
#define CASE_ALL_ROWS CASE_FLAG(59)    /* likewise: as many ids as the longest request has rows, however many */
#define CASE_SCALE_STEPS CASE_FLAG(60) /* rows of 656 bytes: small scales, a few far larger, of blocks that queries do not see */

#define CASE_FLASH_LSE CASE_FLAG(61)       /* the lse without the sink, and +infinity where it is empty */
#define CASE_ALIBI_FROM_ZERO CASE_FLAG(62) /* the lse as if biases counted from position 0 */

#define CASE_HOST_LENGTHS                                                                                                        \
    CASE_FLAG(54) /* lengths stay in host memory; not with CASE_PER_HEAD, CASE_GRAPH, CASE_BATCH_INVARIANT */

#define CASE_QUERY_OFFSETS                                                                                                       \
    CASE_FLAG(56)                     /* requests begin in query and out where their offsets say; not with CASE_BATCH_INVARIANT */
#define CASE_KV_OFFSETS CASE_FLAG(57) /* likewise in K and V, but of NVFP4 */
#define CASE_ODD_STRIDES CASE_FLAG(58) /* strides of K and V that are no multiples of 16 bytes, but of NVFP4 */

/* Query tokens of a request that kernels take a draft mask for. */
#define MAX_MASKED_TOKENS KERNEL_MAX_DRAFT_TOKENS

/* Lengths of a case with CASE_ODD_LENGTHS that stand for several: they count as what the page table holds, and as 0. */
#define BEYOND_TABLE INT32_MAX
#define BELOW_ZERO (-1)

struct test_case {
    const char *name;
    int32_t num_kv_heads, group_size, page_size, window_left;
    uint64_t flags;
    const int32_t *lens;
    int32_t num_lens;
    int32_t q_len; /* 0: 1 */
    float soft_cap, skip_factor;
    float rope_scale, rope_theta; /* 0: the defaults */
};
extern const struct test_case test_cases[];
extern const size_t num_test_cases;

/* What a cache without whole elements cannot have. */
void make_nvfp4_case(struct test_case *test);

/* Fills the fields that a random case draws from seed and name; `lens` has room for MAX_DRAWN_LENS. */
#define MAX_DRAWN_LENS 100
void draw_test_case(const struct test_case *test, uint64_t seed, struct test_case *ret_drawn, int32_t lens[MAX_DRAWN_LENS]);

/* The case as MLA has it: all heads share the one KV head, and what it has not is left out. */
void make_mla_case(struct test_case *test);

/* The same, by token ids: drawn from the seed whether their number is given for each query token. */
void make_sparse_case(struct test_case *test, uint64_t seed);

/* There is a random case for every number: "random_17". `name` must outlive the case. False: another name. */
#define RANDOM_CASE_PREFIX "random_"
bool random_case_named(const char *name, struct test_case *ret_test);

#endif
