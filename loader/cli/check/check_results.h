/* SPDX-License-Identifier: Apache-2.0 */
/* check_results.c: what a check has found so far, kernel by kernel, as text or JSON. Before: check.c. */
#ifndef LIBDECODE_CLI_CHECK_RESULTS_H
#define LIBDECODE_CLI_CHECK_RESULTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "check_run.h"
#include "gpu.h"
#include "libdecode.h"

/* As the command line has them. */
struct check_args {
    bool quick, list;
    int32_t seed, repeats, neighbourhoods, random, patience;
    const char *only;
};

struct variant {
    libdecode_kernel_info info;
    libdecode_context *context; /* its policy forces this kernel, unless it merges */
    bool merges;                /* partial results: it has cases of its own */
    size_t passed, failed, not_applicable;
    bool finished; /* with all cases of its kind */
    double worst_ratio;
    char why_not[200]; /* the first reason for a case that is not applicable */
};

struct failure_record {
    const char *kernel;
    char test[48];
    struct failure failure;
};

struct checker {
    const struct check_args *args;
    struct gpu gpu;
    libdecode_device device;
    libdecode_context *context;
    struct variant *variants;
    size_t num_variants;
    struct check_rig rig;
    struct failure_record *failures;
    size_t num_failures;
    bool json, out_of_memory;
    size_t num_cases; /* test cases with tensors made for them */
    double reference_seconds;
};

struct summary {
    size_t passed, failed, without_case, unfinished; /* kernels */
    double seconds;
};

struct summary summarise(const struct checker *checker, double seconds);
void print_results(const struct checker *checker, const struct summary *summary);
void print_results_json(const struct checker *checker, const struct summary *summary);

#endif
