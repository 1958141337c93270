/* SPDX-License-Identifier: Apache-2.0 */
/*
 * case_table.c: the shape edges at which kernels go wrong, as a table. Next: cases.c makes tensors of a row.
 * Every case has random page tables, and NaN in every page, row and gap that must not influence the result.
 */
#include "case_table.h"

#include <string.h>

#include "random.h"

#define MAX_DRAWN_WORK 1000000 /* of problems with several query tokens a request: the second or so that others take, too */

#define LENS(...)                                                                                                                \
    .lens = (const int32_t[]){__VA_ARGS__}, .num_lens = (int32_t)(sizeof((const int32_t[]){__VA_ARGS__}) / sizeof(int32_t))
#define NO_LENS .lens = NULL, .num_lens = 0
#define MIXED_LENS LENS(0, 1, 5, 100, 333, 1000)
#define TILE_LENS LENS(63, 64, 65, 127, 128, 129, 191, 192, 193, 255, 256, 257, 383, 385, 511, 512, 513)
#define WINDOW_LENS LENS(0, 1, 2, 3, 64, 126, 127, 128, 129, 130, 200, 1000, 3000)

/* One request of a hundred thousand among many short ones would take the reference too long; the shape is what matters. */
#define LONG_AND_SHORT                                                                                                           \
    LENS(3, 1, 17, 2, 40, 9000, 5, 16, 1, 33, 2, 0, 7, 64, 12, 5, 1, 1, 21, 18, 3, 2, 50, 6, 1, 9, 30, 4, 15, 2, 0, 8, 11, 1, 1)
#define UP_TO_96                                                                                                                 \
    1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33,   \
        34, 35, 36, 37, 38, 39, 40, 41, 42, 43, 44, 45, 46, 47, 48, 49, 50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 60, 61, 62, 63,  \
        64, 65, 66, 67, 68, 69, 70, 71, 72, 73, 74, 75, 76, 77, 78, 79, 80, 81, 82, 83, 84, 85, 86, 87, 88, 89, 90, 91, 92, 93,  \
        94, 95, 96
/* Of what split_schedule.cuh calls windows two, and four. */
#define MANY_REQUESTS LENS(UP_TO_96)
#define HUNDREDS_OF_REQUESTS LENS(UP_TO_96, UP_TO_96, 128, 0, 40)
#define ODD_LENS LENS(BEYOND_TABLE, 0, 100, BEYOND_TABLE, BELOW_ZERO, 333, BELOW_ZERO, 17, BEYOND_TABLE, 1, 300, BEYOND_TABLE)
#define HUGE_LENS LENS(40, 1000, 0, 2500, 513, 3000)
/* Shorter than the query tokens, as long, and longer. */
#define QUERY_LENS LENS(0, 1, 2, 3, 5, 8, 16, 17, 64, 130, 333)
#define RAGGED_LENS LENS(2100, 17, 640, 1, 900, 333, 64, 1500, 5, 128, 700, 0, 48)

