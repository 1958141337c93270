/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A problem and a kernel's contract in, the units of work, their cost and what the parameter blocks of decoding families have in common
 * out. Pure. Before and next: gqa_decode.c, mla_decode.c.
 */
#include "paged_decode.h"

#include "contract_kv.h"
#include "dtype.h"
#include "family.h"
#include "mla_times.h"
#include "select.h"
#include "text.h"

typedef struct libdecode_launch_contract contract_t;

static const double log2_e = 1.4426950408889634074, ln_2 = 0.69314718055994530942;

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }
static int64_t quotient_up(int64_t dividend, int64_t divisor) { return dividend / divisor + (dividend % divisor != 0); }

/* ------------------------------------------------------------------------------------------------------------ units */

/* Of sparse attention every query token reads rows of its own, and is what a request is elsewhere. */
static bool is_sparse(const struct problem *problem) { return problem->given.sparse_top_k > 0; }
static int64_t query_tokens_of_unit(const struct problem *problem) { return is_sparse(problem) ? 1 : problem->given.q_len; }
static int64_t requests(const struct problem *problem) {
    return (int64_t)problem->given.batch_size * (is_sparse(problem) ? problem->given.q_len : 1);
}

/*
 * All heads of MLA read the same rows. Where they take several passes, they count as the heads of several KV heads, if that takes no
 * more passes: workers of one group then do them side by side, and all but one of them find the rows in the L2 cache.
 */
static int32_t mla_groups(const struct problem *problem, uint32_t row_tile) {
    enum { MOST = 8 };
    const int64_t heads = problem->given.num_qo_heads, q_len = query_tokens_of_unit(problem);
    const int64_t passes = quotient_up(heads * q_len, row_tile);
    int32_t groups = MOST;
    while (groups > 1 && (heads % groups != 0 || groups * quotient_up(heads / groups * q_len, row_tile) != passes))
        groups--;
    return groups;
}

struct paged_units paged_units(const struct problem *problem, const contract_t *contract) {
    const int32_t groups = problem->given.op == LIBDECODE_OP_MLA_DECODE ? mla_groups(problem, contract->row_tile) : 1;
    const int32_t group_size = problem->group_size / groups;
    return (struct paged_units){
        .num_kv_heads = problem->given.num_kv_heads * groups,
        .heads_per_sequence = problem->heads_per_sequence * groups,
        .group_size = group_size,
        .row_passes = quotient_up(group_size * query_tokens_of_unit(problem), contract->row_tile),
    };
}

int64_t paged_row_passes(const struct problem *problem, const contract_t *contract) {
    return quotient_up(problem->group_size * query_tokens_of_unit(problem), contract->row_tile);
}

uint32_t paged_box_tokens(const struct problem *problem, const contract_t *contract) {
    if (contract_copies_rows(contract) || problem_is_contiguous(&problem->given))
        return contract->max_box_tokens;
    return (uint32_t)smaller(contract->max_box_tokens, problem->given.page_size);
}

/* ------------------------------------------------------------------------------------------------------------- axes */

static int64_t longest_kv_stride_bytes(const struct problem *problem) {
    const libdecode_problem *given = &problem->given;
    const int64_t strides[] = {given->k_page_stride, given->k_head_stride, given->k_token_stride,
                               given->v_page_stride, given->v_head_stride, given->v_token_stride};
    int64_t longest = 0;
    for (size_t i = 0; i < sizeof strides / sizeof strides[0]; i++)
        longest = larger(longest, strides[i]);
    return (int64_t)element_bytes(given->kv_dtype, longest);
}
static bool fits_strides(const struct problem *problem, const contract_t *contract) {
    if ((contract->flags & CONTRACT_FLAG_ANY_ROWS) != 0)
        return true;
    return odd_kv_stride_bytes(&problem->given) == 0 && longest_kv_stride_bytes(problem) < TENSOR_MAP_MAX_STRIDE_BYTES;
}
static void asks_strides(const struct problem *problem, char *text) {
    const int64_t odd = odd_kv_stride_bytes(&problem->given);
    if (odd != 0)
        text_append(text, AXIS_TEXT_BYTES, "%lld bytes (not a multiple of %d)", (long long)odd, ROW_ALIGNMENT_BYTES);
    else
        text_append(text, AXIS_TEXT_BYTES, "%lld bytes", (long long)longest_kv_stride_bytes(problem));
}
static void offers_strides(const contract_t *contract, char *text) {
    if ((contract->flags & CONTRACT_FLAG_ANY_ROWS) != 0)
        text_append(text, AXIS_TEXT_BYTES, "any");
    else
        text_append(text, AXIS_TEXT_BYTES, "multiples of %d less than 2^40 bytes", ROW_ALIGNMENT_BYTES);
}
const struct axis axis_kv_strides = {"K and V strides", fits_strides, asks_strides, offers_strides};

