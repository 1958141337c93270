/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_launch.c: any launch contract, problem and device in; nothing out, and nothing may happen: what no kernel can have is not
 * sane, what this library does not know is not chosen, and whatever is chosen reaches a driver that does nothing with a grid, a
 * parameter block and maps that a driver could take. By libFuzzer (-Dfuzzing=libfuzzer), and over its corpus by replay.c.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "bundle_fixture.h"
#include "contract.h"
#include "launch.h"
#include "launch_input.h"
#include "target.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void require(int condition) {
    if (!condition)
        abort();
}

/* ----------------------------------------------------------------------------------------------- a driver of two calls */

static struct selection launched;
static int num_maps;

static cuda_result take_map(struct libdecode_tensor_map *map, int data_type, uint32_t rank, void *address, const uint64_t *dims,
                            const uint64_t *strides, const uint32_t *box, const uint32_t *element_strides, int interleave,
                            int swizzle, int promotion, int fill) {
    (void)address, (void)interleave, (void)promotion, (void)fill;
    static const uint32_t element_bytes[] = {1, 2, 4, 4, 8, 8, 2, 4, 8, 2}, swizzle_bytes[] = {0, 32, 64, 128};
    require((uintptr_t)map % 64 == 0 && data_type >= 0 && data_type < 10 && swizzle > 0 && swizzle < 4 && rank == 5);
    num_maps++;
    for (uint32_t i = 0; i < rank; i++) {
        require(dims[i] >= 1 && dims[i] <= (uint64_t)UINT32_MAX + 1 && box[i] >= 1 && box[i] <= 256 && element_strides[i] == 1);
        require(i == 0 || (strides[i - 1] % 16 == 0 && strides[i - 1] < (uint64_t)1 << 40));
    }
    require(box[0] * element_bytes[data_type] == swizzle_bytes[swizzle]);
    return CUDA_RESULT_SUCCESS;
}

/* Steps that asynchronous copies of `unit` bytes can take. */
static void check_rows(const struct row_source *rows, int64_t unit) {
    require(rows->page_stride >= 0 && rows->page_stride % unit == 0 && rows->head_stride >= 0 && rows->head_stride % unit == 0 &&
            rows->token_stride >= 0 && rows->token_stride % unit == 0);
}

static void check_sources(const struct gqa_decode_params *params, const struct libdecode_launch_contract *contract) {
    bool gathers_rows = (contract->flags & CONTRACT_FLAG_ROW_GATHER) != 0;
    require(num_maps == (gathers_rows ? 0 : 2) && params->num_pages >= 1 && params->schedule.copies_per_box >= 1);
    check_rows(&params->k_rows, 16);
    check_rows(&params->v_rows, 16);
    if (contract->kv_dtype == KERNEL_DTYPE_NVFP4) {
        int64_t scales = params->query.head_dim / 16, unit = (scales & -scales) < 16 ? (scales & -scales) : 16;
        require(unit >= 4);
        check_rows(&params->k_scales, unit);
        check_rows(&params->v_scales, unit);
    }
}

static cuda_result take_launch(const struct cuda_launch_config *config, cuda_function function, void **parameters, void **extra) {
    const struct libdecode_launch_contract *contract = &launched.record->kernel->contract;
    const struct gqa_decode_params *params = (const struct gqa_decode_params *)parameters[0];
    const struct schedule_params *schedule = &params->schedule;
    (void)function, (void)extra;
    check_sources(params, contract);
    require(config->grid_x >= 1 && config->grid_x % contract->cluster_size == 0 && config->block_x == contract->threads);
    const size_t chunks = (schedule->rare & SCHEDULE_FIXED_CHUNKS) != 0 ? schedule->max_chunks : 1;
    require((size_t)config->grid_x * 2 * chunks * contract->record_bytes <= launched.workspace.records.bytes);
    require((size_t)config->grid_x * 2 * contract->scratch_bytes <= launched.workspace.scratch.bytes);
    require(launched.workspace.records.bytes <= launched.workspace.bytes &&
            launched.workspace.lens.bytes <= launched.workspace.bytes);
    require(chunks >= 1 && chunks <= KERNEL_MAX_CHUNKS && schedule->min_chunk_boxes >= 1);
    require((schedule->rare & SCHEDULE_FIXED_CHUNKS) == 0 || contract->cluster_size == 1);
    require((schedule->rare & SCHEDULE_UNIT_MARGINS) == 0 ||
            ((schedule->rare & SCHEDULE_FIXED_CHUNKS) == 0 && contract->family == KERNEL_FAMILY_MLA_DECODE &&
             schedule->unit_margin_boxes < INT32_MAX / 2));
    require(schedule->head_shift >= 0 && schedule->heads_per_sequence % (1 << schedule->head_shift) == 0);
    require(schedule->num_workers.value >= 1 && schedule->row_passes >= 1 && schedule->heads_per_worker.value >= 1);
    require((schedule->num_workers.value << schedule->head_shift) * contract->cluster_size == config->grid_x);
    require(schedule->box_tokens >= 1 && (schedule->box_tokens & (schedule->box_tokens - 1)) == 0 &&
            (uint32_t)schedule->box_tokens <= contract->tile_tokens && schedule->min_boxes_per_worker >= 1);
    require((contract->flags & CONTRACT_FLAG_ROW_GATHER) != 0 || schedule->page_size.value % (uint32_t)schedule->box_tokens == 0);
    require(schedule->sequences_per_request.value >= 1 && schedule->position_stride.value >= 1);
    return CUDA_RESULT_SUCCESS;
}

