/* SPDX-License-Identifier: Apache-2.0 */
/* first_program.c: someone else's first program against an installed libdecode; C99 and C++. Prints how many kernels it has. */
#include <libdecode.h>
#include <stdio.h>

int main(void) {
    libdecode_context *context = NULL;

    if (libdecode_open(NULL, &context) != LIBDECODE_OK) {
        fprintf(stderr, "%s\n", libdecode_error_message());
        return 1;
    }
    printf("%s %lu\n", libdecode_version(), (unsigned long)libdecode_kernel_count(context));
    libdecode_close(context);
    return 0;
}