/*
 * Kernels number boxes over all units (request, KV head, pass) with 31 bits. They take no length for more than a request has room for, and an
 * empty unit for one box.
 */
static int64_t most_boxes(const struct problem *problem, const contract_t *contract) {
    const libdecode_problem *given = &problem->given;
    const int64_t tokens = larger(is_sparse(problem) ? given->sparse_top_k : problem->max_tokens, 1);
    int64_t units, boxes;
    if (__builtin_mul_overflow(requests(problem) * given->num_kv_heads, paged_row_passes(problem, contract), &units) ||
        __builtin_mul_overflow(quotient_up(tokens, paged_box_tokens(problem, contract)), units, &boxes))
        return INT64_MAX;
    return boxes;
}
static bool fits_boxes(const struct problem *problem, const contract_t *contract) {
    return most_boxes(problem, contract) <= INT32_MAX;
}
static void asks_boxes(const struct problem *problem, char *text) {
    text_append(text, AXIS_TEXT_BYTES, "%d requests of up to %d tokens", problem->given.batch_size, problem->max_tokens);
}
static void offers_boxes(const contract_t *contract, char *text) {
    text_append(text, AXIS_TEXT_BYTES, "less than 2^31 boxes of up to %u tokens", contract->max_box_tokens);
}
const struct axis axis_boxes = {"size of the batch", fits_boxes, asks_boxes, offers_boxes};

static bool fits_draft_tokens(const struct problem *problem, const contract_t *contract) {
    (void)contract;
    return (problem->given.features & LIBDECODE_FEATURE_DRAFT_MASK) == 0 || problem->given.q_len <= KERNEL_MAX_DRAFT_TOKENS;
}
static void asks_draft_tokens(const struct problem *problem, char *text) {
    text_append(text, AXIS_TEXT_BYTES, "a mask for %d query tokens", problem->given.q_len);
}
static void offers_draft_tokens(const contract_t *contract, char *text) {
    (void)contract;
    text_append(text, AXIS_TEXT_BYTES, "masks for up to %d", KERNEL_MAX_DRAFT_TOKENS);
}
static bool fits_sparse(const struct problem *problem, const contract_t *contract) {
    return is_sparse(problem) == (contract->family == KERNEL_FAMILY_SPARSE_MLA_DECODE);
}
static void asks_sparse(const struct problem *problem, char *text) {
    if (is_sparse(problem))
        text_append(text, AXIS_TEXT_BYTES, "%d token ids", problem->given.sparse_top_k);
    else
        text_append(text, AXIS_TEXT_BYTES, "all tokens");
}
static void offers_sparse(const contract_t *contract, char *text) {
    text_append(text, AXIS_TEXT_BYTES,
                contract->family == KERNEL_FAMILY_SPARSE_MLA_DECODE ? "token ids" : "all tokens of the page table");
}
const struct axis axis_sparse = {"sparse_top_k", fits_sparse, asks_sparse, offers_sparse};

const struct axis axis_draft_tokens = {"draft_mask", fits_draft_tokens, asks_draft_tokens, offers_draft_tokens};