/* clang-format off */
const struct test_case test_cases[] = {
    /* name              KV  group page window flags */
    {"one_token",         2,  4,   16,   0, CASE_LSE | CASE_QUICK, LENS(1)},
    {"nothing_at_all",    2,  4,   16,   0, CASE_LSE, LENS(0, 0)},
    {"page_1",            2,  4,    1,   0, CASE_LSE | CASE_PAGE_EDGES | CASE_QUICK, NO_LENS},
    {"page_2",            2,  4,    2,   0, CASE_PAGE_EDGES, NO_LENS},
    {"page_4",            2,  4,    4,   0, CASE_LSE | CASE_PAGE_EDGES | CASE_INTERLEAVED, NO_LENS},
    {"page_8",            2,  4,    8,   0, CASE_PAGE_EDGES, NO_LENS},
    {"page_5",            2,  4,    5,   0, CASE_LSE | CASE_PAGE_EDGES, NO_LENS},
    {"page_24",           2,  4,   24,   0, CASE_PAGE_EDGES, NO_LENS},
    {"page_48",           2,  4,   48,   0, CASE_LSE | CASE_PAGE_EDGES, NO_LENS},
    {"tile_edges_page_5", 2,  4,    5,   0, CASE_LSE, TILE_LENS},
    {"page_16",           2,  4,   16,   0, CASE_LSE | CASE_PAGE_EDGES | CASE_QUICK, NO_LENS},
    {"page_32",           2,  4,   32,   0, CASE_PAGE_EDGES, NO_LENS},
    {"page_64",           2,  4,   64,   0, CASE_PAGE_EDGES, NO_LENS},
    {"page_128",          2,  4,  128,   0, CASE_PAGE_EDGES, NO_LENS},
    {"page_256",          1,  4,  256,   0, CASE_PAGE_EDGES, NO_LENS},
    {"page_512",          1,  4,  512,   0, CASE_PAGE_EDGES, NO_LENS},
    {"page_1024",         1,  4, 1024,   0, CASE_LSE | CASE_PAGE_EDGES, NO_LENS},
    {"tile_edges",        2,  4,   16,   0, CASE_LSE, TILE_LENS},
    {"tile_edges_page_64", 2, 4,   64,   0, CASE_LSE, TILE_LENS},
    {"group_1",           3,  1,   16,   0, CASE_LSE, MIXED_LENS},
    {"group_3",           2,  3,   16,   0, CASE_LSE, MIXED_LENS},
    {"group_4",           8,  4,   16,   0, CASE_LSE | CASE_QUICK, MIXED_LENS},
    {"group_5",           2,  5,   16,   0, CASE_LSE, MIXED_LENS},
    {"group_8",           2,  8,   32,   0, CASE_LSE, MIXED_LENS},
    {"group_12",          2, 12,   16,   0, CASE_LSE, MIXED_LENS},
    {"group_16",          1, 16,   64,   0, CASE_LSE, MIXED_LENS},
    {"group_20",          2, 20,   16,   0, CASE_LSE, MIXED_LENS},
    {"group_32",          1, 32,   16,   0, CASE_LSE, MIXED_LENS},
    {"group_40",          2, 40,   16,   0, CASE_LSE | CASE_SINKS, MIXED_LENS},
    {"many_kv_heads",    32,  1,   16,   0, CASE_LSE, LENS(1, 100, 250)},
    {"nhd",               4,  4,   16,   0, CASE_NHD | CASE_LSE, MIXED_LENS},
    {"combined_pool",     4,  4,   16,   0, CASE_COMBINED_POOL, MIXED_LENS},
    {"combined_pool_nhd", 4,  4,   32,   0, CASE_COMBINED_POOL | CASE_NHD, MIXED_LENS},
    {"padded_strides",    3,  5,   16,   0, CASE_PADDED_STRIDES | CASE_LSE | CASE_QUICK, MIXED_LENS},
    {"padded_strides_page_128", 2, 4, 128, 0, CASE_PADDED_STRIDES | CASE_LSE, MIXED_LENS},
    {"window_0",          2,  4,   16,   0, CASE_WINDOW | CASE_LSE, WINDOW_LENS},
    {"window_1",          2,  4,   16,   1, CASE_WINDOW | CASE_LSE, WINDOW_LENS},
    {"window_127",        2,  8,   16, 127, CASE_WINDOW | CASE_LSE | CASE_QUICK, WINDOW_LENS},
    {"window_127_page_64", 2, 8,   64, 127, CASE_WINDOW | CASE_SINKS, WINDOW_LENS},
    {"window_700",        2,  4,   16, 700, CASE_WINDOW | CASE_SINKS | CASE_LSE, WINDOW_LENS},
    {"window_beyond",     2,  4,   16, 90000, CASE_WINDOW, MIXED_LENS},
    {"sinks",             4,  8,   16,   0, CASE_SINKS, MIXED_LENS},
    {"sinks_lse",         2,  5,   16,   0, CASE_SINKS | CASE_LSE | CASE_QUICK, MIXED_LENS},
    {"device_scales",     2,  4,   16,   0, CASE_DEVICE_SCALES | CASE_LSE, MIXED_LENS},
    {"device_scale_log2", 2,  4,   16,   0, CASE_DEVICE_SCALE_LOG2 | CASE_LSE, MIXED_LENS},
    {"per_head",          4,  4,   16,   0, CASE_PER_HEAD | CASE_LSE, LENS(0, 77, 400, 1000)},
    {"per_head_window",   4,  4,   32, 100, CASE_PER_HEAD | CASE_WINDOW | CASE_SINKS, LENS(0, 77, 400, 1000)},
    {"v_page_table",      2,  4,   16,   0, CASE_V_PAGE_TABLE, MIXED_LENS},
    {"v_page_table_per_head", 2, 4, 64,  0, CASE_V_PAGE_TABLE | CASE_PER_HEAD | CASE_LSE, LENS(0, 77, 400, 1000)},
    {"position_rule",     2,  4,   16, 300, CASE_POSITION_RULE | CASE_WINDOW | CASE_LSE, MIXED_LENS},
    {"query_positions",   2,  4,   16,   0, CASE_QUERY_POSITIONS | CASE_LSE, LENS(100, 333, 64, 1000, 65, 0, 200)},
    {"query_positions_window", 2, 4, 16, 130, CASE_QUERY_POSITIONS | CASE_POSITION_RULE | CASE_WINDOW | CASE_LSE,
     LENS(100, 333, 64, 1000, 65, 0, 200)},
    {"negative_ids",      2,  4,   16,   0, CASE_NEGATIVE_IDS | CASE_LSE, MIXED_LENS},
    {"negative_ids_page_128", 2, 4, 128, 0, CASE_NEGATIVE_IDS | CASE_LSE, LENS(0, 1, 700, 1000)},
    {"foreign_ids",       2,  4,   16,   0, CASE_FOREIGN_IDS | CASE_LSE, MIXED_LENS},
    {"unknown_pool",      2,  4,   16,   0, CASE_UNKNOWN_POOL, MIXED_LENS},
    {"low_hint",          2,  4,   16,   0, CASE_LOW_HINT | CASE_LSE, LENS(5, 3000, 700)},
    {"low_hint_window",   2,  4,   16, 127, CASE_LOW_HINT | CASE_WINDOW, LENS(5, 3000, 700)},
    {"outliers",          2,  4,   16,   0, CASE_OUTLIERS | CASE_LSE, TILE_LENS},
    {"outliers_group_8",  2,  8,   64,   0, CASE_OUTLIERS | CASE_LSE | CASE_SINKS, LENS(1, 2000, 777)},
    {"outliers_window",   2,  4,   16, 200, CASE_OUTLIERS | CASE_WINDOW | CASE_LSE, LENS(1, 2000, 777)},
    {"split_edge_below",  1,  8,   16,   0, CASE_SPLIT_EDGES | CASE_OUTLIERS, LENS(-1)},
    {"split_edge_at",     1,  8,   16,   0, CASE_SPLIT_EDGES | CASE_LSE, LENS(0)},
    {"split_edge_above",  1,  8,   16,   0, CASE_SPLIT_EDGES | CASE_OUTLIERS, LENS(1)},
    {"one_long",          8,  4,   16,   0, CASE_REPEAT | CASE_LSE, LENS(12000)},
    {"one_request_window", 8, 5,  128, 900, CASE_WINDOW | CASE_SINKS, LENS(2999)},
    {"one_request_programmatic", 8, 4, 16,  0, CASE_PROGRAMMATIC | CASE_LSE, LENS(4096)},
    {"two_long",          2,  8,   64,   0, CASE_LSE, LENS(7001, 9000)},
    {"long_and_short",    4,  4,   16,   0, CASE_REPEAT | CASE_LSE | CASE_SINKS, LONG_AND_SHORT},
    {"many_requests",     8,  1,   16,   0, CASE_LSE, MANY_REQUESTS},
    {"hundreds_of_requests", 8, 1, 16,   0, CASE_LSE, HUNDREDS_OF_REQUESTS},
    {"many_sequences",    8,  1,   16,   0, CASE_PER_HEAD | CASE_LSE, MANY_REQUESTS},
    {"thousands_of_sequences", 32, 1, 16, 0, CASE_PER_HEAD | CASE_LSE, MANY_REQUESTS},
    {"ragged",            8,  4,   16,   0, CASE_REPEAT | CASE_LSE | CASE_QUICK, RAGGED_LENS},
    {"graph",             2,  4,   16,   0, CASE_GRAPH | CASE_LSE, RAGGED_LENS},
    {"programmatic",      2,  4,   16,   0, CASE_PROGRAMMATIC | CASE_LSE | CASE_REPEAT, RAGGED_LENS},
    {"negative_scale",    2,  4,   16,   0, CASE_NEGATIVE_SCALE | CASE_LSE | CASE_QUICK, MIXED_LENS},
    {"negative_scale_window", 2, 8, 64, 127, CASE_NEGATIVE_SCALE | CASE_WINDOW | CASE_SINKS, WINDOW_LENS},
    {"negative_device_scale", 2, 5, 16,  0, CASE_NEGATIVE_SCALE | CASE_DEVICE_SCALES | CASE_LSE, TILE_LENS},
    {"zero_scale",        2,  4,   16,   0, CASE_ZERO_SCALE | CASE_DEVICE_SCALES | CASE_LSE | CASE_QUICK, MIXED_LENS},
    {"zero_scale_log2",   2,  8,   16, 100, CASE_ZERO_SCALE | CASE_DEVICE_SCALE_LOG2 | CASE_WINDOW | CASE_LSE, MIXED_LENS},
    {"infinite_sinks",    2,  8,   16,   0, CASE_INFINITE_SINKS | CASE_SINKS | CASE_LSE | CASE_QUICK, MIXED_LENS},
    {"infinite_sinks_long", 4, 5,  16,   0, CASE_INFINITE_SINKS | CASE_SINKS | CASE_LSE, LENS(5000, 0, 3, 2000)},
    {"odd_lengths",       2,  4,   16,   0, CASE_ODD_LENGTHS | CASE_LSE | CASE_QUICK, ODD_LENS},
    {"odd_lengths_page_128", 2, 8, 128,  0, CASE_ODD_LENGTHS | CASE_LSE | CASE_SINKS, ODD_LENS},
    {"odd_lengths_window", 2, 4,   16, 100, CASE_ODD_LENGTHS | CASE_WINDOW | CASE_LSE, ODD_LENS},
    {"odd_lengths_per_head", 4, 4, 16,   0, CASE_ODD_LENGTHS | CASE_PER_HEAD | CASE_LSE, ODD_LENS},
    {"odd_lengths_v_page_table", 2, 4, 32, 0, CASE_ODD_LENGTHS | CASE_V_PAGE_TABLE | CASE_LSE, ODD_LENS},
    {"odd_lengths_positions", 2, 4, 16, 130, CASE_ODD_LENGTHS | CASE_QUERY_POSITIONS | CASE_WINDOW | CASE_LSE, ODD_LENS},
    {"odd_lengths_unknown_pool", 2, 4, 16, 0, CASE_ODD_LENGTHS | CASE_UNKNOWN_POOL, LENS(BEYOND_TABLE, BELOW_ZERO, BEYOND_TABLE)},
    {"huge_scores",       2,  4,   16,   0, CASE_HUGE_SCORES | CASE_DEVICE_SCALE_LOG2 | CASE_LSE | CASE_QUICK, HUGE_LENS},
    {"huge_scores_group_8", 4, 8,  64,   0, CASE_HUGE_SCORES | CASE_DEVICE_SCALE_LOG2 | CASE_LSE, HUGE_LENS},
    {"huge_scores_window", 2, 4,   16, 600, CASE_HUGE_SCORES | CASE_DEVICE_SCALE_LOG2 | CASE_WINDOW | CASE_LSE, HUGE_LENS},
    {"huge_negative_scores", 2, 4, 16,   0, CASE_HUGE_SCORES | CASE_NEGATIVE_SCALE | CASE_DEVICE_SCALE_LOG2 | CASE_LSE, HUGE_LENS},
    {"other_out_dtype",   2,  5,   16,   0, CASE_OTHER_OUT | CASE_LSE | CASE_SINKS, MIXED_LENS},
    {"many_requests_window", 8, 1, 16,  40, CASE_WINDOW | CASE_QUERY_POSITIONS | CASE_LSE, MANY_REQUESTS},
    {"many_sequences_window", 8, 2, 16, 40, CASE_WINDOW | CASE_PER_HEAD | CASE_QUERY_POSITIONS | CASE_POSITION_RULE | CASE_LSE,
     MANY_REQUESTS},
    {"many_sequences_programmatic", 8, 1, 16, 0, CASE_PROGRAMMATIC | CASE_PER_HEAD | CASE_LSE | CASE_SINKS, MANY_REQUESTS},
    {"one_long_programmatic", 2, 4, 16,  0, CASE_PROGRAMMATIC | CASE_LSE, LENS(9000)},
    {"tile_edges_page_1", 2,  4,    1,   0, CASE_LSE, TILE_LENS},
    {"tile_edges_page_8", 2,  8,    8,   0, CASE_LSE | CASE_NHD, TILE_LENS},
    {"page_1_window",     2,  4,    1, 127, CASE_WINDOW | CASE_LSE, WINDOW_LENS},
    {"page_1_per_head",   4,  4,    1,   0, CASE_PER_HEAD | CASE_V_PAGE_TABLE | CASE_LSE, LENS(0, 77, 400, 1000)},
    {"page_1_ids",        2,  4,    1,   0, CASE_NEGATIVE_IDS | CASE_FOREIGN_IDS | CASE_LSE, MIXED_LENS},
    {"page_1_odd_lengths", 2, 4,    1,   0, CASE_ODD_LENGTHS | CASE_LSE, ODD_LENS},
    {"page_1_long",       4,  8,    1,   0, CASE_REPEAT | CASE_LSE | CASE_SINKS, LONG_AND_SHORT},
    {"page_4_padded",     3,  5,    4,   0, CASE_PADDED_STRIDES | CASE_INTERLEAVED | CASE_LSE, MIXED_LENS},
    {"page_8_programmatic", 2, 4,   8,   0, CASE_PROGRAMMATIC | CASE_LSE | CASE_REPEAT, RAGGED_LENS},
    {"narrow_head",       4,  4,   16,   0, CASE_NARROW_HEAD | CASE_LSE | CASE_QUICK, MIXED_LENS},
    {"narrow_head_nhd",   3,  8,   64,   0, CASE_NARROW_HEAD | CASE_NHD | CASE_LSE | CASE_OUTLIERS, TILE_LENS},
    {"narrow_head_padded", 2, 5,   32, 200, CASE_NARROW_HEAD | CASE_PADDED_STRIDES | CASE_WINDOW | CASE_SINKS, MIXED_LENS},
    {"narrow_head_page_1", 2, 4,    1,   0, CASE_NARROW_HEAD | CASE_LSE, MIXED_LENS},
    {"narrow_head_nhd_page_1", 3, 4, 1,  0, CASE_NARROW_HEAD | CASE_NHD | CASE_LSE, TILE_LENS},
    {"narrow_head_interleaved", 3, 4, 16, 0, CASE_NARROW_HEAD | CASE_INTERLEAVED | CASE_LSE, MIXED_LENS},
    {"narrow_head_interleaved_nhd", 3, 5, 16, 0, CASE_NARROW_HEAD | CASE_INTERLEAVED | CASE_NHD | CASE_LSE, MIXED_LENS},
    {"narrow_head_interleaved_page_4", 2, 8, 4, 101, CASE_NARROW_HEAD | CASE_INTERLEAVED | CASE_WINDOW | CASE_LSE, WINDOW_LENS},
    {"narrow_head_long",  2,  4,   16,   0, CASE_NARROW_HEAD | CASE_REPEAT | CASE_LSE | CASE_OUT_E4M3, LONG_AND_SHORT},
    {"linear_scales",     4,  4,   16,   0, CASE_LSE | CASE_QUICK, TILE_LENS},
    {"interleaved_scales", 4, 4,   16,   0, CASE_INTERLEAVED | CASE_LSE | CASE_QUICK, TILE_LENS},
    {"interleaved_scales_nhd", 4, 4, 64, 0, CASE_INTERLEAVED | CASE_NHD | CASE_LSE, TILE_LENS},
    {"interleaved_scales_window", 2, 8, 16, 101, CASE_INTERLEAVED | CASE_WINDOW | CASE_LSE, WINDOW_LENS},
    {"interleaved_scales_per_head", 4, 4, 32, 0, CASE_INTERLEAVED | CASE_PER_HEAD | CASE_V_PAGE_TABLE | CASE_COMBINED_POOL,
     LENS(0, 77, 400, 1000)},
    {"interleaved_scales_page_128", 2, 5, 128, 0, CASE_INTERLEAVED | CASE_NEGATIVE_IDS | CASE_LSE, MIXED_LENS},
    {"special_values",    4,  4,   16,   0, CASE_SPECIAL_VALUES | CASE_LSE | CASE_QUICK, TILE_LENS},
    {"special_values_group_8", 2, 8, 64, 0, CASE_SPECIAL_VALUES | CASE_INTERLEAVED | CASE_NHD, LENS(1, 2, 2000, 777)},
    {"special_values_out_e4m3", 2, 4, 16, 0, CASE_SPECIAL_VALUES | CASE_OUT_E4M3, MIXED_LENS},
    {"scale_steps",       2,  4,   16,   0, CASE_SCALE_STEPS | CASE_ALL_ROWS | CASE_LSE | CASE_QUICK, LENS(2000, 1400, 1777, 3000), .q_len = 16},
    {"visible_nan",       2,  4,   16,   0, CASE_VISIBLE_NAN | CASE_LSE | CASE_QUICK, LENS(333, 1, 64, 1000, 2, 70, 129, 40, 3000)},
    {"visible_nan_out",   2,  5,   64, 200, CASE_VISIBLE_NAN | CASE_WINDOW | CASE_OUT_E4M3 | CASE_LSE, LENS(333, 1, 64, 1000, 2, 70)},
    {"visible_nan_out_nvfp4", 2, 4, 16,  0, CASE_VISIBLE_NAN | CASE_OUT_NVFP4 | CASE_SINKS | CASE_LSE, LENS(333, 1, 64, 1000, 2, 70)},
    {"query_range",       4,  8,   16,   0, CASE_QUERY_RANGE | CASE_LSE | CASE_QUICK, LENS(333, 1, 64, 1000, 2, 70)},
    {"query_huge",        4,  4,   16,   0, CASE_QUERY_RANGE | CASE_QUERY_HUGE | CASE_LSE | CASE_QUICK, LENS(333, 1, 64, 1000, 2, 70)},
    {"query_tiny",        4,  4,   64,   0, CASE_QUERY_RANGE | CASE_QUERY_TINY | CASE_LSE, LENS(333, 1, 64, 1000, 2, 70)},
    {"query_huge_long",   2, 12,   16,   0, CASE_QUERY_RANGE | CASE_QUERY_HUGE | CASE_LSE | CASE_WINDOW, LENS(4000, 2500)},
    {"query_huge_negative", 2, 8,  16,   0, CASE_QUERY_RANGE | CASE_QUERY_HUGE | CASE_NEGATIVE_SCALE | CASE_LSE | CASE_QUICK,
     LENS(333, 1, 64, 1000, 2, 70), .q_len = 8},
    {"query_tiny_narrow", 2,  5,   16,   0, CASE_QUERY_RANGE | CASE_QUERY_TINY | CASE_NARROW_HEAD | CASE_LSE, MIXED_LENS},
    {"out_e4m3",          4,  4,   16,   0, CASE_OUT_E4M3 | CASE_LSE | CASE_QUICK, MIXED_LENS},
    {"out_e4m3_padded",   3,  5,   16,   0, CASE_OUT_E4M3 | CASE_PADDED_STRIDES | CASE_SINKS, MIXED_LENS},
    {"out_nvfp4",         4,  4,   16,   0, CASE_OUT_NVFP4 | CASE_LSE | CASE_QUICK, MIXED_LENS},
    {"out_nvfp4_padded",  3,  5,   16,   0, CASE_OUT_NVFP4 | CASE_PADDED_STRIDES | CASE_LSE, TILE_LENS},
    {"out_nvfp4_one_head", 1, 1,   64,   0, CASE_OUT_NVFP4 | CASE_SINKS, MANY_REQUESTS},
    {"out_nvfp4_narrow",  1,  3,   16, 100, CASE_OUT_NVFP4 | CASE_NARROW_HEAD | CASE_WINDOW, MIXED_LENS},
    {"out_nvfp4_outliers", 2, 8,   16,   0, CASE_OUT_NVFP4 | CASE_OUTLIERS | CASE_REPEAT, LONG_AND_SHORT},
    {"q_len_2",           2,  4,   16,   0, CASE_LSE | CASE_QUICK, QUERY_LENS, .q_len = 2},
    {"q_len_4_group_1",   3,  1,   64,   0, CASE_LSE, QUERY_LENS, .q_len = 4},
    {"q_len_4_group_8",   2,  8,   32,   0, CASE_LSE | CASE_NHD, QUERY_LENS, .q_len = 4},
    {"q_len_8_group_3",   2,  3,   16,   0, CASE_LSE, QUERY_LENS, .q_len = 8},
    {"q_len_16_group_12", 1, 12,   16,   0, CASE_LSE, QUERY_LENS, .q_len = 16},
    {"q_len_8_group_8",   2,  8,   16,   0, CASE_LSE | CASE_OUTLIERS, QUERY_LENS, .q_len = 8},
    {"q_len_16_group_8",  1,  8,   16, 100, CASE_WINDOW | CASE_SINKS | CASE_LSE, WINDOW_LENS, .q_len = 16},
    {"group_64",          2, 64,   16,   0, CASE_LSE | CASE_OUTLIERS, MIXED_LENS},
    {"group_128",         1, 128,  64,   0, CASE_LSE | CASE_REPEAT, LENS(1, 100, 5000, 333)},
    {"ragged_q_group_8",  2,  8,   32,   0, CASE_RAGGED_Q | CASE_LSE, RAGGED_LENS, .q_len = 15},
    {"draft_mask_16_group_8", 1, 8, 16,  0, CASE_DRAFT_MASK | CASE_RAGGED_Q | CASE_LSE, QUERY_LENS, .q_len = 16},
    {"q_len_3_group_40",  1, 40,   16,   0, CASE_LSE | CASE_SINKS, LENS(2, 3, 64, 333), .q_len = 3},
    {"q_len_100",         1,  3,   16,   0, CASE_LSE, LENS(0, 1, 99, 100, 101, 300), .q_len = 100},
    {"q_len_page_1",      2,  4,    1,   0, CASE_LSE, QUERY_LENS, .q_len = 5},
    {"q_len_tile_edges",  2,  4,   64,   0, CASE_LSE | CASE_OUTLIERS, TILE_LENS, .q_len = 2},
    {"q_len_window_0",    2,  4,   16,   0, CASE_WINDOW | CASE_LSE, QUERY_LENS, .q_len = 4},
    {"q_len_window_1",    2,  5,    1,   1, CASE_WINDOW | CASE_SINKS, QUERY_LENS, .q_len = 3},
    {"q_len_window_5",    2,  4,   16,   5, CASE_WINDOW | CASE_LSE | CASE_QUICK, QUERY_LENS, .q_len = 16},
    {"q_len_window_100",  2,  8,   64, 100, CASE_WINDOW | CASE_LSE, WINDOW_LENS, .q_len = 3},
    {"q_len_position_rule", 2, 4,  16,  20, CASE_POSITION_RULE | CASE_WINDOW | CASE_LSE, QUERY_LENS, .q_len = 5},
    {"q_len_positions",   2,  4,   16,   0, CASE_QUERY_POSITIONS | CASE_LSE, LENS(100, 333, 64, 3, 65, 0, 200, 5), .q_len = 4},
    {"q_len_positions_window", 2, 3, 16, 130, CASE_QUERY_POSITIONS | CASE_POSITION_RULE | CASE_WINDOW | CASE_LSE,
     LENS(100, 333, 64, 3, 65, 0, 200, 5), .q_len = 8},
    {"q_len_per_head",    4,  4,   16,  40, CASE_PER_HEAD | CASE_V_PAGE_TABLE | CASE_WINDOW | CASE_LSE, QUERY_LENS, .q_len = 4},
    {"q_len_padded",      3,  5,   16,   0, CASE_PADDED_STRIDES | CASE_NEGATIVE_IDS | CASE_LSE, QUERY_LENS, .q_len = 3},
    {"q_len_odd_lengths", 2,  4,   16,   0, CASE_ODD_LENGTHS | CASE_PER_HEAD | CASE_LSE, ODD_LENS, .q_len = 4},
    {"q_len_huge_scores", 2,  4,   16,   0, CASE_HUGE_SCORES | CASE_DEVICE_SCALE_LOG2 | CASE_LSE, LENS(40, 0, 513, 900), .q_len = 4},
    {"q_len_split_edge",  1,  8,   16,   0, CASE_SPLIT_EDGES | CASE_LSE, LENS(1), .q_len = 2},
    {"q_len_long",        2,  4,   16,   0, CASE_REPEAT | CASE_LSE, LENS(6000, 3, 900), .q_len = 4},
    {"q_len_programmatic", 2, 4,   16,   0, CASE_PROGRAMMATIC | CASE_LSE | CASE_REPEAT, RAGGED_LENS, .q_len = 2},
    {"q_len_out_e4m3",    2,  3,   16,   0, CASE_OUT_E4M3 | CASE_NARROW_HEAD | CASE_LSE, QUERY_LENS, .q_len = 4},
    {"ragged_q",          2,  4,   16,   0, CASE_RAGGED_Q | CASE_LSE | CASE_QUICK, QUERY_LENS, .q_len = 5},
    {"ragged_q_1",        2,  8,   16,   0, CASE_RAGGED_Q | CASE_LSE, QUERY_LENS, .q_len = 1},
    {"ragged_q_window",   2,  3,   64,   5, CASE_RAGGED_Q | CASE_WINDOW | CASE_SINKS | CASE_LSE, QUERY_LENS, .q_len = 16},
    {"ragged_q_positions", 2, 4,    1, 100, CASE_RAGGED_Q | CASE_QUERY_POSITIONS | CASE_WINDOW | CASE_LSE,
     LENS(100, 333, 64, 3, 65, 0, 200, 5), .q_len = 7},
    {"ragged_q_padded",   2,  5,   16,   0, CASE_RAGGED_Q | CASE_PADDED_STRIDES | CASE_OUT_NVFP4 | CASE_LSE, QUERY_LENS, .q_len = 9},
    {"ragged_q_long",     4,  4,   16,   0, CASE_RAGGED_Q | CASE_REPEAT | CASE_LSE, LONG_AND_SHORT, .q_len = 3},
    {"draft_mask",        2,  4,   16,   0, CASE_DRAFT_MASK | CASE_LSE | CASE_QUICK, QUERY_LENS, .q_len = 8},
    {"draft_mask_1",      2,  5,   16,   0, CASE_DRAFT_MASK | CASE_SINKS | CASE_LSE, QUERY_LENS, .q_len = 1},
    {"draft_mask_16_page_1", 1, 8,  1,   0, CASE_DRAFT_MASK | CASE_LSE, QUERY_LENS, .q_len = 16},
    {"draft_mask_40",     1,  5,   16,   0, CASE_DRAFT_MASK | CASE_LSE, LENS(39, 40, 0, 333, 100, 41, 70), .q_len = 40},
    {"draft_mask_64",     1,  3,   64,   0, CASE_DRAFT_MASK | CASE_LSE, LENS(63, 64, 65, 10, 200, 130, 128), .q_len = 64},
    {"draft_mask_window_0", 2, 4,  16,   0, CASE_DRAFT_MASK | CASE_WINDOW | CASE_LSE, QUERY_LENS, .q_len = 4},
    {"draft_mask_window_5", 2, 3,  16,   5, CASE_DRAFT_MASK | CASE_WINDOW | CASE_PER_HEAD | CASE_LSE, QUERY_LENS, .q_len = 16},
    {"draft_mask_positions", 2, 4, 16,   0, CASE_DRAFT_MASK | CASE_QUERY_POSITIONS | CASE_LSE,
     LENS(100, 333, 64, 3, 65, 0, 200, 5), .q_len = 6},
    {"draft_mask_rule",   2,  4,   64, 100, CASE_DRAFT_MASK | CASE_POSITION_RULE | CASE_WINDOW | CASE_SINKS, QUERY_LENS, .q_len = 8},
    {"draft_mask_ragged", 2,  4,   16,   0, CASE_DRAFT_MASK | CASE_RAGGED_Q | CASE_LSE | CASE_QUICK, QUERY_LENS, .q_len = 20},
    {"draft_mask_long",   2,  4,   16,   0, CASE_DRAFT_MASK | CASE_REPEAT | CASE_PROGRAMMATIC | CASE_LSE, LENS(4000, 30, 900), .q_len = 8},
    {"soft_cap",          4,  4,   16,   0, CASE_SOFT_CAP | CASE_OUTLIERS | CASE_LSE | CASE_QUICK, MIXED_LENS, .soft_cap = 30},
    {"soft_cap_half",     2,  8,   64,   0, CASE_SOFT_CAP | CASE_LSE, MIXED_LENS, .soft_cap = 0.5f},
    {"soft_cap_hundred",  2,  6,   16,   0, CASE_SOFT_CAP | CASE_LSE | CASE_QUICK, MIXED_LENS, .soft_cap = 100},
    {"soft_cap_million",  2,  5,   16,   0, CASE_SOFT_CAP | CASE_SINKS | CASE_LSE, MIXED_LENS, .soft_cap = 1e6f},
    {"soft_cap_scales",   2,  4,   16, 127, CASE_SOFT_CAP | CASE_NEGATIVE_SCALE | CASE_DEVICE_SCALES | CASE_WINDOW | CASE_OUTLIERS,
     WINDOW_LENS, .soft_cap = 50},
    {"alibi",             2,  8,   16,   0, CASE_ALIBI | CASE_LSE | CASE_QUICK, MIXED_LENS},
    {"alibi_window",      2,  7,    1, 127, CASE_ALIBI | CASE_WINDOW | CASE_SINKS | CASE_LSE, WINDOW_LENS},
    {"alibi_positions",   2,  4,   64, 130, CASE_ALIBI | CASE_QUERY_POSITIONS | CASE_POSITION_RULE | CASE_WINDOW | CASE_LSE,
     LENS(100, 333, 64, 1000, 65, 0, 200), .q_len = 3},
    {"alibi_from_zero",   2,  8,   16,   0, CASE_ALIBI_FROM_ZERO | CASE_ALIBI | CASE_SINKS | CASE_LSE | CASE_QUICK, MIXED_LENS},
    {"alibi_from_zero_positions", 2, 4, 64, 130, CASE_ALIBI_FROM_ZERO | CASE_FLASH_LSE | CASE_LSE_NATURAL | CASE_ALIBI | CASE_QUERY_POSITIONS |
     CASE_POSITION_RULE | CASE_WINDOW | CASE_LSE, LENS(100, 333, 64, 1000, 65, 0, 200), .q_len = 3},
    {"alibi_long",        2,  8,   16,   0, CASE_ALIBI | CASE_REPEAT | CASE_LSE, LENS(5000, 3, 900), .q_len = 2},
    {"lse_natural",       2,  4,   16,   0, CASE_LSE_NATURAL | CASE_LSE | CASE_SINKS | CASE_QUICK, MIXED_LENS},
    {"lse_natural_sinks", 2,  5,   16,   0, CASE_LSE_NATURAL | CASE_INFINITE_SINKS | CASE_SINKS | CASE_LSE, QUERY_LENS, .q_len = 4},
    {"lse_flash_mla",     2,  4,   16,   0, CASE_FLASH_LSE | CASE_LSE_NATURAL | CASE_LSE | CASE_SINKS | CASE_QUICK, MIXED_LENS},
    {"lse_without_sinks", 2,  5,   16,  30, CASE_FLASH_LSE | CASE_INFINITE_SINKS | CASE_SINKS | CASE_WINDOW | CASE_LSE, QUERY_LENS, .q_len = 4},
    {"skip_softmax",      2,  8,   16,   0, CASE_SKIP_SOFTMAX | CASE_LSE | CASE_QUICK, MIXED_LENS, .skip_factor = 0.01f},
    {"skip_softmax_0",    2,  4,   64,   0, CASE_SKIP_SOFTMAX | CASE_LSE, MIXED_LENS, .skip_factor = 1e-30f},
    {"skip_softmax_off",  2,  4,   16,   0, CASE_SKIP_SOFTMAX | CASE_LSE, MIXED_LENS, .skip_factor = 1e6f},
    {"skip_softmax_page1", 2, 5,    1,   0, CASE_SKIP_SOFTMAX | CASE_LSE, MIXED_LENS, .skip_factor = 0.01f},
    {"skip_softmax_long", 2,  4,   16,   0, CASE_SKIP_SOFTMAX | CASE_REPEAT | CASE_PROGRAMMATIC | CASE_LSE, LENS(9000, 30, 900), .skip_factor = 0.05f},
    {"skip_softmax_rows", 2,  7,   64, 300, CASE_SKIP_SOFTMAX | CASE_RAGGED_Q | CASE_WINDOW | CASE_PER_HEAD | CASE_SINKS | CASE_LSE,
     LENS(3000, 333, 64, 1000, 65, 0, 200), .q_len = 5, .skip_factor = 0.02f},
    {"skip_softmax_mask", 2,  8,   16,   0, CASE_SKIP_SOFTMAX | CASE_DRAFT_MASK | CASE_SOFT_CAP | CASE_LSE, LENS(3000, 333, 64, 1000, 65, 0, 200),
     .q_len = 9, .soft_cap = 50, .skip_factor = 0.02f},
    {"drafts_and_all",    2,  7,   16,  40, CASE_DRAFT_MASK | CASE_RAGGED_Q | CASE_SOFT_CAP | CASE_ALIBI | CASE_LSE_NATURAL | CASE_LSE |
     CASE_SINKS | CASE_WINDOW | CASE_PER_HEAD | CASE_V_PAGE_TABLE | CASE_QUICK, QUERY_LENS, .q_len = 11, .soft_cap = 20},
    {"batch_invariant",   8,  4,   16,   0, CASE_BATCH_INVARIANT | CASE_LSE | CASE_QUICK, MIXED_LENS},
    {"batch_invariant_long", 2, 4, 16,   0, CASE_BATCH_INVARIANT | CASE_REPEAT | CASE_LSE, LENS(70000, 2048, 2049, 5000, 0, 17, 6145)},
    {"batch_invariant_many_heads", 8, 1, 64, 0, CASE_BATCH_INVARIANT | CASE_OUTLIERS | CASE_LSE, LENS(35000, 2100, 90, 4096)},
    {"batch_invariant_one_head", 1, 12, 16, 0, CASE_BATCH_INVARIANT | CASE_SINKS | CASE_LSE, LENS(9000, 1, 4097, 300)},
    {"batch_invariant_window", 2, 8, 64, 3000, CASE_BATCH_INVARIANT | CASE_WINDOW | CASE_SINKS | CASE_LSE, LENS(100, 3000, 9000, 5001)},
    {"batch_invariant_page_1", 2, 4,  1,   0, CASE_BATCH_INVARIANT | CASE_REPEAT | CASE_LSE, LENS(5000, 2047, 30, 2064)},
    {"batch_invariant_drafts", 2, 4, 16,   0, CASE_BATCH_INVARIANT | CASE_DRAFT_MASK | CASE_RAGGED_Q | CASE_LSE,
     LENS(5000, 30, 2100, 8, 0, 2051), .q_len = 12},
    {"batch_invariant_per_head", 4, 4, 16, 0, CASE_BATCH_INVARIANT | CASE_PER_HEAD | CASE_V_PAGE_TABLE | CASE_ALIBI | CASE_LSE,
     LENS(77, 5000, 0, 2500)},
    {"batch_invariant_positions", 2, 4, 16, 2500, CASE_BATCH_INVARIANT | CASE_QUERY_POSITIONS | CASE_WINDOW | CASE_SOFT_CAP | CASE_LSE,
     LENS(5000, 333, 2049, 4000), .q_len = 3, .soft_cap = 20},
    {"batch_invariant_padded", 3, 5, 32,   0, CASE_BATCH_INVARIANT | CASE_PADDED_STRIDES | CASE_PROGRAMMATIC | CASE_LSE, LENS(5000, 333, 2049)},
    {"batch_invariant_out_nvfp4", 2, 4, 16, 0, CASE_BATCH_INVARIANT | CASE_OUT_NVFP4 | CASE_LSE, LENS(5000, 333, 2049)},
    {"contiguous",        2,  4,   16,   0, CASE_CONTIGUOUS | CASE_LSE | CASE_QUICK, MIXED_LENS},
    {"contiguous_nhd",    4,  5,    7,   0, CASE_CONTIGUOUS | CASE_NHD | CASE_LSE | CASE_QUICK, MIXED_LENS},
    {"contiguous_tile_edges", 2, 4, 128, 0, CASE_CONTIGUOUS | CASE_LSE, TILE_LENS},
    {"contiguous_beyond", 2,  4,    1,   0, CASE_CONTIGUOUS | CASE_ODD_LENGTHS | CASE_LSE, ODD_LENS},
    {"contiguous_padded", 2,  7,   20,   0, CASE_CONTIGUOUS | CASE_PADDED_STRIDES | CASE_LSE, MIXED_LENS},
    {"contiguous_combined", 2, 4,  64,   0, CASE_CONTIGUOUS | CASE_COMBINED_POOL | CASE_LSE, MIXED_LENS},
    {"contiguous_per_head", 3, 4,   3,   0, CASE_CONTIGUOUS | CASE_PER_HEAD | CASE_LSE, MIXED_LENS},
    {"contiguous_window", 2,  8,   16, 127, CASE_CONTIGUOUS | CASE_WINDOW | CASE_SINKS | CASE_LSE, WINDOW_LENS},
    {"contiguous_drafts", 2,  4,    9,   0, CASE_CONTIGUOUS | CASE_DRAFT_MASK | CASE_RAGGED_Q | CASE_LSE, QUERY_LENS, .q_len = 11},
    {"contiguous_rope",   2,  4,   16,   0, CASE_CONTIGUOUS | CASE_ROPE | CASE_SOFT_CAP | CASE_LSE, MIXED_LENS, .soft_cap = 20},
    {"contiguous_narrow_head", 2, 4, 16, 0, CASE_CONTIGUOUS | CASE_NARROW_HEAD | CASE_LSE, MIXED_LENS},
    {"contiguous_programmatic", 2, 4, 16, 0, CASE_CONTIGUOUS | CASE_PROGRAMMATIC | CASE_LSE, LENS(5000, 1, 333, 2049)},
    {"contiguous_batch_invariant", 2, 4, 16, 0, CASE_CONTIGUOUS | CASE_BATCH_INVARIANT | CASE_LSE | CASE_QUICK, MIXED_LENS},
    {"contiguous_batch_invariant_long", 2, 4, 24, 0, CASE_CONTIGUOUS | CASE_BATCH_INVARIANT | CASE_NHD | CASE_RAGGED_Q | CASE_LSE,
     LENS(5000, 333, 2049, 0, 6145, 17), .q_len = 3},
    {"contiguous_batch_invariant_padded", 3, 5, 8, 0, CASE_CONTIGUOUS | CASE_BATCH_INVARIANT | CASE_NO_LENGTHS | CASE_PADDED_STRIDES |
     CASE_LSE, LENS(2100, 1, 1, 1)},
    {"host_lengths",      2,  4,   16,   0, CASE_HOST_LENGTHS | CASE_LSE | CASE_QUICK, MIXED_LENS},
    {"host_lengths_beyond", 2, 4,  16, 100, CASE_HOST_LENGTHS | CASE_ODD_LENGTHS | CASE_WINDOW | CASE_REPEAT | CASE_LSE, ODD_LENS},
    {"host_lengths_contiguous", 4, 4, 16, 0, CASE_HOST_LENGTHS | CASE_CONTIGUOUS | CASE_LSE, RAGGED_LENS},
    {"single_decode",     8,  4,    3,   0, CASE_CONTIGUOUS | CASE_NO_LENGTHS | CASE_NHD | CASE_LSE | CASE_QUICK, LENS(4000)},
    {"single_decode_one_token", 2, 4, 1, 0, CASE_CONTIGUOUS | CASE_NO_LENGTHS | CASE_NHD | CASE_LSE, LENS(0)},
    {"query_offsets",     2,  4,   16,   0, CASE_QUERY_OFFSETS | CASE_LSE | CASE_QUICK, MIXED_LENS},
    {"query_offsets_ragged", 2, 5, 64,   0, CASE_QUERY_OFFSETS | CASE_RAGGED_Q | CASE_PADDED_STRIDES | CASE_OTHER_OUT | CASE_LSE,
     QUERY_LENS, .q_len = 3},
    {"query_offsets_out_nvfp4", 2, 4, 16, 0, CASE_QUERY_OFFSETS | CASE_OUT_NVFP4 | CASE_REPEAT | CASE_LSE, LONG_AND_SHORT},
    {"query_offsets_contiguous", 2, 8, 5, 0, CASE_QUERY_OFFSETS | CASE_CONTIGUOUS | CASE_GRAPH | CASE_LSE, RAGGED_LENS},
    {"query_offsets_batch_invariant", 2, 4, 16, 0, CASE_QUERY_OFFSETS | CASE_BATCH_INVARIANT | CASE_RAGGED_Q | CASE_LSE,
     LENS(5000, 333, 2049, 0, 64), .q_len = 3},
    {"kv_offsets",        2,  4,   16,   0, CASE_KV_OFFSETS | CASE_QUERY_OFFSETS | CASE_LSE | CASE_QUICK, MIXED_LENS},
    {"kv_offsets_page_1", 2,  4,    1,   0, CASE_KV_OFFSETS | CASE_V_PAGE_TABLE | CASE_PER_HEAD | CASE_SINKS | CASE_LSE, MIXED_LENS},
    {"kv_offsets_ids",    2,  4,   24, 127, CASE_KV_OFFSETS | CASE_NEGATIVE_IDS | CASE_FOREIGN_IDS | CASE_WINDOW | CASE_LSE, WINDOW_LENS},
    {"kv_offsets_batch_invariant", 2, 4, 16, 0, CASE_KV_OFFSETS | CASE_BATCH_INVARIANT | CASE_V_PAGE_TABLE | CASE_LSE,
     LENS(5000, 333, 2049, 0, 64)},
    {"kv_offsets_contiguous_batch_invariant", 2, 4, 7, 0, CASE_KV_OFFSETS | CASE_QUERY_OFFSETS | CASE_CONTIGUOUS |
     CASE_BATCH_INVARIANT | CASE_LSE, LENS(3000, 1, 2100, 40)},
    {"kv_offsets_contiguous", 2, 4, 7,   0, CASE_KV_OFFSETS | CASE_QUERY_OFFSETS | CASE_CONTIGUOUS | CASE_LSE | CASE_QUICK, MIXED_LENS},
    {"kv_offsets_contiguous_nhd", 4, 4, 3, 0, CASE_KV_OFFSETS | CASE_CONTIGUOUS | CASE_NHD | CASE_NO_LENGTHS | CASE_LSE, LENS(900, 1, 1)},
    {"kv_offsets_combined", 2, 4,  16,   0, CASE_KV_OFFSETS | CASE_COMBINED_POOL | CASE_DRAFT_MASK | CASE_LSE, QUERY_LENS, .q_len = 5},
    {"kv_offsets_programmatic", 2, 4, 16, 0, CASE_KV_OFFSETS | CASE_PROGRAMMATIC | CASE_LSE, LENS(5000, 1, 333, 2049)},
    {"odd_strides",       3,  5,   16,   0, CASE_ODD_STRIDES | CASE_LSE | CASE_QUICK, MIXED_LENS},
    {"odd_strides_tile_edges", 2, 4, 5,  0, CASE_ODD_STRIDES | CASE_OUTLIERS | CASE_LSE, TILE_LENS},
    {"odd_strides_narrow_head", 2, 4, 16, 0, CASE_ODD_STRIDES | CASE_NARROW_HEAD | CASE_PADDED_STRIDES | CASE_LSE, MIXED_LENS},
    {"odd_strides_contiguous", 2, 4, 9,  0, CASE_ODD_STRIDES | CASE_CONTIGUOUS | CASE_NHD | CASE_LSE | CASE_QUICK, MIXED_LENS},
    {"odd_strides_offsets", 2, 20, 16,   0, CASE_ODD_STRIDES | CASE_KV_OFFSETS | CASE_CONTIGUOUS | CASE_PER_HEAD | CASE_LSE, MIXED_LENS},
    {"odd_strides_combined", 4, 4, 16,   0, CASE_ODD_STRIDES | CASE_COMBINED_POOL | CASE_NHD | CASE_LSE, MIXED_LENS},
    {"odd_strides_long",  4,  4,   16,   0, CASE_ODD_STRIDES | CASE_REPEAT | CASE_PROGRAMMATIC | CASE_LSE, LONG_AND_SHORT},
    {"odd_strides_batch_invariant", 2, 4, 16, 0, CASE_ODD_STRIDES | CASE_BATCH_INVARIANT | CASE_LSE, LENS(3000, 0, 64, 2049, 5)},
    {"odd_strides_values", 2, 4,   16,   0, CASE_ODD_STRIDES | CASE_SPECIAL_VALUES | CASE_LSE, MIXED_LENS},
    {"rope",              2,  8,   16,   0, CASE_ROPE | CASE_LSE | CASE_QUICK, MIXED_LENS},
    {"rope_tile_edges",   2,  4,   64,   0, CASE_ROPE | CASE_LSE | CASE_SINKS, TILE_LENS, .rope_theta = 500000},
    {"rope_long",         2,  4,   16,   0, CASE_ROPE | CASE_LSE, LENS(9000)},
    {"rope_page_1",       2,  5,    1,   0, CASE_ROPE | CASE_LSE, MIXED_LENS, .rope_scale = 8, .rope_theta = 1000000},
    {"rope_narrow_head",  2,  4,   16,   0, CASE_ROPE | CASE_NARROW_HEAD | CASE_LSE | CASE_QUICK, MIXED_LENS},
    {"rope_narrow_head_page_1", 2, 4, 1, 0, CASE_ROPE | CASE_NARROW_HEAD | CASE_LSE, MIXED_LENS, .rope_scale = 0.25f},
    {"rope_window",       2,  7,   16, 127, CASE_ROPE | CASE_WINDOW | CASE_SINKS | CASE_LSE, WINDOW_LENS, .rope_theta = 100},
    {"rope_positions",    2,  4,   64, 130, CASE_ROPE | CASE_QUERY_POSITIONS | CASE_POSITION_RULE | CASE_WINDOW | CASE_LSE,
     LENS(100, 333, 64, 1000, 65, 0, 200), .q_len = 3},
    {"rope_far",          2,  4,   16,   0, CASE_ROPE | CASE_FAR_POSITIONS | CASE_LSE | CASE_QUICK, MIXED_LENS},
    {"rope_far_positions", 2, 8,   16, 20000000, CASE_ROPE | CASE_FAR_POSITIONS | CASE_QUERY_POSITIONS | CASE_WINDOW | CASE_LSE,
     LENS(100, 333, 64, 1000, 65, 0, 200), .q_len = 2, .rope_theta = 500000},
    {"rope_wide_rows",    1, 32,   16,   0, CASE_ROPE | CASE_LSE | CASE_INTERLEAVED, MIXED_LENS},
    {"rope_drafts",       2,  7,   16,  40, CASE_ROPE | CASE_DRAFT_MASK | CASE_RAGGED_Q | CASE_SOFT_CAP | CASE_ALIBI | CASE_LSE |
     CASE_LSE_NATURAL | CASE_WINDOW | CASE_PER_HEAD | CASE_V_PAGE_TABLE | CASE_QUICK, QUERY_LENS, .q_len = 11, .soft_cap = 20},
    {"rope_ids",          2,  4,   16,   0, CASE_ROPE | CASE_NEGATIVE_IDS | CASE_FOREIGN_IDS | CASE_NEGATIVE_SCALE | CASE_LSE, MIXED_LENS},
    {"long_and_short_rope", 4, 4,  16,   0, CASE_ROPE | CASE_REPEAT | CASE_PROGRAMMATIC | CASE_LSE, LONG_AND_SHORT, .rope_scale = 4},
    {"one_head",          1,  1,   64,   0, CASE_QUERY_ROPE | CASE_LSE | CASE_QUICK, MIXED_LENS},
    {"heads_16",          1, 16,   64,   0, CASE_QUERY_ROPE | CASE_LSE | CASE_QUICK | CASE_REPEAT, TILE_LENS},
    {"heads_17",          1, 17,   32,   0, CASE_QUERY_ROPE | CASE_PADDED_STRIDES | CASE_LSE, MIXED_LENS},
    {"heads_64_drafts",   1, 64,   64,   0, CASE_QUERY_ROPE | CASE_DRAFT_MASK | CASE_LSE, QUERY_LENS, .q_len = 3},
    {"heads_128",         1, 128,  64,   0, CASE_LSE | CASE_SINKS | CASE_REPEAT, RAGGED_LENS},
    {"heads_192_ragged",  1, 192,  64,   0, CASE_RAGGED_Q | CASE_LSE, LENS(100, 3, 700, 64), .q_len = 2},
    {"heads_96_long",     1, 96,  128,   0, CASE_LSE | CASE_SOFT_CAP, LENS(5000), .soft_cap = 30},
    {"heads_16_batch_invariant", 1, 16, 64, 0, CASE_QUERY_ROPE | CASE_BATCH_INVARIANT | CASE_LSE | CASE_QUICK, LENS(3000, 0, 64, 2049, 5)},
    {"heads_64_batch_invariant", 1, 64, 32, 0, CASE_QUERY_ROPE | CASE_BATCH_INVARIANT | CASE_PADDED_STRIDES | CASE_RAGGED_Q | CASE_LSE,
     LENS(333, 2100, 0, 65), .q_len = 2},
    {"heads_64_all_rows", 1, 64,   64,   0, CASE_ALL_ROWS | CASE_REPEAT | CASE_LSE, LENS(9000)},
    {"random_1",          0,  0,    0,   0, CASE_RANDOM, NO_LENS},
    {"random_2",          0,  0,    0,   0, CASE_RANDOM, NO_LENS},
    {"random_3",          0,  0,    0,   0, CASE_RANDOM, NO_LENS},
    {"random_4",          0,  0,    0,   0, CASE_RANDOM, NO_LENS},
    {"random_5",          0,  0,    0,   0, CASE_RANDOM, NO_LENS},
    {"random_6",          0,  0,    0,   0, CASE_RANDOM, NO_LENS},
    {"random_7",          0,  0,    0,   0, CASE_RANDOM, NO_LENS},
    {"random_8",          0,  0,    0,   0, CASE_RANDOM, NO_LENS},
};
/* clang-format on */
const size_t num_test_cases = sizeof test_cases / sizeof test_cases[0];

