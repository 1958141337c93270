/* SPDX-License-Identifier: Apache-2.0 */
/*
 * own_names.c: an engine that has functions of its own called as some inside libdecode are, linked with the static library.
 * Each must reach its own. Exits with 0 if so.
 */
#include <libdecode.h>
#include <stdio.h>
#include <string.h>

int fail(int status, const char *format);
void sha256_init(void *hash);
void sha256_update(void *hash);
void sha256_finish(void *hash);

static int calls;

int fail(int status, const char *format) {
    (void)format;
    calls++;
    return status;
}

void sha256_init(void *hash) {
    (void)hash;
    calls++;
}

void sha256_update(void *hash) {
    (void)hash;
    calls++;
}

void sha256_finish(void *hash) {
    (void)hash;
    calls++;
}

int main(void) {
    libdecode_device device;

    memset(&device, 0, sizeof device);
    device.struct_size = sizeof device;
    if (libdecode_device_preset("sm_1", &device) != LIBDECODE_ERROR_INVALID_ARGUMENT || calls != 0 ||
        strstr(libdecode_error_message(), "sm_1") == NULL) {
        fprintf(stderr, "libdecode called a function of the engine, or said '%s'\n", libdecode_error_message());
        return 1;
    }
    sha256_init(&device);
    return fail(0, "") != 0 || calls != 2;
}