/* ----------------------------------------------------------------------------------------------------------- chunks */

/*
 * How a batch-invariant problem is cut: by nothing but what the problem says of every request alike, and the request's own tokens.
 * Chunks of 2,048 tokens, so that one request of 32k tokens and eight KV heads keeps 128 SMs busy; longer ones where a unit would
 * have more chunks than its records should take memory. Requests of few KV heads have fewer units to fill a GPU with; parts of MLA
 * are large. What a query token selects is as short as a chunk: of that a unit has more.
 */
enum {
    MIN_CHUNK_TOKENS = 2048,
    MIN_CHUNK_COLUMNS = 256,
    MAX_CHUNKS = 16,
    MAX_CHUNKS_OF_FEW_HEADS = 32,
    FEW_KV_HEADS = 4,
    MAX_CHUNKS_OF_MLA = KERNEL_MAX_CHUNKS_IN_SCRATCH
};
_Static_assert((int)MAX_CHUNKS_OF_FEW_HEADS <= (int)KERNEL_MAX_CHUNKS && (int)MIN_CHUNK_TOKENS >= (int)TENSOR_MAP_MAX_BOX,
               "chunks of whole boxes, a lane for each");

/* Of a unit; 0: it is cut wherever the range of a worker ends. */
static int32_t max_chunks(const libdecode_problem *given) {
    if ((given->features & LIBDECODE_FEATURE_BATCH_INVARIANT) == 0)
        return 0;
    if (given->op == LIBDECODE_OP_MLA_DECODE)
        return MAX_CHUNKS_OF_MLA;
    return given->num_kv_heads > FEW_KV_HEADS ? MAX_CHUNKS : MAX_CHUNKS_OF_FEW_HEADS;
}

/* ------------------------------------------------------------------------------------------------------------- cost */

static uint32_t min_chunk_tokens(const struct problem *problem) {
    return is_sparse(problem) ? MIN_CHUNK_COLUMNS : MIN_CHUNK_TOKENS;
}

/* Of at most `tokens` KV tokens of a request, those that its query tokens see. */
static int64_t visible_tokens(const libdecode_problem *given, int64_t tokens) {
    if (given->window_left < 0)
        return tokens;
    return smaller(tokens, (int64_t)given->window_left / given->position_stride + given->q_len);
}

/* A row that lies anywhere takes the memory as long as one that is so much longer, among its neighbours: fitted with the times above. */
static int64_t memory_token_bytes(const struct problem *problem) {
    enum { FURTHER_BYTES = 260 };
    return problem->kv_token_bytes + (is_sparse(problem) ? FURTHER_BYTES : 0);
}

/* What options add to a workload (cost.h). */
struct option_times {
    int64_t token_ps, round_ns, launch_ns;
};

/*
 * What a CTA needs longer for a token, to bend its scores (soft cap, ALiBi, skip-softmax) and to turn its keys, with KV of 16, 8 and 4 bits. By 31 shapes
 * with 2 to 16 query tokens of bf16, e4m3 and NVFP4, an H200; of 8 rows by 1 x 32,768 of fp16, 32/8 heads, on half of its SMs, 44.1 us beside 35.3; with
 * 256 dims by 40 shapes with one query token. What memory gives no faster is 0.
 */
static const struct option_rows {
    uint32_t row_tile, max_head_dim;
    int64_t bend_ps[3], turn_ps[3];
} option_rows[] = {
    /* clang-format off */
    {8, 128, {0, 0, 0}, {2200, 2200, 2200}},
    {8, 512, {0, 3400, 4600}, {2200, 2200, 2200}},
    {16, 128, {500, 1000, 1600}, {3600, 5000, 5500}},
    {16, 512, {500, 2800, 4000}, {3600, 5000, 5500}},
    {32, 64, {1500, 2800, 5000}, {9000, 10400, 11600}},
    {32, 512, {1500, 4500, 5000}, {9000, 10400, 11600}},
    {64, 64, {4000, 4600, 2600}, {0, 0, 0}},
    {64, 512, {4000, 2700, 2600}, {0, 0, 0}},
    {128, 512, {6500, 9300, 9800}, {0, 0, 0}},
    /* clang-format on */
};

