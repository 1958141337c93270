/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bundles inside the library in, a list of them out. With -Dembed=true embedded_data.S brings them in, otherwise there is
 * none. Next: bundle.c reads them as it reads a file.
 */
#include "embedded.h"

#ifdef LIBDECODE_EMBED

extern const struct embedded_bundle libdecode_embedded_table[];
extern const size_t libdecode_embedded_count;

size_t embedded_bundles(const struct embedded_bundle **ret_bundles) {
    *ret_bundles = libdecode_embedded_table;
    return libdecode_embedded_count;
}

#else

size_t embedded_bundles(const struct embedded_bundle **ret_bundles) {
    *ret_bundles = NULL;
    return 0;
}

#endif
