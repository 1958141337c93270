/* SPDX-License-Identifier: Apache-2.0 */
/* test_reference.c: which KV tokens a query row sees, and the softmax over them, against results worked out by hand. */
#include "reference_scene.h"

/* ------------------------------------------------------------------------------------------------------- softmax */

static void two_equal_tokens_are_averaged(void **state) {
    (void)state;
    scene_begin(2);
    scene.page_table[0] = 0;
    put(0, 0, 0, 0, 2, -1);
    put(0, 0, 1, 0, 6, 1);
    run();
    expect(0, 0, 4, 0, 1); /* (2 + 6) / 2; log2(1 + 1) */
}

static void weights_and_lse_follow_the_logits(void **state) {
    (void)state;
    scene_begin(3);
    scene.page_table[0] = 0;
    put(0, 0, 0, 1, 8, 4);
    put(0, 0, 1, -1, 4, 0);
    put(0, 0, 2, 2, 2, 4);
    run();
    /* weights 2, 1/2, 4 of 6.5: (16 + 2 + 8) / 6.5 = 4 and (8 + 16) / 6.5 = 3.692 */
    expect(0, 0, 4, bf16_decode(bf16_encode(24 / 6.5)), log2(6.5));
}

static void far_apart_and_infinite_logits_stay_finite(void **state) {
    (void)state;
    scene_begin(4);
    scene.page_table[0] = 0;
    put(0, 0, 0, -100000, 100, 100);
    put(0, 0, 1, 99840, 3, 5); /* 99840 is a bf16 */
    put(0, 0, 2, -100000, 100, 100);
    put(0, 0, 3, -(double)INFINITY, 100, 100); /* weight 0, and -inf * 0 does not occur: q is 0 beyond dimension 0 */
    run();
    expect(0, 0, 3, 5, 99840);
    scene_begin(1);
    scene.page_table[0] = 0;
    put(0, 0, 0, -(double)INFINITY, 100, 100);
    run();
    expect(0, 0, 0, 0, -(double)INFINITY);
}

static void put_row(int32_t row, double logit, double v0, double v1) { put(row / PAGE, 0, row % PAGE, logit, v0, v1); }

static void contiguous_requests_have_rows_one_after_the_other(void **state) {
    (void)state;
    scene_begin(3);
    scene.problem.features |= LIBDECODE_FEATURE_CONTIGUOUS_KV;
    scene.problem.batch_size = 2;
    scene.problem.page_size = 0;
    scene.problem.page_table_request_stride = 0;
    scene.problem.kv_capacity_tokens = 5;
    scene.tensors.page_table = NULL;
    scene.seq_lens[1] = 9;                 /* counts as 5 */
    for (int32_t row = 0; row < 10; row++) /* those of request 0 from its length on stay NaN */
        if (row < 3 || row >= 5)
            put_row(row, 0, 1 << row, row < 5 ? 1 : 2);
    run();
    expect(0, 0, bf16_decode(bf16_encode(7.0 / 3)), 1, log2(3));
    expect(1, 0, bf16_decode(bf16_encode(992.0 / 5)), 2, log2(5));
    put_row(3, 0, 8, 1);
    put_row(4, 0, 16, 1);
    scene.tensors.seq_lens = NULL; /* all that there is room for */
    run();
    expect(0, 0, bf16_decode(bf16_encode(31.0 / 5)), 1, log2(5));
    expect(1, 0, bf16_decode(bf16_encode(992.0 / 5)), 2, log2(5));
}

static void without_lengths_a_request_in_pages_has_its_capacity(void **state) {
    (void)state;
    scene_begin(3);
    scene.problem.kv_capacity_tokens = 2;
    scene.page_table[0] = 0;
    put(0, 0, 0, 0, 8, 4);
    put(0, 0, 1, 0, 4, 2); /* the rows behind stay NaN */
    scene.tensors.seq_lens = NULL;
    run();
    expect(0, 0, 6, 3, log2(2));
    scene.tensors.seq_lens = scene.seq_lens; /* 3, which counts as 2 */
    run();
    expect(0, 0, 6, 3, log2(2));
    scene.problem.features |= LIBDECODE_FEATURE_HOST_SEQ_LENS; /* as all lengths here are */
    run();
    expect(0, 0, 6, 3, log2(2));
}

