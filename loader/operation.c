/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An operation's row, a problem or tensors in; whether every field and pointer given is one that the operation knows, and none
 * is missing, out. Pure tables. Before: problem.c read the caller's structs. Next: problem.c fills in defaults.
 */
#include "operation.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "dtype.h"
#include "status.h"

/* ---------------------------------------------------------------------------------------------------- the operations */

#define OPTIONAL                                                                                                                 \
    { .kind = RULE_OPTIONAL }
#define REQUIRED                                                                                                                 \
    { .kind = RULE_REQUIRED }
#define WITH(name)                                                                                                               \
    { .kind = RULE_FEATURE, .feature = LIBDECODE_FEATURE_##name, .announcement = "LIBDECODE_FEATURE_" #name }
#define MAYBE_WITH(name)                                                                                                         \
    { .kind = RULE_FEATURE_OPTIONAL, .feature = LIBDECODE_FEATURE_##name, .announcement = "LIBDECODE_FEATURE_" #name }
#define NVFP4_KV                                                                                                                 \
    { .kind = RULE_NVFP4_KV }
#define NVFP4_OUT                                                                                                                \
    { .kind = RULE_NVFP4_OUT }

#define PAGED                                                                                                                    \
    { .kind = RULE_PAGED }
#define PAGED_REQUIRED                                                                                                           \
    { .kind = RULE_PAGED_REQUIRED }
#define UNLESS_CAPACITY                                                                                                          \
    { .kind = RULE_UNLESS_CAPACITY }
#define DENSE                                                                                                                    \
    { .kind = RULE_DENSE }
#define SPARSE                                                                                                                   \
    { .kind = RULE_SPARSE }

static const struct operation_rules operations[] = {
    {
        .op = LIBDECODE_OP_BATCH_DECODE,
        .name = "batch_decode",
        .features = LIBDECODE_FEATURE_WINDOW | LIBDECODE_FEATURE_SINKS | LIBDECODE_FEATURE_LSE | LIBDECODE_FEATURE_RAGGED_Q |
                    LIBDECODE_FEATURE_DRAFT_MASK | LIBDECODE_FEATURE_V_PAGE_TABLE | LIBDECODE_FEATURE_QUERY_POSITIONS |
                    LIBDECODE_FEATURE_SKIP_SOFTMAX | LIBDECODE_FEATURE_SOFT_CAP | LIBDECODE_FEATURE_ALIBI |
                    LIBDECODE_FEATURE_ROPE | LIBDECODE_FEATURE_LSE_NATURAL | LIBDECODE_FEATURE_BATCH_INVARIANT |
                    LIBDECODE_FEATURE_CONTIGUOUS_KV | LIBDECODE_FEATURE_HOST_SEQ_LENS | LIBDECODE_FEATURE_QUERY_OFFSETS |
                    LIBDECODE_FEATURE_KV_OFFSETS | LIBDECODE_FEATURE_LSE_WITHOUT_SINK | LIBDECODE_FEATURE_LSE_EMPTY_INFINITY |
                    LIBDECODE_FEATURE_LSE_ALIBI_FROM_ZERO,
        .fields =
            {
                [PROBLEM_FIELD_op] = OPTIONAL,
                [PROBLEM_FIELD_query_dtype] = REQUIRED,
                [PROBLEM_FIELD_kv_dtype] = OPTIONAL,
                [PROBLEM_FIELD_out_dtype] = OPTIONAL,
                [PROBLEM_FIELD_features] = OPTIONAL,
                [PROBLEM_FIELD_batch_size] = OPTIONAL,
                [PROBLEM_FIELD_num_qo_heads] = REQUIRED,
                [PROBLEM_FIELD_num_kv_heads] = REQUIRED,
                [PROBLEM_FIELD_head_dim] = REQUIRED,
                [PROBLEM_FIELD_page_size] = PAGED_REQUIRED,
                [PROBLEM_FIELD_q_len] = OPTIONAL,
                [PROBLEM_FIELD_max_seq_len] = OPTIONAL,
                [PROBLEM_FIELD_window_left] = OPTIONAL, /* -1 says "none" without the feature too */
                [PROBLEM_FIELD_position_stride] = OPTIONAL,
                [PROBLEM_FIELD_position_offset] = OPTIONAL,
                [PROBLEM_FIELD_skip_softmax_threshold_scale_factor] = WITH(SKIP_SOFTMAX),
                [PROBLEM_FIELD_num_pages] = PAGED,
                [PROBLEM_FIELD_kv_layout] = OPTIONAL,
                [PROBLEM_FIELD_v_sf_layout] = NVFP4_KV,
                [PROBLEM_FIELD_query_token_stride] = OPTIONAL,
                [PROBLEM_FIELD_query_head_stride] = OPTIONAL,
                [PROBLEM_FIELD_out_token_stride] = OPTIONAL,
                [PROBLEM_FIELD_out_head_stride] = OPTIONAL,
                [PROBLEM_FIELD_lse_token_stride] = OPTIONAL,
                [PROBLEM_FIELD_lse_head_stride] = OPTIONAL,
                [PROBLEM_FIELD_k_page_stride] = OPTIONAL,
                [PROBLEM_FIELD_k_head_stride] = OPTIONAL,
                [PROBLEM_FIELD_k_token_stride] = OPTIONAL,
                [PROBLEM_FIELD_v_page_stride] = OPTIONAL,
                [PROBLEM_FIELD_v_head_stride] = OPTIONAL,
                [PROBLEM_FIELD_v_token_stride] = OPTIONAL,
                [PROBLEM_FIELD_k_sf_page_stride] = NVFP4_KV,
                [PROBLEM_FIELD_k_sf_head_stride] = NVFP4_KV,
                [PROBLEM_FIELD_k_sf_token_stride] = NVFP4_KV,
                [PROBLEM_FIELD_v_sf_page_stride] = NVFP4_KV,
                [PROBLEM_FIELD_v_sf_head_stride] = NVFP4_KV,
                [PROBLEM_FIELD_v_sf_token_stride] = NVFP4_KV,
                [PROBLEM_FIELD_page_table_request_stride] = PAGED,
                [PROBLEM_FIELD_page_table_head_stride] = PAGED,
                [PROBLEM_FIELD_page_table_v_offset] = WITH(V_PAGE_TABLE),
                [PROBLEM_FIELD_seq_lens_request_stride] = OPTIONAL,
                [PROBLEM_FIELD_seq_lens_head_stride] = OPTIONAL,
                [PROBLEM_FIELD_total_kv_tokens] = OPTIONAL,
                [PROBLEM_FIELD_logits_soft_cap] = WITH(SOFT_CAP),
                [PROBLEM_FIELD_rope_scale] = WITH(ROPE),
                [PROBLEM_FIELD_rope_theta] = WITH(ROPE),
                [PROBLEM_FIELD_v_head_dim] = OPTIONAL,
                [PROBLEM_FIELD_kv_capacity_tokens] = OPTIONAL,
            },
        .pointers =
            {
                [TENSOR_POINTER_query] = REQUIRED,
                [TENSOR_POINTER_k_cache] = REQUIRED,
                [TENSOR_POINTER_v_cache] = REQUIRED,
                [TENSOR_POINTER_k_sf] = NVFP4_KV,
                [TENSOR_POINTER_v_sf] = NVFP4_KV,
                [TENSOR_POINTER_page_table] = PAGED_REQUIRED,
                [TENSOR_POINTER_seq_lens] = UNLESS_CAPACITY,
                [TENSOR_POINTER_out] = REQUIRED,
                [TENSOR_POINTER_out_sf] = NVFP4_OUT,
                [TENSOR_POINTER_lse] = WITH(LSE),
                [TENSOR_POINTER_sinks] = WITH(SINKS),
                [TENSOR_POINTER_cum_seq_lens_q] = WITH(RAGGED_Q),
                [TENSOR_POINTER_query_positions] = WITH(QUERY_POSITIONS),
                [TENSOR_POINTER_draft_mask] = WITH(DRAFT_MASK),
                [TENSOR_POINTER_bmm1_scale_device] = OPTIONAL,
                [TENSOR_POINTER_bmm1_scale_log2_device] = OPTIONAL,
                [TENSOR_POINTER_bmm2_scale_device] = OPTIONAL,
                [TENSOR_POINTER_alibi_slopes] = WITH(ALIBI),
                [TENSOR_POINTER_query_offsets] = MAYBE_WITH(QUERY_OFFSETS),
                [TENSOR_POINTER_out_offsets] = MAYBE_WITH(QUERY_OFFSETS),
                [TENSOR_POINTER_k_offsets] = MAYBE_WITH(KV_OFFSETS),
                [TENSOR_POINTER_v_offsets] = MAYBE_WITH(KV_OFFSETS),
            },
    },
    {
        .op = LIBDECODE_OP_MLA_DECODE,
        .name = "mla_decode",
        .features = LIBDECODE_FEATURE_WINDOW | LIBDECODE_FEATURE_SINKS | LIBDECODE_FEATURE_LSE | LIBDECODE_FEATURE_RAGGED_Q |
                    LIBDECODE_FEATURE_DRAFT_MASK | LIBDECODE_FEATURE_QUERY_POSITIONS | LIBDECODE_FEATURE_SKIP_SOFTMAX |
                    LIBDECODE_FEATURE_SOFT_CAP | LIBDECODE_FEATURE_LSE_NATURAL | LIBDECODE_FEATURE_BATCH_INVARIANT |
                    LIBDECODE_FEATURE_QUERY_ROPE | LIBDECODE_FEATURE_SPARSE_TOP_K_LENS | LIBDECODE_FEATURE_HOST_SEQ_LENS |
                    LIBDECODE_FEATURE_LSE_WITHOUT_SINK | LIBDECODE_FEATURE_LSE_EMPTY_INFINITY,
        .fields =
            {
                [PROBLEM_FIELD_op] = OPTIONAL,
                [PROBLEM_FIELD_query_dtype] = REQUIRED,
                [PROBLEM_FIELD_kv_dtype] = OPTIONAL,
                [PROBLEM_FIELD_out_dtype] = OPTIONAL,
                [PROBLEM_FIELD_features] = OPTIONAL,
                [PROBLEM_FIELD_batch_size] = OPTIONAL,
                [PROBLEM_FIELD_num_qo_heads] = REQUIRED,
                [PROBLEM_FIELD_num_kv_heads] = OPTIONAL,
                [PROBLEM_FIELD_head_dim] = REQUIRED,
                [PROBLEM_FIELD_page_size] = REQUIRED,
                [PROBLEM_FIELD_q_len] = OPTIONAL,
                [PROBLEM_FIELD_max_seq_len] = OPTIONAL,
                [PROBLEM_FIELD_window_left] = OPTIONAL, /* -1 says "none" without the feature too */
                [PROBLEM_FIELD_position_stride] = OPTIONAL,
                [PROBLEM_FIELD_position_offset] = OPTIONAL,
                [PROBLEM_FIELD_skip_softmax_threshold_scale_factor] = WITH(SKIP_SOFTMAX),
                [PROBLEM_FIELD_num_pages] = OPTIONAL,
                [PROBLEM_FIELD_kv_layout] = OPTIONAL,
                [PROBLEM_FIELD_query_token_stride] = OPTIONAL,
                [PROBLEM_FIELD_query_head_stride] = OPTIONAL,
                [PROBLEM_FIELD_out_token_stride] = OPTIONAL,
                [PROBLEM_FIELD_out_head_stride] = OPTIONAL,
                [PROBLEM_FIELD_lse_token_stride] = OPTIONAL,
                [PROBLEM_FIELD_lse_head_stride] = OPTIONAL,
                [PROBLEM_FIELD_k_page_stride] = OPTIONAL,
                [PROBLEM_FIELD_k_head_stride] = OPTIONAL, /* of the one head */
                [PROBLEM_FIELD_k_token_stride] = OPTIONAL,
                [PROBLEM_FIELD_page_table_request_stride] = DENSE,
                [PROBLEM_FIELD_seq_lens_request_stride] = OPTIONAL,
                [PROBLEM_FIELD_total_kv_tokens] = OPTIONAL,
                [PROBLEM_FIELD_logits_soft_cap] = WITH(SOFT_CAP),
                [PROBLEM_FIELD_v_head_dim] = OPTIONAL,
                [PROBLEM_FIELD_query_rope_token_stride] = WITH(QUERY_ROPE),
                [PROBLEM_FIELD_query_rope_head_stride] = WITH(QUERY_ROPE),
                [PROBLEM_FIELD_kv_capacity_tokens] = OPTIONAL,
                [PROBLEM_FIELD_sparse_top_k] = OPTIONAL,
                [PROBLEM_FIELD_sparse_token_ids_stride] = SPARSE,
                [PROBLEM_FIELD_kv_row_format] = SPARSE,
            },
        .pointers =
            {
                [TENSOR_POINTER_query] = REQUIRED,
                [TENSOR_POINTER_k_cache] = REQUIRED,
                [TENSOR_POINTER_page_table] = DENSE,
                [TENSOR_POINTER_seq_lens] = UNLESS_CAPACITY,
                [TENSOR_POINTER_out] = REQUIRED,
                [TENSOR_POINTER_out_sf] = NVFP4_OUT,
                [TENSOR_POINTER_lse] = WITH(LSE),
                [TENSOR_POINTER_sinks] = WITH(SINKS),
                [TENSOR_POINTER_cum_seq_lens_q] = WITH(RAGGED_Q),
                [TENSOR_POINTER_query_positions] = WITH(QUERY_POSITIONS),
                [TENSOR_POINTER_draft_mask] = WITH(DRAFT_MASK),
                [TENSOR_POINTER_bmm1_scale_device] = OPTIONAL,
                [TENSOR_POINTER_bmm1_scale_log2_device] = OPTIONAL,
                [TENSOR_POINTER_bmm2_scale_device] = OPTIONAL,
                [TENSOR_POINTER_query_rope] = WITH(QUERY_ROPE),
                [TENSOR_POINTER_sparse_token_ids] = SPARSE,
                [TENSOR_POINTER_sparse_top_k_lens] = WITH(SPARSE_TOP_K_LENS),
            },
    },
};

#define NUM_OPERATIONS (sizeof operations / sizeof operations[0])

libdecode_status operation_find(libdecode_op op, const struct operation_rules **ret_operation) {
    char known[256] = "";
    for (size_t i = 0, length = 0; i < NUM_OPERATIONS; i++) {
        if (operations[i].op == (op == 0 ? LIBDECODE_OP_BATCH_DECODE : op)) {
            *ret_operation = &operations[i];
            return LIBDECODE_OK;
        }
        length += (size_t)snprintf(known + length, sizeof known - length, "%s%d (%s)", i > 0 ? ", " : "", (int)operations[i].op,
                                   operations[i].name);
    }
    return fail(LIBDECODE_ERROR_INVALID_ARGUMENT, "problem.op is %d: accepted are %s, 0 for batch_decode", (int)op, known);
}

const struct operation_rules *operation_named(const char *name) {
    for (size_t i = 0; i < NUM_OPERATIONS; i++)
        if (strcmp(operations[i].name, name) == 0)
            return &operations[i];
    return NULL;
}

/* ---------------------------------------------------------------------------------------------------------- fields */

struct field {
    const char *name;
    size_t offset, bytes;
    bool is_float;
    int64_t least, most;
    const char *kind, *note;
};

#define MEMBER(name) (((libdecode_problem *)0)->name)
#define RANGE_ROW(name, least, most, kind, note)                                                                                 \
    {#name, offsetof(libdecode_problem, name), sizeof MEMBER(name), false, least, most, kind, note},
#define OTHER_ROW(name)                                                                                                          \
    {#name,                                                                                                                      \
     offsetof(libdecode_problem, name),                                                                                          \
     sizeof MEMBER(name),                                                                                                        \
     _Generic(MEMBER(name), float                                                                                                \
              : true, default                                                                                                    \
              : false),                                                                                                          \
     INT64_MIN,                                                                                                                  \
     INT64_MAX,                                                                                                                  \
     "",                                                                                                                         \
     ""},
static const struct field fields[NUM_PROBLEM_FIELDS] = {PROBLEM_FIELDS(RANGE_ROW, OTHER_ROW)};

#define RANGE_SIZE(name, least, most, kind, note) +sizeof MEMBER(name)
#define OTHER_SIZE(name) +sizeof MEMBER(name)
#if SIZE_MAX > UINT32_MAX
_Static_assert(sizeof(size_t) PROBLEM_FIELDS(RANGE_SIZE, OTHER_SIZE) == sizeof(libdecode_problem),
               "PROBLEM_FIELDS lacks a field, or the problem has padding");
#endif

/* A field's value; of a float only whether it is 0. */
static int64_t value_of(const struct field *field, const libdecode_problem *problem) {
    const char *at = (const char *)problem + field->offset;
    int32_t narrow;
    int64_t value;
    if (field->bytes == sizeof narrow) {
        memcpy(&narrow, at, sizeof narrow);
        return narrow;
    }
    memcpy(&value, at, sizeof value);
    return value;
}

/* For messages: "-1", "0.5". */
static const char *text_of(const struct field *field, const libdecode_problem *problem, char text[32]) {
    float real;
    if (field->is_float) {
        memcpy(&real, (const char *)problem + field->offset, sizeof real);
        (void)snprintf(text, 32, "%g", (double)real);
    } else {
        (void)snprintf(text, 32, "%lld", (long long)value_of(field, problem));
    }
    return text;
}

static libdecode_status refuse_field(enum problem_field field_index, const libdecode_problem *problem) {
    const struct field *field = &fields[field_index];
    char text[32];
    return fail(LIBDECODE_ERROR_INVALID_ARGUMENT, "problem.%s is %s: accepted are %s%lld to %lld%s", field->name,
                text_of(field, problem, text), field->kind, (long long)field->least, (long long)field->most, field->note);
}

static bool is_paged(const libdecode_problem *problem) { return (problem->features & LIBDECODE_FEATURE_CONTIGUOUS_KV) == 0; }

static bool is_sparse(const libdecode_problem *problem) { return problem->sparse_top_k > 0; }

static bool is_announced(const struct rule *rule, const libdecode_problem *problem) {
    switch (rule->kind) {
    case RULE_UNKNOWN:
        return false;
    case RULE_OPTIONAL:
    case RULE_REQUIRED:
    case RULE_UNLESS_CAPACITY:
        return true;
    case RULE_PAGED:
    case RULE_PAGED_REQUIRED:
        return is_paged(problem);
    case RULE_DENSE:
        return !is_sparse(problem);
    case RULE_SPARSE:
        return is_sparse(problem);
    case RULE_FEATURE:
    case RULE_FEATURE_OPTIONAL:
        return (problem->features & rule->feature) != 0;
    case RULE_NVFP4_KV:
        return problem->kv_dtype == LIBDECODE_DTYPE_NVFP4;
    case RULE_NVFP4_OUT:
        return problem->out_dtype == LIBDECODE_DTYPE_NVFP4;
    }
    return false;
}

/* Of what is announced: whether it must be given. */
static bool must_be_given(const struct rule *rule, const libdecode_problem *problem) {
    return rule->kind == RULE_REQUIRED || (rule->kind == RULE_PAGED_REQUIRED && is_paged(problem)) ||
           (rule->kind == RULE_UNLESS_CAPACITY && is_paged(problem) && problem->kv_capacity_tokens == 0 &&
            (problem->features & LIBDECODE_FEATURE_SPARSE_TOP_K_LENS) == 0);
}

static const char *announcement(const struct rule *rule) {
    switch (rule->kind) {
    case RULE_FEATURE:
    case RULE_FEATURE_OPTIONAL:
        return rule->announcement;
    case RULE_NVFP4_KV:
        return "kv_dtype nvfp4";
    case RULE_NVFP4_OUT:
        return "out_dtype nvfp4";
    case RULE_PAGED:
    case RULE_PAGED_REQUIRED:
        return "a problem without LIBDECODE_FEATURE_CONTIGUOUS_KV";
    case RULE_DENSE:
        return "a problem without sparse_top_k";
    case RULE_SPARSE:
        return "sparse_top_k";
    case RULE_UNLESS_CAPACITY:
        return "a problem with neither LIBDECODE_FEATURE_CONTIGUOUS_KV nor kv_capacity_tokens";
    case RULE_UNKNOWN:
    case RULE_OPTIONAL:
    case RULE_REQUIRED:
        break;
    }
    return "every launch";
}

libdecode_status operation_check_fields(const struct operation_rules *operation, const libdecode_problem *problem) {
    char text[32];
    if (problem->features & ~operation->features)
        return fail(LIBDECODE_ERROR_INVALID_ARGUMENT,
                    "problem.features has bits 0x%x that %s does not know: accepted are those of 0x%x",
                    problem->features & ~operation->features, operation->name, operation->features);
    for (size_t i = 0; i < NUM_PROBLEM_FIELDS; i++) {
        const struct field *field = &fields[i];
        const struct rule *rule = &operation->fields[i];
        int64_t value = value_of(field, problem);
        if (value == 0 && !must_be_given(rule, problem))
            continue;
        if (rule->kind == RULE_UNKNOWN)
            return fail(LIBDECODE_ERROR_INVALID_ARGUMENT, "problem.%s is %s: %s does not know this field, leave it 0",
                        field->name, text_of(field, problem, text), operation->name);
        if ((rule->kind == RULE_PAGED || rule->kind == RULE_PAGED_REQUIRED) && !is_paged(problem))
            return fail(LIBDECODE_ERROR_INVALID_ARGUMENT,
                        "problem.%s is %s with LIBDECODE_FEATURE_CONTIGUOUS_KV: there are no pages, leave the field 0",
                        field->name, text_of(field, problem, text));
        if (rule->kind == RULE_DENSE && is_sparse(problem))
            return fail(LIBDECODE_ERROR_INVALID_ARGUMENT,
                        "problem.%s is %s with sparse_top_k %d: token ids stand in place of a page table, leave the field 0",
                        field->name, text_of(field, problem, text), problem->sparse_top_k);
        if (value < field->least || value > field->most)
            return refuse_field((enum problem_field)i, problem);
        if (!is_announced(rule, problem))
            return fail(LIBDECODE_ERROR_INVALID_ARGUMENT,
                        "problem.%s is %s without %s: set that in the problem, or leave the field 0", field->name,
                        text_of(field, problem, text), announcement(rule));
    }
    return LIBDECODE_OK;
}

/* -------------------------------------------------------------------------------------------------------- pointers */

static const struct {
    const char *name;
    size_t offset;
    unsigned alignment;
} pointers[NUM_TENSOR_POINTERS] = {
#define POINTER_ROW(name, alignment) {#name, offsetof(libdecode_tensors, name), alignment},
    TENSOR_POINTERS(POINTER_ROW)};

_Static_assert(sizeof(libdecode_tensors) ==
                   2 * sizeof(size_t) + (NUM_TENSOR_POINTERS + 1) * sizeof(void *) + 4 * sizeof(float) + 2 * sizeof(int32_t),
               "TENSOR_POINTERS lacks a pointer, or the tensors have padding");

_Static_assert(NUM_TENSOR_POINTERS <= 32, "a bit per pointer");

int64_t odd_kv_stride_bytes(const libdecode_problem *problem) {
    const int64_t strides[] = {problem->k_page_stride, problem->k_head_stride, problem->k_token_stride,
                               problem->v_page_stride, problem->v_head_stride, problem->v_token_stride};
    for (size_t i = 0; i < sizeof strides / sizeof strides[0]; i++) {
        const int64_t bytes = (int64_t)element_bytes(problem->kv_dtype, strides[i]);
        if (bytes % ROW_ALIGNMENT_BYTES != 0)
            return bytes;
    }
    return 0;
}

/* What kernels for rows of any alignment serve begins anywhere itself. */
static void loosen_caches(const libdecode_problem *problem, struct pointer_set *set) {
    if ((problem->features & LIBDECODE_FEATURE_KV_OFFSETS) == 0 && odd_kv_stride_bytes(problem) == 0)
        return;
    set->loose = 1u << TENSOR_POINTER_k_cache | 1u << TENSOR_POINTER_v_cache;
    set->element_bytes = (uint32_t)element_bytes(problem->kv_dtype, 1);
}

/* Where no request has room for a token nothing is read of K and V, and tensors without elements may have no address. */
static uint32_t unread_caches(const libdecode_problem *problem) {
    if (is_paged(problem) || problem->kv_capacity_tokens > 0)
        return 0;
    return 1u << TENSOR_POINTER_k_cache | 1u << TENSOR_POINTER_v_cache | 1u << TENSOR_POINTER_k_sf | 1u << TENSOR_POINTER_v_sf;
}

static unsigned alignment_of(struct pointer_set set, size_t index) {
    return (set.loose >> index & 1) != 0 ? set.element_bytes : pointers[index].alignment;
}

struct pointer_set operation_pointers(const struct operation_rules *operation, const libdecode_problem *problem) {
    struct pointer_set set = {.known = 0};
    if (problem->kv_dtype != LIBDECODE_DTYPE_DEFAULT)
        loosen_caches(problem, &set);
    for (size_t i = 0; i < NUM_TENSOR_POINTERS; i++) {
        const struct rule *rule = &operation->pointers[i];
        bool is_known = is_announced(rule, problem);
        set.known |= (uint32_t)is_known << i;
        bool is_needed = is_known && rule->kind != RULE_OPTIONAL && rule->kind != RULE_FEATURE_OPTIONAL &&
                         (rule->kind != RULE_UNLESS_CAPACITY || must_be_given(rule, problem));
        set.needed |= (uint32_t)(is_needed && problem->batch_size > 0) << i;
    }
    set.needed &= ~unread_caches(problem);
    return set;
}

static const void *pointer_of(const libdecode_tensors *tensors, size_t index) {
    const void *pointer;
    memcpy(&pointer, (const char *)tensors + pointers[index].offset, sizeof pointer);
    return pointer;
}

/* Words for the first pointer that is not as the set has it, or not aligned. */
static libdecode_status refuse_pointers(const struct operation_rules *operation, struct pointer_set set,
                                        const libdecode_tensors *tensors) {
    for (size_t i = 0; i < NUM_TENSOR_POINTERS; i++) {
        const char *name = pointers[i].name, *asked = announcement(&operation->pointers[i]);
        const void *pointer = pointer_of(tensors, i);
        bool is_known = (set.known >> i & 1) != 0, is_needed = (set.needed >> i & 1) != 0;
        if (!pointer && is_needed)
            return fail(LIBDECODE_ERROR_INVALID_ARGUMENT, "tensors.%s is NULL: %s needs it", name, asked);
        if (pointer && operation->pointers[i].kind == RULE_UNKNOWN)
            return fail(LIBDECODE_ERROR_INVALID_ARGUMENT, "tensors.%s is given: %s does not know it, leave it NULL", name,
                        operation->name);
        if (pointer && operation->pointers[i].kind == RULE_DENSE && !is_known)
            return fail(LIBDECODE_ERROR_INVALID_ARGUMENT,
                        "tensors.%s is given with problem.sparse_top_k: token ids stand in its place, leave the pointer NULL",
                        name);
        if (pointer && operation->pointers[i].kind == RULE_PAGED_REQUIRED && !is_known)
            return fail(LIBDECODE_ERROR_INVALID_ARGUMENT,
                        "tensors.%s is given with LIBDECODE_FEATURE_CONTIGUOUS_KV: there are no pages, leave the pointer NULL",
                        name);
        if (pointer && !is_known)
            return fail(LIBDECODE_ERROR_INVALID_ARGUMENT,
                        "tensors.%s is given without %s: set that in the problem, or leave the pointer NULL", name, asked);
        if ((uintptr_t)pointer % alignment_of(set, i) != 0)
            return fail(LIBDECODE_ERROR_INVALID_ARGUMENT, "tensors.%s is %p: it must be aligned to %u bytes", name, pointer,
                        alignment_of(set, i));
    }
    return fail(LIBDECODE_ERROR_INTERNAL, "the pointers of tensors are refused without a reason; please report this");
}

libdecode_status operation_check_pointers(const struct operation_rules *operation, struct pointer_set set,
                                          const libdecode_tensors *tensors) {
    uint32_t given = 0;
    uintptr_t misaligned = 0;
    for (size_t i = 0; i < NUM_TENSOR_POINTERS; i++) {
        const void *pointer = pointer_of(tensors, i);
        given |= (uint32_t)(pointer != NULL) << i;
        misaligned |= (uintptr_t)pointer & (alignment_of(set, i) - 1);
    }
    if ((given & ~set.known) == 0 && (set.needed & ~given) == 0 && misaligned == 0)
        return LIBDECODE_OK;
    return refuse_pointers(operation, set, tensors);
}
