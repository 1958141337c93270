/* SPDX-License-Identifier: Apache-2.0 */
/*
 * operation.c: what each operation knows: a row per operation, in it a rule for every field of the problem and every pointer of
 * the tensors. Whatever a row does not mention is refused by name. To add an operation is to add a row.
 * Used by problem.c; whoever needs an operation's name asks here.
 */
#ifndef LIBDECODE_OPERATION_H
#define LIBDECODE_OPERATION_H

#include "libdecode.h"

/* The limits of a problem, whatever the kernels at hand do. */
enum { PROBLEM_MAX_HEADS = 65535, PROBLEM_MAX_PAGE_SIZE = 1024 };
enum { PROBLEM_MAX_HEAD_DIM = 576 }; /* of MLA; other operations have less, as problem.c says */
/* Of a request: kernels count in 32 bits, and step over its end by whole tiles, of as many teams as there are. */
enum { PROBLEM_MAX_TOKENS = INT32_MAX - 4095 };

#define ROW_ALIGNMENT_BYTES 16

/*
 * Every field of libdecode_problem but its size. RANGE(name, least, most, kind, note): values beyond are refused ("accepted are
 * <kind><least> to <most><note>"), where a field that need not be given may also be 0. OTHER(name): problem.c checks the value,
 * since what is accepted depends on other fields.
 */
#define PROBLEM_FIELDS(RANGE, OTHER)                                                                                             \
    OTHER(op)                                                                                                                    \
    RANGE(query_dtype, 1, 3, "", " (bf16, fp16, e4m3)")                                                                          \
    OTHER(kv_dtype)                                                                                                              \
    RANGE(out_dtype, 1, 4, "", " (bf16, fp16, e4m3, nvfp4), 0 for query_dtype")                                                  \
    OTHER(features)                                                                                                              \
    RANGE(batch_size, 0, INT32_MAX, "", "")                                                                                      \
    RANGE(num_qo_heads, 1, PROBLEM_MAX_HEADS, "", "")                                                                            \
    RANGE(num_kv_heads, 1, PROBLEM_MAX_HEADS, "", "")                                                                            \
    OTHER(head_dim)                                                                                                              \
    RANGE(page_size, 1, PROBLEM_MAX_PAGE_SIZE, "", "")                                                                           \
    RANGE(q_len, 1, INT32_MAX, "", ", 0 for 1")                                                                                  \
    RANGE(max_seq_len, 1, INT32_MAX, "", ", 0 for what the page table has room for")                                             \
    OTHER(window_left)                                                                                                           \
    RANGE(position_stride, 1, INT32_MAX, "", ", 0 for 1")                                                                        \
    RANGE(position_offset, 0, INT32_MAX, "", "")                                                                                 \
    OTHER(skip_softmax_threshold_scale_factor)                                                                                   \
    RANGE(num_pages, 1, INT32_MAX, "", " since page ids have 32 bits, 0 for not known")                                          \
    RANGE(kv_layout, 0, 1, "", " (HND, NHD)")                                                                                    \
    RANGE(v_sf_layout, 0, 1, "", " (linear, V_INTERLEAVE4)")                                                                     \
    OTHER(query_token_stride)                                                                                                    \
    OTHER(query_head_stride)                                                                                                     \
    OTHER(out_token_stride)                                                                                                      \
    OTHER(out_head_stride)                                                                                                       \
    OTHER(lse_token_stride)                                                                                                      \
    OTHER(lse_head_stride)                                                                                                       \
    OTHER(k_page_stride)                                                                                                         \
    OTHER(k_head_stride)                                                                                                         \
    OTHER(k_token_stride)                                                                                                        \
    OTHER(v_page_stride)                                                                                                         \
    OTHER(v_head_stride)                                                                                                         \
    OTHER(v_token_stride)                                                                                                        \
    OTHER(k_sf_page_stride)                                                                                                      \
    OTHER(k_sf_head_stride)                                                                                                      \
    OTHER(k_sf_token_stride)                                                                                                     \
    OTHER(v_sf_page_stride)                                                                                                      \
    OTHER(v_sf_head_stride)                                                                                                      \
    OTHER(v_sf_token_stride)                                                                                                     \
    OTHER(page_table_request_stride)                                                                                             \
    OTHER(page_table_head_stride)                                                                                                \
    OTHER(page_table_v_offset)                                                                                                   \
    OTHER(seq_lens_request_stride)                                                                                               \
    OTHER(seq_lens_head_stride)                                                                                                  \
    RANGE(total_kv_tokens, 1, INT64_MAX, "", ", 0 for not known")                                                                \
    OTHER(logits_soft_cap)                                                                                                       \
    OTHER(rope_scale)                                                                                                            \
    OTHER(rope_theta)                                                                                                            \
    OTHER(v_head_dim)                                                                                                            \
    OTHER(query_rope_token_stride)                                                                                               \
    OTHER(query_rope_head_stride)                                                                                                \
    RANGE(kv_capacity_tokens, 0, PROBLEM_MAX_TOKENS, "", "")                                                                     \
    RANGE(sparse_top_k, 0, PROBLEM_MAX_TOKENS, "", "")                                                                           \
    OTHER(sparse_token_ids_stride)                                                                                               \
    RANGE(kv_row_format, 0, 2, "", " (plain, FP8_SCALED_656, NVFP4_352)")                                                        \
    OTHER(reserved)