static void a_sink_takes_part_in_the_sum_and_not_in_the_values(void **state) {
    (void)state;
    scene_begin(1);
    scene.problem.features |= LIBDECODE_FEATURE_SINKS;
    scene.problem.num_qo_heads = 4;
    scene.tensors.sinks = scene.sinks;
    scene.page_table[0] = 0;
    put(0, 0, 0, 0, 8, 4);
    scene.sinks[0] = 0;                   /* weight 1 of 2 */
    scene.sinks[1] = -INFINITY;           /* none */
    scene.sinks[2] = 1.0986122886681098f; /* natural log of 3, not scaled: 3 of 4 */
    scene.sinks[3] = 1000;                /* beyond exp's range: all of it */
    run();
    expect(0, 0, 4, 2, 1);
    expect(0, 1, 8, 4, 0);
    expect(0, 2, 2, 1, 2);
    expect(0, 3, 0, 0, 1000 * 1.4426950408889634);
}

static void an_empty_sequence_gives_zero_and_minus_infinity_or_the_sink(void **state) {
    (void)state;
    scene_begin(0); /* every page id is poison */
    run();
    expect(0, 0, 0, 0, -(double)INFINITY);
    scene.problem.features |= LIBDECODE_FEATURE_SINKS;
    scene.tensors.sinks = scene.sinks;
    scene.sinks[0] = 2;
    run();
    expect(0, 0, 0, 0, 2 * 1.4426950408889634);
}

/* One token, of logit 3, seen by three heads, whose sinks are both infinities and one that weighs as much as the token. */
static void run_three_sinks(uint32_t features) {
    scene_begin(1);
    scene.problem.features |= LIBDECODE_FEATURE_SINKS | features;
    scene.problem.num_qo_heads = 3;
    scene.tensors.sinks = scene.sinks;
    scene.page_table[0] = 0;
    put(0, 0, 0, 3, 8, 4);
    scene.sinks[0] = INFINITY;
    scene.sinks[1] = -INFINITY;
    scene.sinks[2] = 2.0794415416798357f; /* natural log of 8, as much as the token */
    run();
}

static void an_infinite_sink_takes_everything_or_nothing(void **state) {
    (void)state;
    run_three_sinks(0);
    expect(0, 0, 0, 0, (double)INFINITY);
    expect(0, 1, 8, 4, 3);
    expect(0, 2, 4, 2, 4);
    scene.seq_lens[0] = 0; /* nothing but the sink */
    run();
    expect(0, 0, 0, 0, (double)INFINITY);
    expect(0, 1, 0, 0, -(double)INFINITY);
    expect(0, 2, 0, 0, 3);
}

/* What FlashMLA says: the scene's sinks and tokens as above, and neither `out` is another one. */
static void an_lse_may_leave_the_sink_out_and_be_infinity_where_it_is_empty(void **state) {
    (void)state;
    run_three_sinks(LIBDECODE_FEATURE_LSE_WITHOUT_SINK | LIBDECODE_FEATURE_LSE_EMPTY_INFINITY);
    expect(0, 0, 0, 0, 3);
    expect(0, 1, 8, 4, 3);
    expect(0, 2, 4, 2, 3);
    scene.seq_lens[0] = 0;
    run();
    for (int32_t head = 0; head < 3; head++)
        expect(0, head, 0, 0, (double)INFINITY);
    scene.problem.features &= ~(uint32_t)LIBDECODE_FEATURE_LSE_WITHOUT_SINK; /* each flag by itself */
    run();
    expect(0, 1, 0, 0, (double)INFINITY);
    expect(0, 2, 0, 0, 3);
    scene.problem.features ^= LIBDECODE_FEATURE_LSE_WITHOUT_SINK | LIBDECODE_FEATURE_LSE_EMPTY_INFINITY;
    run();
    expect(0, 2, 0, 0, -(double)INFINITY);
}