static const struct driver driver = {.tensor_map_encode_tiled = take_map, .launch_kernel_ex = take_launch};

/* ----------------------------------------------------------------------------------------------------------- one input */

static void read_verdict(void *cookie, const libdecode_verdict *verdict) {
    (void)cookie;
    require(verdict->reason[0] != '\0' && (verdict->eligible != 0) == (verdict->predicted_ns > 0));
}

static void launch_input(const struct launch_input *input, const struct bundle *bundle) {
    struct bundle_kernel kernel = {.contract = input->contract};
    char reason[FAMILY_REASON_BYTES];
    if (!contract_is_sane(&kernel.contract))
        return;
    struct kernel_record record = {
        .name = "fuzzed", .kernel = &kernel, .bundle = bundle, .family = contract_family(&kernel.contract, reason)};
    uint32_t gpus = 0x1f;
    struct kernel_table table = {.records = &record, .gpus = &gpus, .count = 1};
    struct policy policy = {.strict = false};
    struct problem problem;
    struct selection selection;
    require((record.family == NULL) == (reason[0] != '\0'));
    if (problem_check(&input->problem, &problem) != LIBDECODE_OK)
        return;
    require(kernel_index_create(&table, &table.index) == LIBDECODE_OK);
    libdecode_status status = select_kernel(&problem, &input->device, &policy, &table, read_verdict, NULL, &selection);
    kernel_index_destroy(table.index);
    if (status != LIBDECODE_OK) {
        require(status >= LIBDECODE_ERROR_UNSUPPORTED && status != LIBDECODE_ERROR_INTERNAL &&
                libdecode_error_message()[0] != '\0');
        return;
    }
    libdecode_tensors tensors = {.bmm1_scale = 1.0f};
    require(record.family != NULL && selection.num_workers >= 1 && selection.predicted_ns > 0);
    launched = selection;
    num_maps = 0;
    if (problem.given.batch_size > 0)
        require(launch_kernel(&driver, &problem, &selection, &tensors, NULL, NULL) == LIBDECODE_OK);
}

/* What device_read makes of any bytes. */
static void tame(libdecode_device *device) {
    static const int32_t compute_capabilities[] = {90, 100, 103, 120, 121, 86};
    device->name[sizeof device->name - 1] = '\0';
    device->compute_capability = compute_capabilities[(uint32_t)device->compute_capability % 6];
    device->sm_count = 1 + (int32_t)((uint32_t)device->sm_count % 200);
    device->max_shared_bytes_per_block &= (1 << 24) - 1;
    device->memory_bandwidth_gbps &= (1 << 24) - 1;
    device->driver_version &= (1 << 15) - 1;
    device->resident_clusters_2 = (int32_t)((uint32_t)device->resident_clusters_2 % (uint32_t)(device->sm_count / 2 + 1));
    device->resident_clusters_4 = (int32_t)((uint32_t)device->resident_clusters_4 % (uint32_t)(device->sm_count / 4 + 1));
    device->resident_clusters_8 = (int32_t)((uint32_t)device->resident_clusters_8 % (uint32_t)(device->sm_count / 8 + 1));
    device->resident_clusters_16 = (int32_t)((uint32_t)device->resident_clusters_16 % (uint32_t)(device->sm_count / 16 + 1));
}

/* The problem asks for just what the contract offers, so that what is launched is up to the contract. */
static void fit(libdecode_problem *problem, const struct libdecode_launch_contract *contract) {
    problem->query_dtype = (libdecode_dtype)__builtin_ctz(contract->query_dtypes | 1u << 31);
    problem->kv_dtype = (libdecode_dtype)(contract->kv_dtype & INT32_MAX);
    problem->head_dim = (int32_t)(contract->head_dim & INT32_MAX);
    problem->features &= contract->features;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    static struct bundle *bundle; /* for its min_driver */
    struct launch_input input;
    if (bytes != sizeof input)
        return 0;
    if (!bundle) {
        static const struct fixture_kernel kernel = {.name = "fuzzed", .target = 90};
        size_t bundle_bytes;
        uint8_t *bundle_data = fixture_bundle(&kernel, 1, &bundle_bytes);
        require(bundle_open_memory(bundle_data, bundle_bytes, "memory", &bundle) == LIBDECODE_OK);
    }
    memcpy(&input, data, sizeof input);
    input.contract.magic = LIBDECODE_CONTRACT_MAGIC;
    input.contract.abi = LIBDECODE_KERNEL_ABI;
    input.problem.struct_size = sizeof input.problem;
    tame(&input.device);
    launch_input(&input, bundle);
    fit(&input.problem, &input.contract);
    launch_input(&input, bundle);
    return 0;
}
