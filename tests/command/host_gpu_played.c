/* SPDX-License-Identifier: Apache-2.0 */
/* host_gpu_played.c: kernels that were compiled for the processor (tests/kernels/played/) in, their launches out. */
#include "host_gpu.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "played/kernel.h"

struct played_kernel {
    char name[128];
    played_run_function *run; /* NULL: there is no such file */
};

static const struct played_kernel *kernel_of(const char *name) {
    static struct played_kernel kernels[512];
    static size_t num_kernels;
    const char *folder = getenv("HOST_GPU_KERNELS");
    char path[1024];
    for (size_t index = 0; index < num_kernels; index++) {
        if (strcmp(kernels[index].name, name) == 0)
            return &kernels[index];
    }
    if (folder == NULL || num_kernels == sizeof kernels / sizeof kernels[0])
        return NULL;
    struct played_kernel *kernel = &kernels[num_kernels++];
    (void)snprintf(kernel->name, sizeof kernel->name, "%s", name);
    (void)snprintf(path, sizeof path, "%s/%s.so", folder, name);
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library != NULL)
        *(void **)&kernel->run = dlsym(library, PLAYED_RUN);
    return kernel;
}

int host_gpu_play(const char *kernel, const void *parameters, unsigned grid, unsigned cluster_size, unsigned threads,
                  unsigned shared_bytes) {
    static uint64_t launches;
    const char *seed = getenv("HOST_GPU_SEED");
    const struct played_kernel *played = kernel_of(kernel);
    if (played == NULL || played->run == NULL)
        return 0;
    launches++;
    played->run(parameters, grid, cluster_size, threads, shared_bytes, (seed != NULL ? strtoull(seed, NULL, 10) : 1) + launches,
                host_gpu_is_allocated);
    return 1;
}
