/* SPDX-License-Identifier: Apache-2.0 */
/* launch_corpus.c: the first inputs of fuzz_launch.c: contracts like those of the kernels, with problems that they fit. */
#define _POSIX_C_SOURCE 200809L /* mkdir under -std=c17 */

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "bundle_fixture.h"
#include "decode_fixture.h"
#include "launch_input.h"

static void write_input(const char *folder, const char *name, const struct launch_input *input) {
    char path[4096];
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    fixture_write_file(path, input, sizeof *input);
}

int main(int argc, char **argv) {
    if (argc != 2) {
        (void)fprintf(stderr, "usage: launch_corpus FOLDER\n");
        return 2;
    }
    (void)mkdir(argv[1], 0777); /* it may be there */
    struct launch_input input = {.contract = fixture_contract(), .problem = llama3_8b(), .device = preset("sm_90")};
    write_input(argv[1], "plain", &input);
    input.contract.cluster_size = 8;
    input.contract.head_dim = 64;
    input.problem.head_dim = 64;
    input.problem.batch_size = 1;
    input.device = preset("sm_121");
    write_input(argv[1], "clusters", &input);
    input.contract.features = CONTRACT_FEATURE_WINDOW | CONTRACT_FEATURE_V_PAGE_TABLE;
    input.problem.features = LIBDECODE_FEATURE_WINDOW | LIBDECODE_FEATURE_V_PAGE_TABLE;
    input.problem.window_left = 100;
    input.problem.page_table_request_stride = 1000;
    input.problem.page_table_v_offset = 500;
    input.problem.total_kv_tokens = 5000;
    input.problem.num_qo_heads = 71 * 8;
    write_input(argv[1], "features", &input);
    input = (struct launch_input){.contract = fixture_contract(), .problem = llama3_8b(), .device = preset("sm_90")};
    input.contract.kv_dtype = KERNEL_DTYPE_NVFP4;
    input.contract.query_dtypes = 1u << KERNEL_DTYPE_E4M3;
    input.problem.query_dtype = LIBDECODE_DTYPE_E4M3;
    input.problem.kv_dtype = LIBDECODE_DTYPE_NVFP4;
    input.problem.v_sf_layout = LIBDECODE_SF_V_INTERLEAVE4;
    input.problem.out_dtype = LIBDECODE_DTYPE_BF16;
    write_input(argv[1], "nvfp4", &input);
    input.contract.flags = CONTRACT_FLAG_ROW_GATHER;
    input.contract.min_page_size = 1;
    input.contract.max_box_tokens = 16;
    input.problem.v_sf_layout = LIBDECODE_SF_LINEAR;
    input.problem.page_size = 6;
    input.problem.max_seq_len = 1000;
    write_input(argv[1], "rows", &input);
    input.contract.features = CONTRACT_FEATURE_BATCH_INVARIANT;
    input.problem.features = LIBDECODE_FEATURE_BATCH_INVARIANT;
    input.problem.max_seq_len = 300000;
    write_input(argv[1], "chunks", &input);
    return 0;
}