static void scales_multiply_logits_and_results_and_device_scales_win(void **state) {
    float natural = 0.6931471805599453f, two = 2, three = 3;
    (void)state;
    scene_begin(2);
    scene.page_table[0] = 0;
    put(0, 0, 0, 0, 8, 0);
    put(0, 0, 1, 1, 2, 0);
    scene.tensors.bmm1_scale = 100; /* loses to the log2 scale: 2 */
    scene.tensors.bmm1_scale_device = &natural;
    scene.tensors.bmm1_scale_log2_device = &two;
    scene.tensors.bmm2_scale = 5;
    run();
    expect(0, 0, 16, 0, log2(5));                /* weights 1, 4: (8 + 8) / 5 * 5 */
    scene.tensors.bmm1_scale_log2_device = NULL; /* now natural: weights 1, 2 */
    scene.tensors.bmm2_scale_device = &three;
    run();
    expect(0, 0, 12, 0, log2(3)); /* (8 + 4) / 3 * 3 */
    scene.tensors.bmm1_scale_device = NULL;
    scene.tensors.bmm1_scale = natural;
    scene.tensors.bmm2_scale_device = NULL;
    scene.tensors.bmm2_scale = 0; /* the default, 1 */
    run();
    expect(0, 0, 4, 0, log2(3));
}

static void a_soft_cap_bends_the_logits(void **state) {
    (void)state;
    scene_begin(3);
    scene.problem.features |= LIBDECODE_FEATURE_SOFT_CAP;
    scene.problem.logits_soft_cap = 0.5f;
    scene.tensors.bmm1_scale_log2_device = NULL; /* natural units */
    scene.page_table[0] = 0;
    put(0, 0, 0, 0, 8, 0);
    put(0, 0, 1, 0.25, 0, 8);
    put(0, 0, 2, 1000, 8, 8);
    run();
    const double low = exp(0.5 * tanh(0.5)), high = exp(0.5); /* of 0.25 and, as good as the cap, of 1000 */
    const double sum = 1 + low + high;
    expect(0, 0, bf16_decode(bf16_encode(8 * (1 + high) / sum)), bf16_decode(bf16_encode(8 * (low + high) / sum)), log2(sum));
    put(0, 0, 2, -(double)INFINITY, 8, 8); /* becomes the cap, too */
    run();
    const double least = exp(-0.5);
    expect(0, 0, bf16_decode(bf16_encode(8 * (1 + least) / (1 + low + least))),
           bf16_decode(bf16_encode(8 * (low + least) / (1 + low + least))), log2(1 + low + least));
}

/* Slopes of ln 2 halve the weight with every token of distance; the soft cap leaves the bias alone. */
static void a_slope_weighs_by_distance_in_positions(void **state) {
    static const float slopes[] = {0.0f, 0.6931471805599453f, -0.6931471805599453f};
    (void)state;
    scene_begin(3);
    scene.problem.features |= LIBDECODE_FEATURE_ALIBI | LIBDECODE_FEATURE_SOFT_CAP;
    scene.problem.logits_soft_cap = 0.01f;
    scene.problem.num_qo_heads = 3;
    scene.tensors.alibi_slopes = slopes;
    put_tokens(3); /* values 1, 2, 4 */
    run();
    expect(0, 0, bf16_decode(bf16_encode(7 / 3.0)), 1, log2(3));
    expect(0, 1, bf16_decode(bf16_encode(5.25 / 1.75)), 1, log2(1.75)); /* weights 1/4, 1/2, 1 */
    expect(0, 2, bf16_decode(bf16_encode(12 / 7.0)), 1, log2(7));       /* 4, 2, 1 */
    scene.problem.position_stride = 2;                                  /* twice as far apart */
    run();
    expect(0, 1, bf16_decode(bf16_encode((1 / 16.0 + 2 / 4.0 + 4) / 1.3125)), 1, log2(1.3125));
    scene.problem.position_stride = 1;
    scene.problem.features |= LIBDECODE_FEATURE_QUERY_POSITIONS;
    scene.tensors.query_positions = scene.query_positions;
    scene.query_positions[0] = 5; /* as far behind the last token as that is long: it changes only the sum */
    run();
    expect(0, 1, 3, 1, log2(1.75 / 8));
    scene.problem.features |= LIBDECODE_FEATURE_LSE_ALIBI_FROM_ZERO; /* as if 0, 1 and 2 slopes had been added */
    run();
    expect(0, 0, bf16_decode(bf16_encode(7 / 3.0)), 1, log2(3));
    expect(0, 1, 3, 1, log2(7));
    expect(0, 2, bf16_decode(bf16_encode(12 / 7.0)), 1, log2(1.75));
}

