/* SPDX-License-Identifier: Apache-2.0 */
/* problem_args.c: options in, a libdecode_problem and the lengths of its requests out. Used by explain, bench and demo. */
#include "problem_args.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dtype.h"
#include "option_words.h"
#include "problem.h"

#define MAX_LEN (1 << 26)

#define FIELD(name) offsetof(struct problem_args, name)
const struct option problem_options[] = {
    {"--batch", "N", OPTION_INT, FIELD(batch), 0, 1 << 20, "requests (default 64)"},
    {"--heads", "Q/KV", OPTION_TEXT, FIELD(heads), 0, 0,
     "query heads / KV heads (default 32/8, as Llama-3-8B; Llama-3-70B has 64/8, gpt-oss 64/8 with --head-dim 64)"},
    {"--head-dim", "D", OPTION_INT, FIELD(head_dim), 1, 1 << 16, "elements of a head (default 128; with --mla 576)"},
    {"--mla", NULL, OPTION_FLAG, FIELD(mla), 0, 0,
     "MLA decode: a cache of latent rows of 576 (512 of V) or 320 (256), one KV head (default heads 128/1, as DeepSeek-V3)"},
    {"--sparse-top-k", "N", OPTION_INT, FIELD(sparse_top_k), 0, 1 << 20,
     "with --mla: every query token attends to N rows that it names, of its request's (default 0: to all)"},
    {"--kv-row", "plain|scaled656|nvfp352", OPTION_WORD, FIELD(kv_row), 0, 0,
     "with --sparse-top-k: rows of 656 bytes (e4m3 with scales, bf16), of 352 (nvfp4, e4m3), or of one dtype (default plain)"},
    {"--kv", KV_DTYPES, OPTION_WORD, FIELD(kv), 0, 0, "what the KV cache holds; fp8 is e4m3 (default: as --query)"},
    {"--query", "bf16|fp16|e4m3|fp8", OPTION_WORD, FIELD(query), 0, 0,
     "the query's dtype (default bf16, or fp16 with --kv fp16)"},
    {"--out", OUT_DTYPES, OPTION_WORD, FIELD(out), 0, 0, "what is written (default: as --query)"},
    {"--page", "TOKENS", OPTION_INT, FIELD(page), 1, 1 << 16, "KV tokens in a page (default 16)"},
    {"--contiguous", NULL, OPTION_FLAG, FIELD(contiguous), 0, 0,
     "KV without pages: every request has room for as many tokens as the longest one has, one after the other"},
    {"--layout", "hnd|nhd", OPTION_WORD, FIELD(layout), 0, 0,
     "order inside a page: hnd = head, token, element (default); nhd = token, head, element"},
    {"--row-gap", "ELEMENTS", OPTION_INT, FIELD(row_gap), 0, 1 << 20,
     "behind every row of K and V (default 0); where rows then do not begin at multiples of 16 bytes, other kernels serve them"},
    {"--query-offsets", NULL, OPTION_FLAG, FIELD(query_offsets), 0, 0,
     "requests may begin anywhere in query and out: kernels that read an offset for each"},
    {"--kv-offsets", NULL, OPTION_FLAG, FIELD(kv_offsets), 0, 0, "likewise in K and V"},
    {"--page-size", "TOKENS", OPTION_INT, FIELD(page), 1, 1 << 16, "the same as --page"},
    {"--kv-layout", "hnd|nhd", OPTION_WORD, FIELD(layout), 0, 0, "the same as --layout"},
    {"--sf-layout", "linear|v_interleave4", OPTION_WORD, FIELD(sf_layout), 0, 0,
     "how the scales of V lie in an NVFP4 cache (default linear)"},
    {"--len", "TOKENS", OPTION_INT, FIELD(len), 0, MAX_LEN, "KV tokens of every request (default 8192)"},
    {"--lens", "A,B,...", OPTION_TEXT, FIELD(lens), 0, 0, "KV tokens of each request, instead of --batch and --len"},
    {"--trace", "FILE[:FIRST:COUNT]", OPTION_TEXT, FIELD(trace), 0, 0,
     "lengths from a trace of requests (CSV or Mooncake's JSON lines), instead of --batch and --len"},
    {"--max-len", "TOKENS", OPTION_INT, FIELD(max_len), 1, MAX_LEN, "the hint max_seq_len (default: the longest request)"},
    {"--window", "N", OPTION_INT, FIELD(window), -1, MAX_LEN, "sliding window: a token and the N before it (default -1: none)"},
    {"--q-len", "N", OPTION_INT, FIELD(q_len), 1, 1 << 20,
     "query tokens of every request, the last N of its KV tokens (default 1)"},
    {"--sinks", NULL, OPTION_FLAG, FIELD(sinks), 0, 0, "attention sinks: one more logit per head"},
    {"--lse", NULL, OPTION_FLAG, FIELD(lse), 0, 0, "also write the log-sum-exp"},
    {"--soft-cap", "X", OPTION_NUMBER, FIELD(soft_cap), 0, 0, "the logit z becomes X * tanh(z / X) (default: no cap)"},
    {"--alibi", NULL, OPTION_FLAG, FIELD(alibi), 0, 0, "attention with linear biases: a slope for every query head"},
    {"--skip-softmax", "X", OPTION_NUMBER, FIELD(skip_softmax), 0, 0,
     "pass over tokens whose weights lie below X / length of the largest: skip_softmax_threshold_scale_factor (default: none)"},
    {"--batch-invariant", NULL, OPTION_FLAG, FIELD(batch_invariant), 0, 0,
     "the bits of a request's result do not depend on its batch"},
    {"--rope", NULL, OPTION_FLAG, FIELD(rope), 0, 0, "query and K are rotated by their positions on the way (RoPE)"},
    {"--rope-scale", "X", OPTION_NUMBER, FIELD(rope_scale), 0, 0, "with --rope: positions are divided by X (default 1)"},
    {"--rope-theta", "X", OPTION_NUMBER, FIELD(rope_theta), 0, 0, "with --rope: the base of the frequencies (default 10000)"},
    {"--position-stride", "N", OPTION_INT, FIELD(position_stride), 1, 1 << 20,
     "KV token j lies at position j * N + offset (default 1)"},
    {"--position-offset", "N", OPTION_INT, FIELD(position_offset), 0, 1 << 30, "(default 0)"},
    {0},
};

