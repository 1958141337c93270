/* SPDX-License-Identifier: Apache-2.0 */
/* list.c: `libdecode list`: the kernels of the bundles at hand, filtered, as a table or as JSON. */
#include <stdio.h>
#include <string.h>

#include "command.h"
#include "dtype.h"
#include "glob.h"
#include "problem_args.h"
#include "report.h"
#include "session.h"
#include "target.h"

struct list_args {
    const char *gpu, *kv;
    int32_t head_dim;
};

static const struct option list_options[] = {
    {"--gpu", "GPU", OPTION_TEXT, offsetof(struct list_args, gpu), 0, 0, "only those that run on it: sm_90, or a name like H200"},
    {"--kv", KV_DTYPES, OPTION_WORD, offsetof(struct list_args, kv), 0, 0, "only those for this KV cache"},
    {"--head-dim", "D", OPTION_INT, offsetof(struct list_args, head_dim), 1, 1 << 16, "only those for heads of D elements"},
    {0},
};

static bool wanted(const struct list_args *args, const struct texts *globs, const libdecode_kernel_info *info,
                   uint32_t gpu_mask) {
    bool named = globs->count == 0;
    for (size_t glob = 0; glob < globs->count; glob++)
        named = named || glob_matches(globs->items[glob], info->name);
    return named && (info->gpus & gpu_mask) != 0 && (args->head_dim == 0 || info->head_dim == args->head_dim) &&
           (args->kv == NULL || dtype_from_name(args->kv) == info->kv_dtype);
}

static void print_row(const libdecode_kernel_info *info) {
    char gpus[64], image[24], compressed[24];
    format_gpus(info->gpus, gpus, sizeof gpus);
    format_bytes((double)info->image_bytes, image, sizeof image);
    format_bytes((double)info->compressed_bytes, compressed, sizeof compressed);
    printf("%-44s %-14s %7d %8.1f %9d %9s %9s\n", info->name, gpus, info->threads, (double)info->shared_bytes / 1024.0,
           info->registers, image, compressed);
}

static void print_json(struct json *json, const libdecode_kernel_info *info) {
    json_begin(json, NULL, '{');
    json_text(json, "name", info->name);
    json_text(json, "bundle", info->bundle);
    json_gpus(json, "gpus", info->gpus);
    json_dtypes(json, "query_dtypes", info->query_dtypes);
    json_text(json, "kv_dtype", dtype_name(info->kv_dtype));
    json_integer(json, "head_dim", info->head_dim);
    json_integer(json, "row_tile", info->row_tile);
    json_integer(json, "cluster_size", info->cluster_size);
    json_integer(json, "threads", info->threads);
    json_integer(json, "shared_bytes", info->shared_bytes);
    json_integer(json, "registers", info->registers);
    json_features(json, "features", info->features);
    json_integer(json, "image_bytes", (int64_t)info->image_bytes);
    json_integer(json, "compressed_bytes", (int64_t)info->compressed_bytes);
    json_hash(json, "image_sha256", info->image_sha256);
    json_end(json, '}');
}

/* Bits of the GPUs asked for; 0 after saying that the name is none. */
static uint32_t read_gpu_mask(const char *gpu) {
    libdecode_device device;
    if (gpu == NULL)
        return UINT32_MAX;
    return session_find_preset("list", gpu, "", &device) ? gpu_bit(device.compute_capability) : 0;
}

static int print_kernels(const libdecode_context *context, const struct list_args *args, const struct texts *globs, uint32_t mask,
                         bool as_json) {
    struct json json = {0};
    size_t shown = 0, count = libdecode_kernel_count(context);
    if (as_json)
        json_begin(&json, NULL, '[');
    for (size_t index = 0; index < count; index++) {
        libdecode_kernel_info info = {.struct_size = sizeof info};
        if (libdecode_kernel_get_info(context, index, &info) != LIBDECODE_OK || !wanted(args, globs, &info, mask))
            continue;
        if (shown++ == 0 && !as_json)
            printf("%-44s %-14s %7s %8s %9s %9s %9s\n", "kernel", "GPUs", "threads", "smem KiB", "registers", "image", "packed");
        if (as_json)
            print_json(&json, &info);
        else
            print_row(&info);
    }
    if (as_json)
        json_end(&json, ']');
    else if (shown > 0)
        printf("%zu of %zu kernels\n", shown, count);
    if (shown > 0)
        return EXIT_PASSED;
    if (count == 0)
        complain("list: no bundle was found; 'libdecode doctor' shows where they are looked for");
    else
        complain("list: none of the %zu kernels at hand matches", count);
    return EXIT_FAILED;
}

static int run(int argc, char **argv) {
    struct list_args args = {0};
    struct session_args session = {0};
    struct texts globs = {0};
    void *const targets[] = {&args, &session};
    if (!options_parse(&list_command, targets, argc, argv, &globs))
        return EXIT_USAGE;
    uint32_t mask = read_gpu_mask(args.gpu);
    if (mask == 0)
        return EXIT_USAGE;
    libdecode_context *context;
    if (!session_open(&session, session.policy == NULL ? "" : NULL, &context))
        return EXIT_FAILED;
    if (session_check_policy(&session, context) != LIBDECODE_OK) /* whose message tells people to look here */
        complain("%s", libdecode_error_message());
    int result = print_kernels(context, &args, &globs, mask, session.json);
    libdecode_close(context);
    return result;
}

static const struct option_group groups[] = {{"Filters", list_options}, {"Bundles and output", bundle_options}};

const struct command list_command = {
    .name = "list",
    .summary = "the kernels of the bundles at hand",
    .operands = "[GLOB...]",
    .description =
        "Shows every kernel of the bundles at hand, those of a GLOB if one is given. A name says everything: "
        "gqa_decode_kvbf16_d128_r8_p16_c1_o0_sm90 is the family gqa_decode, bf16 KV, head_dim 128, 8 query rows to a pass, pages "
        "of 16 tokens and more, clusters of 1, none of the options that few launches ask for (o1: soft cap, ALiBi, skip-softmax "
        "and RoPE; o2: offsets of requests; o3: as o1 without RoPE; o4: RoPE, and nothing but RoPE), compiled for the sm_90 "
        "family. It is also the kernel's symbol in profilers.",
    .examples = "libdecode list --gpu sm_121 --kv bf16\n"
                "libdecode list '*_d64_*' --json\n",
    .notes = "",
    COMMAND_GROUPS(groups),
    .run = run,
};