/* A query (1, 0, ...) and keys likewise: dimensions 0 and 8 are a pair that turns by one radian a position. */
static void rotation_turns_pairs_by_their_positions(void **state) {
    (void)state;
    for (int far = 0; far < 2; far++) {
        scene_begin(3);
        scene.problem.features |= LIBDECODE_FEATURE_ROPE | LIBDECODE_FEATURE_LSE_NATURAL;
        scene.tensors.bmm1_scale_log2_device = NULL;
        scene.problem.max_seq_len = 3;
        scene.problem.position_offset = far ? 1000000 : 0;
        put_tokens(3);
        for (int32_t token = 0; token < 3; token++) {
            scene.k[token * D] = bf16_encode(token == 2 ? 0 : 2);
            scene.k[token * D + D / 2] = bf16_encode(token == 2 ? 4 : 0); /* the other one of the pair */
        }
        run();
        /* cos of 2 and 1 positions; a quarter turn ahead at none: -sin(0) */
        const double weights[] = {exp(2 * cos(2.0)), exp(2 * cos(1.0)), exp(4 * -sin(0.0))};
        const double sum = weights[0] + weights[1] + weights[2];
        expect(0, 0, bf16_decode(bf16_encode((weights[0] + 2 * weights[1] + 4 * weights[2]) / sum)), 1, log(sum));
    }
}

/* Pair i turns by theta^(-2 i / head_dim) / scale: with theta 2^16 and a head_dim of 16 by 4^-i. */
static void rotation_is_slower_in_later_pairs_and_by_the_scale(void **state) {
    (void)state;
    for (int pair = 0; pair < D / 2; pair++) {
        scene_begin(2);
        scene.problem.features |= LIBDECODE_FEATURE_ROPE;
        scene.problem.rope_theta = 65536;
        scene.problem.rope_scale = 8;
        scene.tensors.bmm1_scale_log2_device = NULL;
        put_tokens(2);
        memset(scene.query, 0, sizeof scene.query);
        scene.query[pair] = bf16_encode(1);
        scene.k[pair + D / 2] = bf16_encode(1);     /* token 0, one position behind: sin(angle) */
        scene.k[D + pair + D / 2] = bf16_encode(1); /* token 1, beside the query: 0 */
        run();
        const double weight = exp(sin(ldexp(1, -2 * pair) / 8));
        expect(0, 0, bf16_decode(bf16_encode((weight + 2) / (weight + 1))), 1, log2(weight + 1));
    }
}

static void a_negative_scale_turns_the_order_of_the_logits(void **state) {
    float minus_one = -1;
    (void)state;
    scene_begin(3);
    scene.page_table[0] = 0;
    put(0, 0, 0, 2, 64, 0);
    put(0, 0, 1, -1, 7, 0);
    put(0, 0, 2, 0, 7, 0);
    put(0, 0, 3, 100, 7, 7); /* not visible, and of all scores the highest: it does not become the maximum */
    scene.tensors.bmm1_scale_log2_device = &minus_one;
    run();
    expect(0, 0, bf16_decode(bf16_encode(37 / 3.25)), 0, log2(3.25)); /* weights 1/4, 2, 1: (16 + 14 + 7) / 3.25 */
    scene.tensors.bmm1_scale_log2_device = NULL;
    scene.tensors.bmm1_scale = -0.6931471805599453f;
    run();
    expect(0, 0, bf16_decode(bf16_encode(37 / 3.25)), 0, log2(3.25));
}