static int64_t option_token_ps(const contract_t *contract, bool bends, bool turns) {
    const size_t width = contract_has_16_bit_kv(contract) ? 0 : contract->kv_dtype == KERNEL_DTYPE_NVFP4 ? 2 : 1;
    for (size_t i = 0; i < sizeof option_rows / sizeof option_rows[0]; i++)
        if (option_rows[i].row_tile == contract->row_tile && contract->head_dim <= option_rows[i].max_head_dim)
            return (bends ? option_rows[i].bend_ps[width] : 0) + (turns ? option_rows[i].turn_ps[width] : 0);
    return 0;
}

/*
 * By 51 shapes of bf16, FP8 and NVFP4 with RoPE and as many with a soft cap, an H200 (`libdecode bench --regret --rope`, `--soft-cap`;
 * tests/unit/test_option_choice.c): what kernels with options run once for a unit holds up clusters of eight, and pairs that turn keys of 16 bits.
 */
static struct option_times option_times(const libdecode_problem *problem, const contract_t *contract) {
    const uint32_t bending = LIBDECODE_FEATURE_SOFT_CAP | LIBDECODE_FEATURE_ALIBI | LIBDECODE_FEATURE_SKIP_SOFTMAX;
    const bool bends = problem->op == LIBDECODE_OP_BATCH_DECODE && (problem->features & bending) != 0;
    const bool turns = (problem->features & LIBDECODE_FEATURE_ROPE) != 0;
    const bool holds_up = contract->cluster_size >= 8 && (turns || bends);
    const bool turns_16_bits = turns && contract_has_16_bit_kv(contract) && contract->row_tile == 8;
    return (struct option_times){.token_ps = option_token_ps(contract, bends, turns),
                                 .round_ns = holds_up ? 1500 : 0,
                                 .launch_ns = turns_16_bits && contract->cluster_size > 1 ? 300 : 0};
}

/* KV tokens that are expected to be read. */
struct planned_tokens {
    int64_t longest; /* of one request */
    int64_t total;   /* of all, once for every KV head */
};

static struct planned_tokens planned_tokens(const struct problem *problem, const struct paged_units *units) {
    const libdecode_problem *given = &problem->given;
    int64_t longest = visible_tokens(given, smaller(given->max_seq_len, problem->planned_kv_tokens));
    int64_t planned = smaller(problem->planned_kv_tokens, given->batch_size * longest);
    if (is_sparse(problem)) {
        longest = smaller(longest, given->sparse_top_k);
        planned = requests(problem) * longest;
    }
    int64_t total; /* of 2^62 tokens, and 2^16 heads */
    if (__builtin_mul_overflow(planned, units->num_kv_heads, &total))
        total = INT64_MAX;
    return (struct planned_tokens){longest, total};
}

bool paged_cost(const struct problem *problem, const libdecode_device *device, const contract_t *contract,
                struct cost *ret_cost) {
    const struct paged_units units = paged_units(problem, contract);
    const libdecode_problem *given = &problem->given;
    const struct planned_tokens planned = planned_tokens(problem, &units);
    const struct mla_times times = mla_times_of(problem, contract);
    const struct option_times options = option_times(given, contract);
    const struct workload work = {.num_sequences = requests(problem) * units.num_kv_heads,
                                  .row_passes = units.row_passes,
                                  .tokens = planned.longest,
                                  .total_tokens = planned.total,
                                  .unit_rows = smaller(units.group_size * query_tokens_of_unit(problem), contract->row_tile),
                                  .max_chunks = max_chunks(given),
                                  .min_chunk_tokens = min_chunk_tokens(problem),
                                  .further_token_ps = options.token_ps,
                                  .further_round_ns = options.round_ns,
                                  .further_ns = options.launch_ns,
                                  .token_ps = times.token_ps,
                                  .split_ns = times.split_ns,
                                  .part_ns = times.part_ns,
                                  .uneven_ns = times.uneven_ns,
                                  .unit_ns = times.unit_ns,
                                  .passes_share_rows = given->op == LIBDECODE_OP_MLA_DECODE,
                                  .distinct_tokens = planned.total / units.num_kv_heads * given->num_kv_heads,
                                  .token_bytes = memory_token_bytes(problem),
                                  .computed_token_bytes = problem->kv_token_bytes * contract->head_dim / given->head_dim};
    if (!cost_estimate(&work, device, contract, ret_cost))
        return false;
    ret_cost->row_passes = (int32_t)smaller(paged_row_passes(problem, contract), INT32_MAX);
    return true;
}

