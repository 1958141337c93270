/* SPDX-License-Identifier: Apache-2.0 */
/* text.h: a line of words that grows in a buffer of fixed size. */
#ifndef LIBDECODE_TEXT_H
#define LIBDECODE_TEXT_H

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

/* Appends to the NUL-terminated `text` in a buffer of `bytes`, cut at its end. */
__attribute__((format(printf, 3, 4))) static inline void text_append(char *text, size_t bytes, const char *format, ...) {
    size_t used = strlen(text);
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(text + used, bytes - used, format, arguments);
    va_end(arguments);
}

#endif