static void a_device_scale_of_zero_gives_the_mean(void **state) {
    float zero = 0;
    (void)state;
    scene_begin(2);
    scene.page_table[0] = 0;
    put(0, 0, 0, 20, 2, 1);
    put(0, 0, 1, -20, 6, 1);
    scene.tensors.bmm1_scale = 100; /* a host scale of 0 would mean 1 */
    scene.tensors.bmm1_scale_log2_device = &zero;
    run();
    expect(0, 0, 4, 1, 1);
    scene.tensors.bmm1_scale_device = &zero;
    scene.tensors.bmm1_scale_log2_device = NULL;
    run();
    expect(0, 0, 4, 1, 1);
}

static void skip_softmax_is_dense(void **state) {
    (void)state;
    scene_begin(2);
    scene.page_table[0] = 0;
    put(0, 0, 0, 2, 5, 0);
    put(0, 0, 1, 0, 0, 5);
    scene.problem.features |= LIBDECODE_FEATURE_SKIP_SOFTMAX;
    scene.problem.skip_softmax_threshold_scale_factor = 1.5f;
    run();
    expect(0, 0, 4, 1, log2(5));
}

/* ---------------------------------------------------------------------------------------------------- visibility */

static void a_length_beyond_the_page_table_counts_as_its_width(void **state) {
    (void)state;
    scene_begin(100);
    put_tokens(8); /* in two pages; every entry behind them is poison */
    scene.problem.page_table_request_stride = 2;
    run();
    expect_seen(0, 255);
    scene.problem.q_len = 2; /* at the end of what there is, not of what the length says */
    run();
    expect_seen(0, 127);
    expect_seen(1, 255);
    scene.problem.features |= LIBDECODE_FEATURE_WINDOW;
    scene.problem.window_left = 1;
    run();
    expect_seen(0, 3u << 5);
    expect_seen(1, 3u << 6);
    scene.seq_lens[0] = INT32_MAX;
    run();
    expect_seen(1, 3u << 6);
}

static void a_row_of_the_page_table_ends_where_the_next_head_or_v_begins(void **state) {
    (void)state;
    scene_begin(100);
    put_tokens(8);
    scene.problem.page_table_request_stride = TABLE;
    scene.problem.features |= LIBDECODE_FEATURE_V_PAGE_TABLE;
    scene.problem.page_table_v_offset = 2;
    memcpy(scene.page_table + 2, (int32_t[]){0, 1}, 2 * sizeof(int32_t));
    run();
    expect_seen(0, 255);
    scene_begin(100);
    put_tokens(4);
    scene.problem.num_kv_heads = scene.problem.num_qo_heads = 2;
    scene.problem.page_table_head_stride = 1;
    scene.page_table[1] = 0;
    for (int32_t slot = 0; slot < PAGE; slot++) {
        put(0, 0, slot, 0, ldexp(1, slot), 1);
        put(0, 1, slot, 0, 5, 1);
    }
    run();
    expect_seen(0, 15);
    expect(0, 1, 5, 1, 2);
}

static void a_length_below_zero_counts_as_zero(void **state) {
    (void)state;
    scene_begin(INT32_MIN);
    scene.seq_lens[1] = -1;
    scene.problem.batch_size = 2;
    scene.problem.q_len = 2;
    run();
    for (int32_t token = 0; token < 4; token++)
        expect_seen(token, 0);
}

static void a_window_keeps_the_own_position_and_as_many_before(void **state) {
    (void)state;
    scene_begin(6);
    put_tokens(6);
    scene.problem.features |= LIBDECODE_FEATURE_WINDOW;
    scene.problem.window_left = 0;
    run();
    expect_seen(0, 1u << 5);
    scene.problem.window_left = 2;
    run();
    expect_seen(0, 7u << 3);
    scene.problem.window_left = 100;
    run();
    expect_seen(0, 63);
}

static void query_tokens_are_causal_and_each_has_its_window(void **state) {
    (void)state;
    scene_begin(6);
    put_tokens(6);
    scene.problem.q_len = 3;
    run();
    expect_seen(0, 15);
    expect_seen(1, 31);
    expect_seen(2, 63);
    scene.problem.features |= LIBDECODE_FEATURE_WINDOW;
    scene.problem.window_left = 1;
    run();
    expect_seen(0, 3u << 2);
    expect_seen(1, 3u << 3);
    expect_seen(2, 3u << 4);
}