/* ------------------------------------------------------------------------------------------------------- parameters */

/* Of contiguous KV a page has no end: no division by it, no mask with it ever finds another one. */
static struct libdecode_divisor page_size(const libdecode_problem *given) {
    const uint32_t endless = UINT32_C(1) << 31;
    return problem_is_contiguous(given) ? (struct libdecode_divisor){endless, UINT32_MAX / endless} : divisor(given->page_size);
}

/*
 * Workers of one group read the KV heads of the same tokens, which lie side by side in a page: 1 % less time than a page here and a
 * page there, on an H200 with pages of 16 tokens. As many as divide the heads and the workers, up to eight.
 */
static int32_t head_shift(const struct paged_units *units, const struct selection *selection) {
    enum { MOST = 3 };
    int32_t shift = 0;
    while (shift < MOST && units->heads_per_sequence % (2 << shift) == 0 && selection->num_workers % (2 << shift) == 0)
        shift++;
    return shift;
}

/* Tokens before its own that a query token sees, where positions are those of tokens. */
static int64_t window_reach(const libdecode_problem *given) {
    return given->window_left < 0 ? INT32_MAX : given->window_left / given->position_stride;
}

/*
 * Where launches fill the GPU and their history is final, the next one fills its ring on the SMs that this one leaves, one by one: 2 us
 * less on an H200. Where this one leaves SMs idle, the next is crowded into the GPCs that have them, which share bandwidth: up to 1.4
 * times as long for launches on half of the GPU, unless rings hold half of what there is to read (with four stages
 * 1 x 4,096 tokens of bf16 7.6 us for 8.2, 1 x 8,192 12.4 for 12.3; with six 1 x 4,096 6.3 for 8.0, 1 x 6,144 9.6 for 10.1). And one that can read nothing yet only waits there: up to 1 % longer, or shorter.
 */
static uint32_t early_begin(const struct problem *problem, const struct paged_units *units, const struct selection *selection,
                            const libdecode_tensors *tensors) {
    if ((tensors->launch_flags & LIBDECODE_LAUNCH_HISTORY_FINAL) == 0)
        return 0;
    const contract_t *contract = &selection->record->kernel->contract;
    const int64_t ctas = (int64_t)selection->num_workers * contract->cluster_size;
    const int64_t ring_tokens = (int64_t)contract->stages * contract->tile_tokens;
    const bool fills_gpu = ctas * 10 >= (int64_t)selection->most_ctas * 9;
    const bool is_short = planned_tokens(problem, units).total <= 2 * ring_tokens * ctas;
    return SCHEDULE_HISTORY_FINAL | (fills_gpu || is_short ? SCHEDULE_LETS_NEXT_BEGIN : 0u);
}

/* Whose pieces clusters can tell without counting. A sequence of its own for every query token or KV head is no such request. */
static bool is_one_request(const struct problem *problem, const struct paged_units *units, const struct selection *selection) {
    enum { MOST_UNITS = 32 };
    const int64_t num_units = units->row_passes * units->num_kv_heads;
    const bool is_mla = problem->given.op == LIBDECODE_OP_MLA_DECODE;
    return selection->record->kernel->contract.cluster_size > 1 && problem->given.batch_size == 1 && !is_sparse(problem) &&
           units->heads_per_sequence == units->num_kv_heads &&
           (is_mla ? num_units <= MOST_UNITS : units->row_passes == 1 && num_units == selection->num_workers);
}