libdecode_dtype dtype_from_name(const char *name) {
    for (int dtype = LIBDECODE_DTYPE_BF16; name != NULL && dtype <= LIBDECODE_DTYPE_E5M2; dtype++) {
        if (strcmp(name, dtype_name((libdecode_dtype)dtype)) == 0)
            return (libdecode_dtype)dtype;
    }
    return name != NULL && strcmp(name, "fp8") == 0 ? LIBDECODE_DTYPE_E4M3 : LIBDECODE_DTYPE_DEFAULT;
}

static bool read_heads(const char *command, const char *heads, libdecode_problem *problem) {
    char end;
    if (sscanf(heads, "%d/%d%c", &problem->num_qo_heads, &problem->num_kv_heads, &end) != 2)
        return complain("%s: --heads %s: query heads / KV heads is accepted, like 32/8", command, heads);
    return true;
}

static bool allocate_lens(struct workload *workload, size_t count) {
    workload->problem.batch_size = (int32_t)count;
    workload->seq_lens = calloc(count > 0 ? count : 1, sizeof workload->seq_lens[0]);
    return workload->seq_lens != NULL || complain("out of memory");
}

static bool read_lens(const char *command, const char *lens, struct workload *workload) {
    size_t count = 1;
    for (const char *comma = lens; (comma = strchr(comma, ',')) != NULL; comma++)
        count++;
    if (!allocate_lens(workload, count))
        return false;
    const char *text = lens;
    for (size_t request = 0; request < count; request++) {
        char *end;
        errno = 0;
        long len = strtol(text, &end, 10);
        if (errno != 0 || end == text || (*end != ',' && *end != '\0') || len < 0 || len > MAX_LEN)
            return complain("%s: --lens %s: numbers from 0 to %d, separated by commas, are accepted", command, lens, MAX_LEN);
        workload->seq_lens[request] = (int32_t)len;
        text = end + 1;
    }
    return true;
}

