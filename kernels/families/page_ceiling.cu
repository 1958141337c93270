/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Page ceiling: GQA decode without its arithmetic. The same schedule, producers and ring copy the same pages; consumers give every tile
 * back as soon as it has come, and write nothing. What a decode kernel takes longer than this is its consumers' and its reductions';
 * what this takes longer than the read ceiling is the pages' and the schedule's.
 */
#define VARIANT_ONLY_COPIES 1
#include "gqa_decode.cu"
