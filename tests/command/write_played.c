/* SPDX-License-Identifier: Apache-2.0 */
/*
 * write_played.c: write_played BUNDLE KERNEL.so...: a bundle of kernels that were compiled for the processor, all for one GPU family, with
 * the launch contracts that they state, around no code: host_gpu_played.c runs them.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bundle_fixture.h"
#include "played/kernel.h"

enum { MAX_KERNELS = 512 };

int main(int argc, char **argv) {
    static struct fixture_kernel kernels[MAX_KERNELS];
    static char names[MAX_KERNELS][128];
    size_t count = 0, bytes;
    if (argc < 3 || argc - 2 > MAX_KERNELS) {
        (void)fprintf(stderr, "usage: write_played BUNDLE KERNEL.so...\n");
        return 2;
    }
    for (int i = 2; i < argc; i++) {
        void *library = dlopen(argv[i], RTLD_NOW | RTLD_LOCAL);
        played_contract_function *contract = NULL;
        if (library != NULL)
            *(void **)&contract = dlsym(library, PLAYED_CONTRACT);
        if (contract == NULL) {
            (void)fprintf(stderr, "write_played: %s: %s\n", argv[i], dlerror());
            return 1;
        }
        const char *slash = strrchr(argv[i], '/'), *file = slash != NULL ? slash + 1 : argv[i];
        (void)snprintf(names[count], sizeof names[count], "%.*s", (int)strcspn(file, "."), file);
        const char *target = strrchr(names[count], '_');
        if (target == NULL || strncmp(target, "_sm", 3) != 0) {
            (void)fprintf(stderr, "write_played: %s: its name does not end in _sm and a number\n", argv[i]);
            return 1;
        }
        kernels[count] = (struct fixture_kernel){
            .name = names[count], .target = (uint32_t)strtoul(target + 3, NULL, 10), .contract = *contract()};
        count++;
    }
    uint8_t *data = fixture_bundle(kernels, count, &bytes);
    fixture_write_file(argv[1], data, bytes);
    free(data);
    return 0;
}