static uint32_t rare(const struct problem *problem, const struct paged_units *units, const struct selection *selection,
                     const libdecode_tensors *tensors, uint32_t unit_margin_boxes) {
    uint32_t flags = early_begin(problem, units, selection, tensors);
    if (unit_margin_boxes > 0)
        flags |= SCHEDULE_UNIT_MARGINS;
    if (max_chunks(&problem->given) > 0)
        flags |= SCHEDULE_FIXED_CHUNKS;
    if (tensors->query_positions != NULL || tensors->cum_seq_lens_q != NULL)
        flags |= SCHEDULE_EXACT_RANGES;
    if (flags & (SCHEDULE_EXACT_RANGES | SCHEDULE_FIXED_CHUNKS | SCHEDULE_UNIT_MARGINS))
        return flags;
    return flags | (is_one_request(problem, units, selection) ? SCHEDULE_ONE_REQUEST : 0u);
}

/* A whole unit is worth a worker, however short. */
static uint32_t min_boxes_per_worker(const struct problem *problem, const struct paged_units *units,
                                     const struct selection *selection, uint32_t box_tokens) {
    const int64_t worth_tokens = (int64_t)selection->min_tiles_per_worker * selection->record->kernel->contract.tile_tokens;
    const int64_t unit_boxes = quotient_up(planned_tokens(problem, units).longest, box_tokens);
    return (uint32_t)larger(smaller(worth_tokens / box_tokens, unit_boxes), 1);
}

/* Whether all units are expected to be as long. */
static bool are_alike(const struct problem *problem, const struct paged_units *units) {
    const struct planned_tokens planned = planned_tokens(problem, units);
    return planned.total / (requests(problem) * units->num_kv_heads) == planned.longest;
}

/*
 * Half of the boxes that a worker reads in the time in which it begins and hands over a piece, for each side of a unit. None where equal
 * units are cut into three parts and more each: they would get a shorter first and last part.
 */
static uint32_t unit_margin_boxes(const struct problem *problem, const struct paged_units *units,
                                  const struct selection *selection, uint32_t box_tokens) {
    const contract_t *contract = &selection->record->kernel->contract;
    const int64_t num_units = requests(problem) * units->num_kv_heads * units->row_passes;
    const bool has_margins = contract->family == KERNEL_FAMILY_MLA_DECODE && max_chunks(&problem->given) == 0;
    if (!has_margins || (are_alike(problem, units) && selection->num_workers > 2 * num_units))
        return 0;
    const struct mla_times times = mla_times_of(problem, contract);
    const int64_t margin = times.unit_ns * 1000 * contract->cluster_size / (times.token_ps * box_tokens) / 2;
    return 2 * margin <= (INT32_MAX - most_boxes(problem, contract)) / num_units ? (uint32_t)margin : 0;
}

