/* SPDX-License-Identifier: Apache-2.0 */
/* instrument.c: the kernels that no problem asks for. Before: the bundles. Next: ceiling.c, late_rows.c. */
#include "instrument.h"

#include "context.h"
#include "device.h"
#include "family.h"
#include "options.h"
#include "target.h"

bool instrument_open(libdecode_context *context, const libdecode_device *device, const struct family *family,
                     const char *consequence, struct instrument *ret_instrument) {
    struct instrument instrument = {0};
    const struct kernel_record *record = kernel_table_find(&context->table, family, gpu_bit(device->compute_capability));
    if (record == NULL)
        return complain("the bundles hold no %s kernel for sm_%d, so %s (-Dvariants=...,%s* builds it)", family->name,
                        device->compute_capability, consequence, family->name);
    const struct libdecode_launch_contract *contract = &record->kernel->contract;
    uint64_t context_id;
    if (driver_get(&instrument.driver) != LIBDECODE_OK || device_context_id(instrument.driver, &context_id) != LIBDECODE_OK ||
        module_function(context->modules, instrument.driver, context_id, record, no_launch, &instrument.function) != LIBDECODE_OK)
        return complain("%s", libdecode_error_message());
    instrument.threads = contract->threads;
    instrument.shared_bytes = contract->dynamic_shared_bytes;
    instrument.ctas_per_sm = contract->ctas_per_sm;
    *ret_instrument = instrument;
    return true;
}

bool instrument_launch(struct gpu *gpu, const struct instrument *instrument, unsigned ctas, void *parameters,
                       libdecode_stream stream) {
    void *blocks[] = {parameters};
    struct cuda_launch_config config = {.grid_x = ctas,
                                        .grid_y = 1,
                                        .grid_z = 1,
                                        .block_x = instrument->threads,
                                        .block_y = 1,
                                        .block_z = 1,
                                        .shared_bytes = instrument->shared_bytes,
                                        .stream = stream};
    return gpu_ok(gpu, instrument->driver->launch_kernel_ex(&config, instrument->function, blocks, NULL), "cuLaunchKernelEx");
}
