/* SPDX-License-Identifier: Apache-2.0 */
/* check_report.c: what became of every kernel in; a table or JSON on standard output out. Before: check.c. */
#ifndef LIBDECODE_CLI_CHECK_REPORT_H
#define LIBDECODE_CLI_CHECK_REPORT_H

#include "case_queue.h"
#include "check_run.h"

struct check_args {
    bool quick, list;
    int32_t seed, repeats, neighbourhoods, random, kernels_per_case, patience;
    const char *only;
};

struct variant {
    libdecode_kernel_info info;
    libdecode_context *context; /* its policy forces this kernel, unless it merges */
    uint32_t kind;              /* unless it merges */
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

/* Kernels that share their cases. */
struct kind_of_kernels {
    size_t turn; /* of the variants: where those begin that run the next random case */
    size_t cases_left;
};

struct checker {
    const struct check_args *args;
    struct gpu gpu;
    libdecode_device device;
    libdecode_context *context;
    struct variant *variants;
    size_t num_variants;
    struct case_source *sources; /* of each kind */
    struct kind_of_kernels *kinds;
    uint32_t num_kinds;
    struct check_rig rig;
    struct failure_record *failures;
    size_t num_failures;
    bool json, out_of_memory, answered;
    size_t num_wanted, num_begun; /* test cases, once for every kind of kernel that they are for */
    size_t num_cases;             /* with tensors made for them */
    double waited_seconds;        /* for tensors and reference */
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
