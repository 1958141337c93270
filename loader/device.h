/* SPDX-License-Identifier: Apache-2.0 */
/*
 * device.c: the GPU of the current CUDA context, a preset or the caller's own description in, the facts that select.c needs out.
 */
#ifndef LIBDECODE_DEVICE_H
#define LIBDECODE_DEVICE_H

#include "driver.h"
#include "libdecode.h"

/* The caller's struct, checked. Errors: INVALID_ARGUMENT, STRUCT_SIZE. */
libdecode_status device_read(const libdecode_device *device, libdecode_device *ret_device);

/* The current device and its facts, but for its resident clusters. Errors: NO_DEVICE (no current context), CUDA. */
libdecode_status device_query(const struct driver *driver, cuda_device *ret_handle, libdecode_device *ret_device);

/* The id of the current context: never reused, unlike its address. Errors: NO_DEVICE, CUDA. */
libdecode_status device_context_id(const struct driver *driver, uint64_t *ret_id);

/* Whether the current device is of the kind that a plan was made for. Error: WRONG_DEVICE. */
libdecode_status device_compare(const libdecode_device *planned, const libdecode_device *current);

/* The names that libdecode_device_preset takes: "sm_90" and the other compute capabilities, then "H200" and the other GPUs, then NULL. */
enum { DEVICE_NUM_CAPABILITIES = 5 };
const char *device_preset_name(size_t index);

/* Whether the cost model was fitted to times of such a GPU. What it predicts for another one follows from its data sheet. */
bool device_is_fitted(const libdecode_device *device);

#endif
