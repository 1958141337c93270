/* SPDX-License-Identifier: Apache-2.0 */
/* check_report.c: what became of every kernel in; a table or JSON on standard output out. Before: check.c. */
#ifndef LIBDECODE_CLI_CHECK_REPORT_H
#define LIBDECODE_CLI_CHECK_REPORT_H

#include "check_run.h"

struct check_args {
    bool quick, list;
    int32_t seed, repeats, neighbourhoods, random, kernels_per_case, patience;
    const char *only;
};

struct variant {
    libdecode_kernel_info info;
    libdecode_context *context; /* its policy forces this kernel, unless it merges */
    struct case_kind kind;
    bool merges; /* partial results: it has cases of its own */
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
    size_t turn; /* of the variants: where those begin that run the next random case */
    struct check_rig rig;
    struct failure_record *failures;
    size_t num_failures;
    bool json, out_of_memory, answered;
    size_t num_wanted, num_begun; /* test cases, once for every kind of kernel that they are for */
    size_t num_cases;             /* with tensors made for them */
    double reference_seconds;
};

struct check_summary {
    size_t passed, failed, without_case, unfinished; /* kernels */
    double seconds;
};
struct check_summary check_summarise(const struct checker *checker, double seconds);

void check_print(const struct checker *checker, const struct check_summary *summary);
/* `error`: why nothing could be run, or NULL. */
void check_print_json(const struct checker *checker, const struct check_summary *summary, const char *error);

#endif