/* Flags that may be combined freely, and how often each is drawn: once in so many. */
static const struct {
    uint64_t flag;
    uint32_t one_in;
} drawn_flags[] = {{CASE_LSE, 2},
                   {CASE_SINKS, 3},
                   {CASE_WINDOW, 3},
                   {CASE_NHD, 3},
                   {CASE_PER_HEAD, 3},
                   {CASE_V_PAGE_TABLE, 3},
                   {CASE_POSITION_RULE, 3},
                   {CASE_NEGATIVE_IDS, 3},
                   {CASE_OUTLIERS, 3},
                   {CASE_DEVICE_SCALES, 3},
                   {CASE_DEVICE_SCALE_LOG2, 4},
                   {CASE_LOW_HINT, 3},
                   {CASE_PROGRAMMATIC, 3},
                   {CASE_GRAPH, 4},
                   {CASE_FOREIGN_IDS, 3},
                   {CASE_UNKNOWN_POOL, 4},
                   {CASE_PADDED_STRIDES, 3},
                   {CASE_COMBINED_POOL, 3},
                   {CASE_QUERY_POSITIONS, 3},
                   {CASE_NEGATIVE_SCALE, 4},
                   {CASE_ZERO_SCALE, 8},
                   {CASE_INFINITE_SINKS, 4},
                   {CASE_ODD_LENGTHS, 3},
                   {CASE_HUGE_SCORES, 8},
                   {CASE_OTHER_OUT, 4},
                   {CASE_OUT_E4M3, 4},
                   {CASE_OUT_NVFP4, 5},
                   {CASE_NARROW_HEAD, 3},
                   {CASE_INTERLEAVED, 3},
                   {CASE_SPECIAL_VALUES, 6},
                   {CASE_QUERY_RANGE, 6},
                   {CASE_QUERY_HUGE, 3},
                   {CASE_QUERY_TINY, 3},
                   {CASE_RAGGED_Q, 4},
                   {CASE_DRAFT_MASK, 3},
                   {CASE_SOFT_CAP, 5},
                   {CASE_ALIBI, 5},
                   {CASE_LSE_NATURAL, 4},
                   {CASE_SKIP_SOFTMAX, 5},
                   {CASE_BATCH_INVARIANT, 4},
                   {CASE_ROPE, 4},
                   {CASE_FAR_POSITIONS, 5},
                   {CASE_QUERY_ROPE, 3},
                   {CASE_CONTIGUOUS, 5},
                   {CASE_NO_LENGTHS, 3},
                   {CASE_QUERY_OFFSETS, 16},
                   {CASE_KV_OFFSETS, 16},
                   {CASE_ODD_STRIDES, 16},
                   {CASE_FLASH_LSE, 4},
                   {CASE_ALIBI_FROM_ZERO, 2}};

