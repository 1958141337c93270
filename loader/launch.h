/* SPDX-License-Identifier: Apache-2.0 */
/*
 * launch.c: (problem, selection, tensors, function) in, one kernel launch out: has the family fill the parameter block, encodes
 * the tensor maps, launches. No allocation, no lock, no log. The last stage of the flow.
 */
#ifndef LIBDECODE_LAUNCH_H
#define LIBDECODE_LAUNCH_H

#include "driver.h"
#include "problem.h"
#include "select.h"

/* Lengths on the host are not copied into a stream that is captured. Errors: INVALID_ARGUMENT, CUDA. */
libdecode_status host_lens_check(const struct driver *driver, const struct selection *selection, const libdecode_tensors *tensors,
                                 libdecode_stream stream);

/*
 * `tensors` has passed tensors_check and host_lens_check, its workspace workspace_check. Lengths on the host are copied before, and
 * cleared behind. Errors: CUDA.
 */
libdecode_status launch_kernel(const struct driver *driver, const struct problem *problem, const struct selection *selection,
                               const libdecode_tensors *tensors, cuda_function function, libdecode_stream stream);

/*
 * `num_ctas` CTAs of a kernel, as its contract says, with its parameter block. `launch_flags`: LIBDECODE_LAUNCH_*. Error: CUDA.
 */
libdecode_status launch_block(const struct driver *driver, const struct kernel_record *record, uint32_t num_ctas,
                              uint32_t launch_flags, void *block, cuda_function function, libdecode_stream stream);

#endif
