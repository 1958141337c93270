/* SPDX-License-Identifier: Apache-2.0 */
/* family.c: the list of the families. */
#include "family.h"

#include <stddef.h>

static const struct family *const families[] = {&family_gqa_decode,   &family_mla_decode,   &family_sparse_mla_decode,
                                                &family_merge_states, &family_read_ceiling, &family_late_copy,
                                                &family_page_ceiling};

const struct family *family_find(uint32_t number) {
    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++)
        if (families[i]->number == number)
            return families[i];
    return NULL;
}