static bool read_lengths(const char *command, const struct problem_args *args, struct workload *workload) {
    if (args->lens != NULL && args->trace != NULL)
        return complain("%s: --lens and --trace exclude each other", command);
    if (args->lens != NULL)
        return read_lens(command, args->lens, workload);
    if (args->trace != NULL) {
        if (!trace_read(args->trace, &workload->trace) || !allocate_lens(workload, workload->trace.num_requests))
            return false;
        for (size_t request = 0; request < workload->trace.num_requests; request++)
            workload->seq_lens[request] = workload->trace.requests[request].seq_len;
        return true;
    }
    if (!allocate_lens(workload, (size_t)args->batch))
        return false;
    for (int32_t request = 0; request < args->batch; request++)
        workload->seq_lens[request] = args->len;
    return true;
}

static bool read_shape(const char *command, const struct problem_args *args, libdecode_problem *problem) {
    *problem = (libdecode_problem){.struct_size = sizeof *problem,
                                   .op = args->mla ? LIBDECODE_OP_MLA_DECODE : LIBDECODE_OP_BATCH_DECODE};
    const char *heads = args->heads != NULL ? args->heads : args->mla ? "128/1" : "32/8";
    problem->head_dim = args->head_dim > 0 ? args->head_dim : args->mla ? 576 : 128;
    if (args->contiguous && args->mla)
        return complain("%s: --contiguous and --mla exclude each other: the cache of MLA has pages", command);
    if (args->contiguous && args->page > 0)
        return complain("%s: --contiguous and --page exclude each other: there are no pages", command);
    if (args->row_gap > 0 && args->mla)
        return complain("%s: --row-gap and --mla exclude each other: K and V of MLA are in one row", command);
    problem->features |= args->contiguous ? LIBDECODE_FEATURE_CONTIGUOUS_KV : 0u;
    problem->page_size = args->contiguous ? 0 : args->page > 0 ? args->page : DEFAULT_PAGE_SIZE;
    problem->q_len = args->q_len;
    problem->position_stride = args->position_stride;
    problem->position_offset = args->position_offset;
    problem->query_dtype = dtype_from_name(args->query);
    problem->kv_dtype = dtype_from_name(args->kv);
    problem->out_dtype = dtype_from_name(args->out);
    if (!read_heads(command, heads, problem))
        return false;
    if (problem->kv_dtype == LIBDECODE_DTYPE_FP16 && problem->query_dtype == LIBDECODE_DTYPE_BF16)
        problem->query_dtype = LIBDECODE_DTYPE_FP16; /* what --kv fp16 alone means */
    problem->sparse_top_k = args->sparse_top_k;
    if (args->kv_row[0] == 's') {
        problem->kv_row_format = LIBDECODE_KV_ROW_FP8_SCALED_656;
        problem->kv_dtype = LIBDECODE_DTYPE_E4M3;
    } else if (args->kv_row[0] == 'n') {
        problem->kv_row_format = LIBDECODE_KV_ROW_NVFP4_352;
        problem->kv_dtype = LIBDECODE_DTYPE_NVFP4;
    }
    problem->kv_layout = args->layout[0] == 'h' ? LIBDECODE_KV_HND : LIBDECODE_KV_NHD;
    problem->v_sf_layout = args->sf_layout[0] == 'l' ? LIBDECODE_SF_LINEAR : LIBDECODE_SF_V_INTERLEAVE4;
    if (args->window >= 0) {
        problem->features |= LIBDECODE_FEATURE_WINDOW;
        problem->window_left = args->window;
    }
    *(problem->kv_layout == LIBDECODE_KV_HND ? &problem->k_token_stride : &problem->k_head_stride) =
        args->row_gap > 0 ? problem->head_dim + args->row_gap : 0;
    const bool has_scale_gap = problem->kv_dtype == LIBDECODE_DTYPE_NVFP4 && !args->mla && problem->head_dim % 64 != 0;
    *(problem->kv_layout == LIBDECODE_KV_HND ? &problem->k_sf_token_stride : &problem->k_sf_head_stride) =
        has_scale_gap ? (problem->head_dim / 16 + 3) / 4 * 4 : 0; /* no whole number of words */
    problem->features |= args->query_offsets ? LIBDECODE_FEATURE_QUERY_OFFSETS : 0u;
    problem->features |= args->kv_offsets ? LIBDECODE_FEATURE_KV_OFFSETS : 0u;
    problem->features |= args->sinks ? LIBDECODE_FEATURE_SINKS : 0u;
    problem->features |= args->lse ? LIBDECODE_FEATURE_LSE : 0u;
    problem->features |= args->alibi ? LIBDECODE_FEATURE_ALIBI : 0u;
    problem->features |= args->batch_invariant ? LIBDECODE_FEATURE_BATCH_INVARIANT : 0u;
    problem->features |= args->rope ? LIBDECODE_FEATURE_ROPE : 0u;
    problem->rope_scale = args->rope_scale;
    problem->rope_theta = args->rope_theta;
    if (args->soft_cap != 0.0f) {
        problem->features |= LIBDECODE_FEATURE_SOFT_CAP;
        problem->logits_soft_cap = args->soft_cap;
    }
    if (args->skip_softmax != 0.0f) {
        problem->features |= LIBDECODE_FEATURE_SKIP_SOFTMAX;
        problem->skip_softmax_threshold_scale_factor = args->skip_softmax;
    }
    return true;
}