/* What excludes each other, or does nothing alone. */
static uint64_t reconciled(uint64_t flags) {
    if ((flags & CASE_PADDED_STRIDES) != 0)
        flags &= ~(CASE_COMBINED_POOL | CASE_NHD);
    if ((flags & CASE_UNKNOWN_POOL) != 0)
        flags &= ~CASE_FOREIGN_IDS;
    if ((flags & CASE_DEVICE_SCALE_LOG2) == 0)
        flags &= ~CASE_HUGE_SCORES;
    if ((flags & CASE_HUGE_SCORES) != 0)
        flags &= ~(CASE_ZERO_SCALE | CASE_OUTLIERS | CASE_SPECIAL_VALUES | CASE_QUERY_RANGE | CASE_SOFT_CAP);
    if ((flags & (CASE_SPECIAL_VALUES | CASE_QUERY_RANGE)) != 0)
        flags &= ~CASE_OUTLIERS;
    if ((flags & CASE_SPECIAL_VALUES) != 0)
        flags &= ~CASE_QUERY_RANGE;
    if ((flags & (CASE_HUGE_SCORES | CASE_QUERY_RANGE)) != 0)
        flags &= ~CASE_ALIBI; /* a bias that f32 loses in a huge score, and float64 does not */
    if ((flags & (CASE_HUGE_SCORES | CASE_QUERY_RANGE | CASE_SPECIAL_VALUES)) != 0)
        flags &= ~CASE_ROPE; /* what rounding rotated rows does to such scores, changes every weight */
    if ((flags & CASE_FAR_POSITIONS) != 0)
        flags &= ~(CASE_POSITION_RULE | CASE_ALIBI); /* a bias of millions leaves f32 no fraction */
    if ((flags & CASE_LSE) == 0)
        flags &= ~(CASE_LSE_NATURAL | CASE_FLASH_LSE | CASE_ALIBI_FROM_ZERO);
    if ((flags & CASE_SPECIAL_VALUES) != 0)
        flags &= ~CASE_SKIP_SOFTMAX; /* which may pass over a NaN */
    if ((flags & CASE_CONTIGUOUS) == 0)
        flags &= ~CASE_NO_LENGTHS;
    else
        flags &= ~(CASE_V_PAGE_TABLE | CASE_NEGATIVE_IDS | CASE_FOREIGN_IDS | CASE_UNKNOWN_POOL);
    if ((flags & CASE_NO_LENGTHS) != 0)
        flags &= ~CASE_ODD_LENGTHS;
    if ((flags & (CASE_QUERY_OFFSETS | CASE_KV_OFFSETS | CASE_ODD_STRIDES)) != 0)
        flags &= ~(CASE_SOFT_CAP | CASE_ALIBI | CASE_ROPE | CASE_SKIP_SOFTMAX); /* no kernel does both */
    if ((flags & CASE_ALIBI) == 0)
        flags &= ~CASE_ALIBI_FROM_ZERO;
    return flags;
}