static void query_tokens_before_the_sequence_are_empty(void **state) {
    (void)state;
    scene_begin(1);
    put_tokens(1);
    scene.problem.q_len = 3;
    run();
    expect_seen(0, 0);
    expect_seen(1, 0);
    expect_seen(2, 1);
    /* nor does a mask that lets everything see everything help them */
    memset(scene.draft_mask, 0xff, sizeof scene.draft_mask);
    scene.problem.features |= LIBDECODE_FEATURE_DRAFT_MASK;
    scene.tensors.draft_mask = scene.draft_mask;
    run();
    expect_seen(0, 0);
    expect_seen(1, 0);
    expect_seen(2, 1);
}

static void a_draft_mask_replaces_causality_among_the_drafts_only(void **state) {
    (void)state;
    scene_begin(5);
    put_tokens(5);
    scene.problem.q_len = 3; /* drafts are the tokens 2, 3, 4; a mask row is two 16-bit words */
    scene.problem.features |= LIBDECODE_FEATURE_DRAFT_MASK;
    scene.tensors.draft_mask = scene.draft_mask;
    scene.draft_mask[0] = 1;     /* sees itself */
    scene.draft_mask[2] = 2 | 4; /* itself and a later one, not the first */
    scene.draft_mask[4] = 1;     /* not itself */
    run();
    expect_seen(0, 3 | 1u << 2);
    expect_seen(1, 3 | 1u << 3 | 1u << 4);
    expect_seen(2, 3 | 1u << 2);
    scene.problem.features |= LIBDECODE_FEATURE_WINDOW;
    scene.problem.window_left = 1; /* from position 1, 2, 3 on */
    run();
    expect_seen(0, 2 | 1u << 2);
    expect_seen(1, 1u << 3 | 1u << 4);
    expect_seen(2, 0);
}

static void draft_mask_rows_are_whole_32_bit_words(void **state) {
    (void)state;
    scene_begin(33);
    for (int32_t page = 0; page < 9; page++)
        scene.page_table[page] = 0; /* token j is row j % 4 of page 0 */
    for (int32_t slot = 0; slot < PAGE; slot++)
        put(0, 0, slot, 0, slot + 1, 1);
    scene.problem.q_len = 33; /* all tokens are drafts; a mask row is four 16-bit words */
    scene.problem.features |= LIBDECODE_FEATURE_DRAFT_MASK;
    scene.tensors.draft_mask = scene.draft_mask;
    scene.draft_mask[0 * 4 + 2] = 1;        /* row 0 sees draft 32, slot 0 */
    scene.draft_mask[32 * 4 + 1] = 1 << 15; /* row 32 sees draft 31, slot 3 */
    scene.draft_mask[32 * 4 + 0] = 2;       /* and draft 1, slot 1 */
    run();
    expect(0, 0, 1, 1, 0);
    expect(1, 0, 0, 0, -(double)INFINITY);
    expect(32, 0, 3, 1, 1);
}

static void positions_may_be_strided_and_queries_placed_by_hand(void **state) {
    (void)state;
    scene_begin(4);
    put_tokens(4); /* at positions 1, 3, 5, 7 */
    scene.problem.position_stride = 2;
    scene.problem.position_offset = 1;
    scene.problem.q_len = 2;
    run();
    expect_seen(0, 7); /* at 5 and 7, where their own tokens are */
    expect_seen(1, 15);
    scene.problem.features |= LIBDECODE_FEATURE_QUERY_POSITIONS;
    scene.tensors.query_positions = scene.query_positions;
    scene.query_positions[0] = 4; /* 4 and 5: consecutive, not strided */
    run();
    expect_seen(0, 3);
    expect_seen(1, 7);
    scene.problem.features |= LIBDECODE_FEATURE_WINDOW;
    scene.problem.window_left = 2; /* 2..4 and 3..5 */
    run();
    expect_seen(0, 2);
    expect_seen(1, 6);
    scene.query_positions[0] = 0; /* before every token, then at the first */
    run();
    expect_seen(0, 0);
    expect_seen(1, 1);
}

