/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arbitrary.c: the bytes of a fuzzer in; numbers, problems, tensors and devices out, most of them nearly right, so that what
 * stands behind the first checks is reached too. Bytes that have run out are zeros.
 */
#ifndef LIBDECODE_FUZZ_ARBITRARY_H
#define LIBDECODE_FUZZ_ARBITRARY_H

#include <stddef.h>
#include <stdint.h>

#include "libdecode.h"

struct feed {
    const uint8_t *data;
    size_t left;
};

uint32_t feed_byte(struct feed *feed);
/* 0 .. limit - 1, of up to 256. */
uint32_t feed_below(struct feed *feed, uint32_t limit);
/* Small, a border (0, -1, INT32_MAX, 2^60, ...), a power of two or beside one, or any. */
int64_t feed_number(struct feed *feed);

/* Overwrites some of the struct's words, in units of four or eight bytes, with such numbers. */
void feed_mutations(struct feed *feed, void *object, size_t bytes, uint32_t most);

libdecode_problem arbitrary_problem(struct feed *feed);
/* Aligned addresses that nothing is behind, or other ones. */
libdecode_tensors arbitrary_tensors(struct feed *feed, const libdecode_problem *problem);
libdecode_device arbitrary_device(struct feed *feed);

/* Ends the program. */
void require(int condition);
/* What every status must be: one of the header's, not INTERNAL, with a message unless it is OK. Returns whether it is OK. */
int settled(libdecode_status status);

#endif