void workload_give_room(libdecode_problem *problem, int32_t tokens) {
    if ((problem->features & LIBDECODE_FEATURE_CONTIGUOUS_KV) != 0) /* interleaved scales come by four tokens */
        problem->kv_capacity_tokens = problem->v_sf_layout == LIBDECODE_SF_LINEAR ? tokens : (tokens + 3) / 4 * 4;
    else if (problem_is_sparse(problem)) /* a pool that holds every request */
        problem->num_pages = (int64_t)(problem->batch_size > 0 ? problem->batch_size : 1) *
                             ((tokens + problem->page_size - 1) / problem->page_size);
    else
        problem->page_table_request_stride = (tokens + problem->page_size - 1) / problem->page_size;
}

bool workload_make(const char *command, const struct problem_args *args, struct workload *ret_workload) {
    struct workload workload = {0};
    if (!read_shape(command, args, &workload.problem) || !read_lengths(command, args, &workload)) {
        workload_free(&workload);
        return false;
    }
    int32_t longest = 1;
    for (int32_t request = 0; request < workload.problem.batch_size; request++) {
        workload.total_tokens += workload.seq_lens[request];
        longest = workload.seq_lens[request] > longest ? workload.seq_lens[request] : longest;
    }
    workload.problem.max_seq_len = args->max_len > 0 ? args->max_len : longest;
    if (args->max_len == 0) /* who gives one hint wants to see what it does alone */
        workload.problem.total_kv_tokens = workload.total_tokens;
    workload_give_room(&workload.problem, longest);
    struct problem checked;
    if (problem_check(&workload.problem, &checked) != LIBDECODE_OK) {
        complain("%s: %s", command, in_option_words(libdecode_error_message()));
        workload_free(&workload);
        return false;
    }
    *ret_workload = workload;
    return true;
}

void workload_free(struct workload *workload) {
    free(workload->seq_lens);
    trace_free(&workload->trace);
    *workload = (struct workload){0};
}

static libdecode_dtype kv_dtype(const libdecode_problem *problem) {
    return problem->kv_dtype != LIBDECODE_DTYPE_DEFAULT ? problem->kv_dtype : problem->query_dtype;
}

