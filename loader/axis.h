/* SPDX-License-Identifier: Apache-2.0 */
/*
 * axis.c: one question that a problem puts to a launch contract, and its words. Here are the axes that the families share; a
 * family lists those that judge its problems, beside its own (families/). Pure.
 */
#ifndef LIBDECODE_AXIS_H
#define LIBDECODE_AXIS_H

#include <stdbool.h>

#include "abi.h"
#include "problem.h"

#define AXIS_TEXT_BYTES 320

/* The head_dim of the kernels that serve rows of `head_dim` elements: the next of 64, 128, 256, 512. */
uint32_t kernel_head_dim(int32_t head_dim);
/* Of those that serve the problem: of MLA, as many as its rows have. */
uint32_t problem_kernel_head_dim(const struct problem *problem);
bool is_kernel_head_dim(uint32_t head_dim);

/* "window" for one bit of LIBDECODE_FEATURE_*; NULL: there is no such feature. */
const char *feature_name(uint32_t bit);

struct axis {
    const char *name; /* "head_dim" */
    bool (*fits)(const struct problem *problem, const struct libdecode_launch_contract *contract);
    /* Each appends to a text of AXIS_TEXT_BYTES: what the problem wants, what the kernel has. */
    void (*asks)(const struct problem *problem, char *text);
    void (*offers)(const struct libdecode_launch_contract *contract, char *text);
};

extern const struct axis axis_query_dtype, axis_kv_dtype, axis_out_dtype, axis_head_dim, axis_page_size, axis_q_len,
    axis_features, axis_rotation;

/* Appends "soft_cap+alibi" to a text of AXIS_TEXT_BYTES: those that the problem has and the kernel has not. */
void name_missing_features(const struct problem *problem, const struct libdecode_launch_contract *contract, char *text);

#endif