static int32_t drawn_page_size(struct random *random) {
    static const int32_t odd[] = {5, 24, 48};
    const uint32_t kind = random_below(random, 8);
    if (kind == 0)
        return odd[random_below(random, 3)];
    if (kind < 3)
        return 1 << random_below(random, 4); /* 1 to 8 */
    return 16 << random_below(random, kind == 3 ? 7 : 4);
}

static int32_t drawn_length(struct random *random, uint64_t flags) {
    if ((flags & CASE_ODD_LENGTHS) != 0 && random_below(random, 4) == 0)
        return random_below(random, 2) == 0 ? BEYOND_TABLE : BELOW_ZERO;
    static const uint32_t limits[] = {300, 300, 300, 3000};
    return (int32_t)random_below(random, limits[random_below(random, 4)]);
}

/* Half of all problems have one query token a request, a few have many. */
static int32_t drawn_q_len(struct random *random) {
    const uint32_t kind = random_below(random, 16);
    if (kind < 8)
        return 1;
    return kind < 15 ? 2 + (int32_t)random_below(random, 19) : 33 + (int32_t)random_below(random, MAX_MASKED_TOKENS - 32);
}

/* What the reference takes time for: KV tokens times the rows that may see them. */
static int64_t work_of(const struct test_case *drawn) {
    int64_t longest = 0, tokens = 0;
    for (int32_t request = 0; request < drawn->num_lens; request++)
        longest = drawn->lens[request] != BEYOND_TABLE && drawn->lens[request] > longest ? drawn->lens[request] : longest;
    for (int32_t request = 0; request < drawn->num_lens; request++)
        tokens += drawn->lens[request] == BEYOND_TABLE ? longest : drawn->lens[request] > 0 ? drawn->lens[request] : 0;
    return tokens * drawn->num_kv_heads * drawn->group_size * drawn->q_len;
}