struct schedule_params paged_schedule_params(const struct problem *problem, const struct selection *selection,
                                             const libdecode_tensors *tensors) {
    const libdecode_problem *given = &problem->given;
    const contract_t *contract = &selection->record->kernel->contract;
    uint32_t box = paged_box_tokens(problem, contract);
    const struct paged_units units = paged_units(problem, contract);
    int32_t shift = head_shift(&units, selection);
    const uint32_t margin = unit_margin_boxes(problem, &units, selection, box);
    return (struct schedule_params){
        .seq_lens = tensors->seq_lens,
        .page_table = tensors->page_table,
        .row_passes = (int32_t)smaller(units.row_passes, INT32_MAX),
        .rare = rare(problem, &units, selection, tensors, margin),
        .seq_lens_request_stride = given->seq_lens_request_stride,
        .seq_lens_head_stride = given->seq_lens_head_stride,
        .page_table_request_stride = tensors->page_table != NULL ? given->page_table_request_stride : 0,
        .page_table_head_stride = given->page_table_head_stride,
        .page_table_v_offset = given->page_table_v_offset,
        .batch_size = given->batch_size,
        .heads_per_sequence = units.heads_per_sequence,
        .sequences_per_request = divisor(units.num_kv_heads / units.heads_per_sequence),
        .heads_per_worker = divisor(units.heads_per_sequence >> shift),
        .num_workers = divisor(selection->num_workers >> shift),
        .min_boxes_per_worker = min_boxes_per_worker(problem, &units, selection, box),
        .page_size = page_size(given),
        .box_tokens = (int32_t)box,
        .head_shift = shift,
        .max_tokens = problem->max_tokens,
        .window_reach = (int32_t)smaller(window_reach(given) + given->q_len - 1, INT32_MAX),
        .query_positions = tensors->query_positions,
        .cum_seq_lens_q = tensors->cum_seq_lens_q,
        .draft_mask = tensors->draft_mask,
        .group_size = divisor(units.group_size),
        .position_stride = divisor(given->position_stride),
        .q_len = given->q_len,
        .window_left = given->window_left,
        .position_offset = given->position_offset,
        .row_tile = (int32_t)contract->row_tile,
        .min_chunk_boxes = min_chunk_tokens(problem) / box,
        .max_chunks = (uint32_t)max_chunks(given),
        .unit_margin_boxes = margin,
    };
}

/* What a cap beyond these does to a score, float32 does not show; its reciprocal, and it times log2(e), stay finite. 0 is no cap. */
static float finite_cap(float cap) { return cap > 0.0f && cap < 1e-37f ? 1e-37f : cap < 1e30f ? cap : 1e30f; }

struct query_params paged_query_params(const struct problem *problem, const libdecode_tensors *tensors) {
    return (struct query_params){
        .rows = tensors->query,
        .token_stride = problem->given.query_token_stride,
        .head_stride = problem->given.query_head_stride,
        .bmm1_scale_device = tensors->bmm1_scale_device,
        .bmm1_scale_log2_device = tensors->bmm1_scale_log2_device,
        .alibi_slopes = tensors->alibi_slopes,
        .bmm1_scale_log2 = (float)(tensors->bmm1_scale * log2_e),
        .soft_cap = finite_cap(problem->given.logits_soft_cap),
        .skip_factor = problem->given.skip_softmax_threshold_scale_factor,
        .dtype = (int32_t)problem->given.query_dtype,
        .head_dim = problem->given.head_dim,
        .rotates = (problem->given.features & LIBDECODE_FEATURE_ROPE) != 0,
        .rope_frequency = problem->rope_frequency,
        .rope_ratio = problem->rope_ratio,
    };
}

struct output_params paged_output_params(const struct problem *problem, const libdecode_tensors *tensors) {
    const libdecode_problem *given = &problem->given;
    return (struct output_params){
        .rows = tensors->out,
        .token_stride = given->out_token_stride,
        .head_stride = given->out_head_stride,
        .lse = tensors->lse,
        .lse_token_stride = given->lse_token_stride,
        .lse_head_stride = given->lse_head_stride,
        .sinks = tensors->sinks,
        .bmm2_scale_device = tensors->bmm2_scale_device,
        .bmm2_scale = tensors->bmm2_scale,
        .lse_factor = (given->features & LIBDECODE_FEATURE_LSE_NATURAL) != 0 ? (float)ln_2 : 1.0f,
        .scales = tensors->out_sf,
        .scale_factor = tensors->out_sf_scale,
        .first_scale_row = tensors->out_sf_start_token,
        .scale_columns = given->num_qo_heads * (problem->v_dim / 16),
        .dtype = (int32_t)given->out_dtype,
        .lse_features = given->features & (CONTRACT_LSE | CONTRACT_FEATURE_LSE_ALIBI_FROM_ZERO),
    };
}
