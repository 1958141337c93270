/* SPDX-License-Identifier: Apache-2.0 */
/* embedded.c: the bundles that the library carries in itself (-Dembed=true). The first ones that libdecode_open overlays. */
#ifndef LIBDECODE_EMBEDDED_H
#define LIBDECODE_EMBEDDED_H

#include <stddef.h>

struct embedded_bundle {
    const void *data;
    size_t bytes;
};

/* Gives the bundles, 8-byte aligned, and how many; 0 in a library built without. */
size_t embedded_bundles(const struct embedded_bundle **ret_bundles);

#endif