void draw_test_case(const struct test_case *test, uint64_t seed, struct test_case *ret_drawn, int32_t lens[MAX_DRAWN_LENS]) {
    static const int32_t groups[] = {1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 20, 24, 32, 40};
    static const float soft_caps[] = {0.5f, 20.0f, 30.0f, 50.0f, 1e6f}, skip_factors[] = {1e-30f, 0.001f, 0.02f, 0.1f};
    static const float rope_scales[] = {0.0f, 1.0f, 8.0f, 0.25f}, rope_thetas[] = {0.0f, 500000.0f, 1e6f, 100.0f};
    struct random random = random_named(test->name, seed);
    struct test_case drawn = *test;
    drawn.num_kv_heads = 1 + (int32_t)random_below(&random, random_below(&random, 4) == 0 ? 9 : 4);
    drawn.group_size = groups[random_below(&random, sizeof groups / sizeof groups[0])];
    drawn.page_size = drawn_page_size(&random);
    drawn.window_left = (int32_t)random_below(&random, 400);
    for (size_t index = 0; index < sizeof drawn_flags / sizeof drawn_flags[0]; index++)
        drawn.flags |= random_below(&random, drawn_flags[index].one_in) == 0 ? drawn_flags[index].flag : 0;
    drawn.flags = reconciled(drawn.flags);
    drawn.num_lens = 1 + (int32_t)random_below(&random, random_below(&random, 8) == 0 ? MAX_DRAWN_LENS : 24);
    for (int32_t request = 0; request < drawn.num_lens; request++)
        lens[request] = drawn_length(&random, drawn.flags);
    drawn.lens = lens;
    drawn.q_len = drawn_q_len(&random);
    /* Scores of a million have no fraction in f32: those of CASE_QUERY_RANGE, which reach every cap, get a lower one. */
    const uint32_t num_caps = sizeof soft_caps / sizeof soft_caps[0];
    drawn.soft_cap = soft_caps[random_below(&random, (drawn.flags & CASE_QUERY_RANGE) != 0 ? num_caps - 1 : num_caps)];
    drawn.skip_factor = skip_factors[random_below(&random, sizeof skip_factors / sizeof skip_factors[0])];
    drawn.rope_scale = rope_scales[random_below(&random, 4)];
    drawn.rope_theta = rope_thetas[random_below(&random, 4)];
    for (int32_t request = 0; drawn.q_len > 1 && request < drawn.num_lens; request++)
        if (random_below(&random, 8) == 0) /* hardly as long as its query tokens are many */
            lens[request] = (int32_t)random_below(&random, (uint32_t)drawn.q_len + 2);
    while (drawn.q_len > 1 && drawn.num_lens > 1 && work_of(&drawn) > MAX_DRAWN_WORK)
        drawn.num_lens--;
    while (drawn.q_len > 1 && work_of(&drawn) > MAX_DRAWN_WORK)
        drawn.q_len /= 2;
    *ret_drawn = drawn;
}