/* Every pointer of libdecode_tensors but the workspace, which launch.c checks: POINTER(name, alignment in bytes). */
#define TENSOR_POINTERS(POINTER)                                                                                                 \
    POINTER(query, ROW_ALIGNMENT_BYTES)                                                                                          \
    POINTER(k_cache, ROW_ALIGNMENT_BYTES)                                                                                        \
    POINTER(v_cache, ROW_ALIGNMENT_BYTES)                                                                                        \
    POINTER(k_sf, ROW_ALIGNMENT_BYTES)                                                                                           \
    POINTER(v_sf, ROW_ALIGNMENT_BYTES)                                                                                           \
    POINTER(page_table, sizeof(int32_t))                                                                                         \
    POINTER(seq_lens, sizeof(int32_t))                                                                                           \
    POINTER(out, ROW_ALIGNMENT_BYTES)                                                                                            \
    POINTER(out_sf, ROW_ALIGNMENT_BYTES)                                                                                         \
    POINTER(lse, sizeof(float))                                                                                                  \
    POINTER(sinks, sizeof(float))                                                                                                \
    POINTER(cum_seq_lens_q, sizeof(int32_t))                                                                                     \
    POINTER(query_positions, sizeof(int32_t))                                                                                    \
    POINTER(draft_mask, sizeof(uint16_t))                                                                                        \
    POINTER(bmm1_scale_device, sizeof(float))                                                                                    \
    POINTER(bmm1_scale_log2_device, sizeof(float))                                                                               \
    POINTER(bmm2_scale_device, sizeof(float))                                                                                    \
    POINTER(alibi_slopes, sizeof(float))                                                                                         \
    POINTER(query_rope, ROW_ALIGNMENT_BYTES)                                                                                     \
    POINTER(sparse_token_ids, sizeof(int32_t))                                                                                   \
    POINTER(sparse_top_k_lens, sizeof(int32_t))                                                                                  \
    POINTER(query_offsets, sizeof(int64_t))                                                                                      \
    POINTER(out_offsets, sizeof(int64_t))                                                                                        \
    POINTER(k_offsets, sizeof(int64_t))                                                                                          \
    POINTER(v_offsets, sizeof(int64_t))

#define PROBLEM_FIELD_OF_RANGE_(name, least, most, kind, note) PROBLEM_FIELD_##name,
#define PROBLEM_FIELD_OF_OTHER_(name) PROBLEM_FIELD_##name,
enum problem_field { PROBLEM_FIELDS(PROBLEM_FIELD_OF_RANGE_, PROBLEM_FIELD_OF_OTHER_) NUM_PROBLEM_FIELDS };

#define TENSOR_POINTER_OF_(name, alignment) TENSOR_POINTER_##name,
enum tensor_pointer { TENSOR_POINTERS(TENSOR_POINTER_OF_) NUM_TENSOR_POINTERS };

/* When an operation knows a field or a pointer. What is announced must be given if it is a pointer, may be if it is a field. */
enum rule_kind {
    RULE_UNKNOWN = 0, /* never: it must be 0 */
    RULE_OPTIONAL,
    RULE_REQUIRED,
    RULE_FEATURE,          /* only with `feature` */
    RULE_FEATURE_OPTIONAL, /* likewise, and a pointer need not be */
    RULE_NVFP4_KV,         /* only with such a dtype */
    RULE_NVFP4_OUT,
    RULE_PAGED,          /* without FEATURE_CONTIGUOUS_KV, and then it may be given */
    RULE_PAGED_REQUIRED, /* likewise, and then it must be */
    /* always, and it must be unless that feature, FEATURE_SPARSE_TOP_K_LENS or kv_capacity_tokens says how many KV tokens there are */
    RULE_UNLESS_CAPACITY,
    RULE_DENSE, /* without sparse_top_k, and then it must be */
    RULE_SPARSE /* with sparse_top_k; then it must be if it is a pointer, and may be if it is a field */
};
struct rule {
    enum rule_kind kind;
    uint32_t feature;
    const char *announcement; /* what the message asks for, of RULE_FEATURE */
};

struct operation_rules {
    libdecode_op op;
    const char *name; /* "batch_decode": in messages, and in kernel policies */
    uint32_t features;
    struct rule fields[NUM_PROBLEM_FIELDS];
    struct rule pointers[NUM_TENSOR_POINTERS];
};

/* Of a problem; 0 is LIBDECODE_OP_BATCH_DECODE. Error: INVALID_ARGUMENT. */
libdecode_status operation_find(libdecode_op op, const struct operation_rules **ret_operation);

/* NULL if there is none of that name. */
const struct operation_rules *operation_named(const char *name);

/* The fields and features of a problem as its caller gave it. Error: INVALID_ARGUMENT. */
libdecode_status operation_check_fields(const struct operation_rules *operation, const libdecode_problem *problem);

/* Of a problem whose strides are explicit: one of K or V that is no multiple of what rows are aligned to; 0: there is none. */
int64_t odd_kv_stride_bytes(const libdecode_problem *problem);

/* Of a checked problem, a bit per enum tensor_pointer: worked out once, so that a launch compares bits. */
struct pointer_set {
    uint32_t known, needed; /* with an empty batch none is needed, nor of contiguous KV without room those of K and V */
    uint32_t loose;         /* aligned to elements of KV alone, of so many bytes */
    uint32_t element_bytes;
};
struct pointer_set operation_pointers(const struct operation_rules *operation, const libdecode_problem *problem);

/* `set` comes from operation_pointers. Error: INVALID_ARGUMENT. */
libdecode_status operation_check_pointers(const struct operation_rules *operation, struct pointer_set set,
                                          const libdecode_tensors *tensors);

#endif