void workload_describe(const struct workload *workload, char *text, size_t size) {
    const libdecode_problem *problem = &workload->problem;
    int32_t shortest = INT32_MAX, longest = 0;
    for (int32_t request = 0; request < problem->batch_size; request++) {
        int32_t len = workload->seq_lens[request];
        shortest = len < shortest ? len : shortest;
        longest = len > longest ? len : longest;
    }
    char lengths[64] = "no requests", queries[32] = "", window[32] = "", soft_cap[32] = "", skip[32] = "";
    if (problem->batch_size > 0 && shortest == longest)
        snprintf(lengths, sizeof lengths, "%d request%s of %d tokens", problem->batch_size, problem->batch_size == 1 ? "" : "s",
                 longest);
    else if (problem->batch_size > 0)
        snprintf(lengths, sizeof lengths, "%d requests of %d to %d tokens", problem->batch_size, shortest, longest);
    if ((problem->features & LIBDECODE_FEATURE_WINDOW) != 0)
        snprintf(window, sizeof window, ", window %d", problem->window_left);
    if (problem->q_len > 1)
        snprintf(queries, sizeof queries, ", %d query tokens", problem->q_len);
    if ((problem->features & LIBDECODE_FEATURE_SOFT_CAP) != 0)
        snprintf(soft_cap, sizeof soft_cap, ", soft cap %g", (double)problem->logits_soft_cap);
    if ((problem->features & LIBDECODE_FEATURE_SKIP_SOFTMAX) != 0)
        snprintf(skip, sizeof skip, ", skip-softmax %g", (double)problem->skip_softmax_threshold_scale_factor);
    char query[24] = "", out[24] = "", pages[32] = "contiguous", sparse[48] = "", gap[48] = "";
    const int64_t row = problem->kv_layout == LIBDECODE_KV_HND ? problem->k_token_stride : problem->k_head_stride;
    if (row > problem->head_dim)
        snprintf(gap, sizeof gap, ", rows %lld elements apart", (long long)row);
    if (problem_is_sparse(problem))
        snprintf(sparse, sizeof sparse, ", %d of them%s", problem->sparse_top_k,
                 problem->kv_row_format == LIBDECODE_KV_ROW_FP8_SCALED_656 ? ", rows of 656 bytes"
                 : problem->kv_row_format == LIBDECODE_KV_ROW_NVFP4_352    ? ", rows of 352 bytes"
                                                                           : "");
    if ((problem->features & LIBDECODE_FEATURE_CONTIGUOUS_KV) == 0)
        snprintf(pages, sizeof pages, "page %d", problem->page_size);
    if (problem->query_dtype != kv_dtype(problem))
        snprintf(query, sizeof query, "%s query, ", dtype_name(problem->query_dtype));
    if (problem->out_dtype != LIBDECODE_DTYPE_DEFAULT && problem->out_dtype != problem->query_dtype)
        snprintf(out, sizeof out, ", %s out", dtype_name(problem->out_dtype));
    snprintf(text, size, "%s%d/%d heads of %d, %s%s KV%s, %s%s, %s%s%s%s%s%s%s%s%s%s%s%s%s",
             problem->op == LIBDECODE_OP_MLA_DECODE ? "MLA, " : "", problem->num_qo_heads, problem->num_kv_heads,
             problem->head_dim, query, dtype_name(kv_dtype(problem)), out, pages, gap, lengths, sparse, queries, window, soft_cap,
             skip, (problem->features & LIBDECODE_FEATURE_ALIBI) != 0 ? ", alibi" : "",
             (problem->features & LIBDECODE_FEATURE_ROPE) != 0 ? ", rope" : "",
             (problem->features & LIBDECODE_FEATURE_SINKS) != 0 ? ", sinks" : "",
             (problem->features & LIBDECODE_FEATURE_LSE) != 0 ? ", lse" : "",
             (problem->features & LIBDECODE_FEATURE_BATCH_INVARIANT) != 0 ? ", batch-invariant" : "",
             (problem->features & LIBDECODE_FEATURE_QUERY_OFFSETS) != 0 ? ", query offsets" : "",
             (problem->features & LIBDECODE_FEATURE_KV_OFFSETS) != 0 ? ", KV offsets" : "");
}

uint64_t workload_kv_bytes(const struct workload *workload) {
    const libdecode_problem *problem = &workload->problem;
    uint64_t tokens = 0;
    for (int32_t request = 0; request < problem->batch_size; request++) {
        int64_t visible = workload->seq_lens[request];
        const int64_t in_window =
            (int64_t)problem->window_left / (problem->position_stride > 1 ? problem->position_stride : 1) + problem->q_len;
        if ((problem->features & LIBDECODE_FEATURE_WINDOW) != 0 && in_window < visible)
            visible = in_window;
        if (problem_is_sparse(problem)) /* of each query token its own */
            visible = (visible < problem->sparse_top_k ? visible : problem->sparse_top_k) * problem->q_len;
        tokens += (uint64_t)visible;
    }
    if (problem->kv_row_format != LIBDECODE_KV_ROW_PLAIN)
        return tokens * (problem->kv_row_format == LIBDECODE_KV_ROW_FP8_SCALED_656 ? 656 : 352);
    uint64_t row_bytes = (uint64_t)problem->head_dim * (uint64_t)dtype_bits(kv_dtype(problem)) / 8;
    if (kv_dtype(problem) == LIBDECODE_DTYPE_NVFP4)
        row_bytes += (uint64_t)problem->head_dim / 16;                       /* its scales */
    const uint64_t tensors = problem->op == LIBDECODE_OP_MLA_DECODE ? 1 : 2; /* K, and V beside it */
    return tensors * tokens * (uint64_t)problem->num_kv_heads * row_bytes;
}
