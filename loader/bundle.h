/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bundle.c: files and memory in, a checked table of kernels and, on demand, the bytes of one image out.
 * Every number of a bundle is checked before it is used; a damaged bundle is never partly visible.
 * Before: select.c picked a record of the table. Next: module.c hands the image to the driver.
 */
#ifndef LIBDECODE_BUNDLE_H
#define LIBDECODE_BUNDLE_H

#include <stdbool.h>

#include "bundle_format.h"
#include "libdecode.h"

struct bundle;

/* Reads and checks the tables. Errors: BUNDLE_NOT_FOUND, BUNDLE_DAMAGED, BUNDLE_VERSION, IO, OUT_OF_MEMORY. */
libdecode_status bundle_open_file(const char *path, struct bundle **ret_bundle);
/* `data` stays the caller's and must outlive the bundle. `name` ("memory", "embedded") is for messages. */
libdecode_status bundle_open_memory(const void *data, size_t bytes, const char *name, struct bundle **ret_bundle);
void bundle_close(struct bundle *bundle);

const char *bundle_path(const struct bundle *bundle);
const struct bundle_header *bundle_header(const struct bundle *bundle);
const struct bundle_kernel *bundle_kernels(const struct bundle *bundle);
const struct bundle_image *bundle_images(const struct bundle *bundle);
const char *bundle_string(const struct bundle *bundle, uint32_t offset);

/* Whether a driver of this version (cuDriverGetVersion, 13000 = 13.0) loads the images. */
bool bundle_runs_on(const struct bundle *bundle, int32_t driver_version);

/*
 * Decompresses one image into fresh memory (free with free(); at least 64 zero bytes follow the image), then checks its
 * length, its SHA-256 against the table, and its headers (image.h). Only such bytes may reach the driver. The first image
 * brings the bundle's dictionary, if it has one, which stays until bundle_close. Threads may read at once.
 * Errors: BUNDLE_DAMAGED, IO, OUT_OF_MEMORY.
 */
libdecode_status bundle_read_image(const struct bundle *bundle, uint32_t image, void **ret_bytes);

#endif