static void a_rank_with_fewer_tokens_than_queries_still_serves_placed_queries(void **state) {
    (void)state;
    scene_begin(1);
    put_tokens(1); /* at position 3 */
    scene.problem.position_stride = 4;
    scene.problem.position_offset = 3;
    scene.problem.q_len = 3;
    scene.problem.features |= LIBDECODE_FEATURE_QUERY_POSITIONS;
    scene.tensors.query_positions = scene.query_positions;
    scene.query_positions[0] = 2;
    run();
    expect_seen(0, 0);
    expect_seen(1, 1);
    expect_seen(2, 1);
}

static void ragged_queries_have_rows_of_their_own_and_empty_ones_write_nothing(void **state) {
    (void)state;
    scene_begin(4);
    put_tokens(4);
    for (int32_t request = 0; request < 3; request++)
        scene.page_table[request * TABLE] = 0;
    scene.problem.batch_size = 3;
    scene.problem.q_len = 2;
    scene.problem.features |= LIBDECODE_FEATURE_RAGGED_Q;
    scene.tensors.cum_seq_lens_q = scene.cum_seq_lens_q;
    memcpy(scene.cum_seq_lens_q, (int32_t[]){0, 2, 2, 3}, 4 * sizeof(int32_t));
    scene.seq_lens[1] = 3;
    scene.seq_lens[2] = 3;
    run();
    expect_seen(0, 7);
    expect_seen(1, 15);
    expect_seen(2, 7); /* request 2, one token, at position 2 */
    assert_int_equal(scene.out[3 * D], POISON_OUT);
    assert_true(scene.lse[3] == POISON_LSE);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_equal_tokens_are_averaged),
        cmocka_unit_test(weights_and_lse_follow_the_logits),
        cmocka_unit_test(far_apart_and_infinite_logits_stay_finite),
        cmocka_unit_test(contiguous_requests_have_rows_one_after_the_other),
        cmocka_unit_test(without_lengths_a_request_in_pages_has_its_capacity),
        cmocka_unit_test(a_sink_takes_part_in_the_sum_and_not_in_the_values),
        cmocka_unit_test(an_empty_sequence_gives_zero_and_minus_infinity_or_the_sink),
        cmocka_unit_test(an_lse_may_leave_the_sink_out_and_be_infinity_where_it_is_empty),
        cmocka_unit_test(scales_multiply_logits_and_results_and_device_scales_win),
        cmocka_unit_test(a_window_keeps_the_own_position_and_as_many_before),
        cmocka_unit_test(query_tokens_are_causal_and_each_has_its_window),
        cmocka_unit_test(query_tokens_before_the_sequence_are_empty),
        cmocka_unit_test(a_draft_mask_replaces_causality_among_the_drafts_only),
        cmocka_unit_test(draft_mask_rows_are_whole_32_bit_words),
        cmocka_unit_test(positions_may_be_strided_and_queries_placed_by_hand),
        cmocka_unit_test(a_rank_with_fewer_tokens_than_queries_still_serves_placed_queries),
        cmocka_unit_test(ragged_queries_have_rows_of_their_own_and_empty_ones_write_nothing),
        cmocka_unit_test(a_length_beyond_the_page_table_counts_as_its_width),
        cmocka_unit_test(a_row_of_the_page_table_ends_where_the_next_head_or_v_begins),
        cmocka_unit_test(a_length_below_zero_counts_as_zero),
        cmocka_unit_test(a_soft_cap_bends_the_logits),
        cmocka_unit_test(a_slope_weighs_by_distance_in_positions),
        cmocka_unit_test(rotation_turns_pairs_by_their_positions),
        cmocka_unit_test(rotation_is_slower_in_later_pairs_and_by_the_scale),
        cmocka_unit_test(an_infinite_sink_takes_everything_or_nothing),
        cmocka_unit_test(a_negative_scale_turns_the_order_of_the_logits),
        cmocka_unit_test(a_device_scale_of_zero_gives_the_mean),
        cmocka_unit_test(skip_softmax_is_dense),
    };
    return cmocka_run_group_tests_name("reference", tests, NULL, NULL);
}
