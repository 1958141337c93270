/* SPDX-License-Identifier: Apache-2.0 */
/* host_gpu_merge.c: what the kernel that merges partial results computes, in f32, from its parameter block (host_gpu.h). */
#include <math.h>
#include <stdlib.h>

#include "abi.h"
#include "element.h"
#include "host_gpu.h"

static size_t element_bytes(int32_t dtype) { return dtype == KERNEL_DTYPE_FP32 ? 4 : 2; }

/* The weight of a state beside those seen so far, whose largest lse is `largest`. */
static float weight_of(float lse, float largest) { return lse == largest ? 1.0f : exp2f(lse - largest); }

/* Row `head` of a token, whose states begin at `element`, their lse at `lse_at`. */
static void merge_row(const struct merge_states_params *params, int64_t token, int64_t head, int64_t element, int64_t lse_at,
                      int64_t num_states) {
    double values[1024], merged[1024] = {0};
    const float to_log2 = host_gpu_has_defect("lse_base") ? 1.0f : params->lse_to_log2;
    float largest = -INFINITY, sum = 0.0f;
    for (int64_t state = 0; state < num_states; state++)
        largest = fmaxf(largest, params->partial_lse[lse_at + state * params->partial_lse_state_stride] * to_log2);
    for (int64_t state = 0; state < num_states; state++) {
        const float lse = params->partial_lse[lse_at + state * params->partial_lse_state_stride] * to_log2;
        const float weight = isinf(lse) && lse < 0 ? 0.0f : weight_of(lse, largest);
        if (weight == 0.0f && !host_gpu_has_defect("merge_nan"))
            continue;
        element_decode_row((libdecode_dtype)params->dtype,
                           (const uint8_t *)params->partial_out +
                               (element + state * params->partial_state_stride) * (int64_t)element_bytes(params->dtype),
                           (size_t)params->head_dim, values);
        sum += weight;
        for (int32_t d = 0; d < params->head_dim; d++)
            merged[d] = (double)((float)merged[d] + weight * (float)values[d]);
    }
    for (int32_t d = 0; d < params->head_dim; d++)
        merged[d] = sum == 0.0f ? merged[d] : (double)((float)merged[d] / sum);
    element_encode_row((libdecode_dtype)params->out_dtype, merged, (size_t)params->head_dim,
                       (uint8_t *)params->out + (token * params->out_token_stride + head * params->out_head_stride) *
                                                    (int64_t)element_bytes(params->out_dtype));
    if (params->lse != NULL)
        params->lse[token * params->lse_token_stride + head * params->lse_head_stride] =
            (largest + log2f(sum)) * params->log2_to_lse;
}

void host_gpu_merge_states(const void *parameters) {
    const struct merge_states_params *params = parameters;
    for (int64_t row = 0; row < params->num_rows; row++) {
        const int64_t token = row / params->num_heads.value, head = row % params->num_heads.value;
        int64_t first_state = 0, own_token = token, num_states = params->num_states;
        if (params->token_mask != NULL && params->token_mask[token] == 0 && !host_gpu_has_defect("merge_mask"))
            continue;
        if (params->state_offsets != NULL) {
            first_state = params->state_offsets[token];
            num_states = params->state_offsets[token + 1] - first_state;
            own_token = 0;
        }
        merge_row(params, token, head,
                  first_state * params->partial_state_stride + own_token * params->partial_token_stride +
                      head * params->partial_head_stride,
                  first_state * params->partial_lse_state_stride + own_token * params->partial_lse_token_stride +
                      head * params->partial_lse_head_stride,
                  num_states);
    }
}
