/* SPDX-License-Identifier: Apache-2.0 */
/* gqa_scene.h: contracts and problems of batch decode of each KV dtype, head_dim and kind of page, and whether they fit each other. */
#ifndef LIBDECODE_GQA_SCENE_H
#define LIBDECODE_GQA_SCENE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "bundle_fixture.h"
#include "contract.h"
#include "decode_fixture.h"
#include "dtype.h"
#include "judgement.h"

static inline struct libdecode_launch_contract contract_for(uint32_t kv_dtype, uint32_t head_dim, uint32_t min_page_size) {
    struct libdecode_launch_contract contract = fixture_contract();
    bool is_16_bit = kv_dtype == KERNEL_DTYPE_BF16 || kv_dtype == KERNEL_DTYPE_FP16;
    contract.threads = min_page_size == 1 ? 416 : 352;
    contract.consumer_warps = min_page_size == 1 ? 4 : 8;
    contract.ctas_per_sm = 1;
    contract.kv_dtype = kv_dtype;
    contract.query_dtypes =
        is_16_bit ? 1u << kv_dtype : 1u << KERNEL_DTYPE_BF16 | 1u << KERNEL_DTYPE_FP16 | 1u << KERNEL_DTYPE_E4M3;
    contract.out_dtypes = 1u << KERNEL_DTYPE_BF16 | 1u << KERNEL_DTYPE_FP16 | 1u << KERNEL_DTYPE_E4M3 | 1u << KERNEL_DTYPE_NVFP4;
    contract.head_dim = head_dim;
    contract.tile_tokens = 16384 * 8 / (head_dim * (uint32_t)dtype_bits((libdecode_dtype)kv_dtype));
    contract.tile_tokens = contract.tile_tokens < 128 ? contract.tile_tokens : 128;
    contract.max_box_tokens = min_page_size == 1 ? 16 : contract.tile_tokens;
    contract.min_page_size = min_page_size;
    contract.flags = min_page_size == 1 ? CONTRACT_FLAG_ROW_GATHER : 0;
    return contract;
}

static inline libdecode_problem problem_for(libdecode_dtype kv_dtype, int32_t head_dim, int32_t page_size) {
    libdecode_problem problem = llama3_8b();
    bool is_16_bit = kv_dtype == LIBDECODE_DTYPE_BF16 || kv_dtype == LIBDECODE_DTYPE_FP16;
    problem.query_dtype = is_16_bit ? kv_dtype : LIBDECODE_DTYPE_E4M3;
    problem.kv_dtype = kv_dtype;
    problem.out_dtype = LIBDECODE_DTYPE_BF16;
    problem.head_dim = head_dim;
    problem.page_size = page_size;
    return problem;
}

static inline struct problem checked(const libdecode_problem *problem) {
    struct problem result;
    if (problem_check(problem, &result) != LIBDECODE_OK)
        fail_msg("refused: %s", libdecode_error_message());
    return result;
}

/* "" if it fits. */
static inline const char *misfit(const libdecode_problem *given, const struct libdecode_launch_contract *contract) {
    const struct problem problem = checked(given);
    uint32_t failing = judge_axes(&family_gqa_decode, &problem, contract);
    return failing == 0 ? "" : family_gqa_decode.axes[__builtin_ctz(failing)]->name;
}

#endif