void make_mla_case(struct test_case *test) {
    test->group_size *= test->num_kv_heads;
    test->num_kv_heads = 1;
    test->flags &= ~(CASE_COMBINED_POOL | CASE_PER_HEAD | CASE_V_PAGE_TABLE | CASE_NARROW_HEAD | CASE_INTERLEAVED | CASE_ALIBI |
                     CASE_ALIBI_FROM_ZERO | CASE_ROPE | CASE_CONTIGUOUS | CASE_NO_LENGTHS | CASE_QUERY_OFFSETS | CASE_KV_OFFSETS |
                     CASE_ODD_STRIDES);
}

void make_nvfp4_case(struct test_case *test) { test->flags &= ~(CASE_KV_OFFSETS | CASE_ODD_STRIDES); }

void make_sparse_case(struct test_case *test, uint64_t seed) {
    struct random random = random_named(test->name, seed ^ 0x1d5);
    test->flags &= ~(CASE_WINDOW | CASE_QUERY_POSITIONS | CASE_POSITION_RULE | CASE_FAR_POSITIONS | CASE_DRAFT_MASK |
                     CASE_SKIP_SOFTMAX | CASE_NEGATIVE_IDS | CASE_FOREIGN_IDS | CASE_UNKNOWN_POOL);
    if (random_below(&random, 2) == 0 && (test->flags & CASE_HOST_LENGTHS) == 0)
        test->flags |= CASE_TOP_K_LENS;
}

bool random_case_named(const char *name, struct test_case *ret_test) {
    const size_t prefix = strlen(RANDOM_CASE_PREFIX);
    if (strncmp(name, RANDOM_CASE_PREFIX, prefix) != 0 || name[prefix] == '\0' ||
        name[prefix + strspn(name + prefix, "0123456789")] != '\0')
        return false;
    *ret_test = (struct test_case){.name = name, .flags = CASE_RANDOM};
    return true;
}
