/* SPDX-License-Identifier: Apache-2.0 */
/*
 * chosen_clusters.c: the grid in; whether every kernel of it, so every cluster size of every row tile, is chosen somewhere, out: among all of its KV format,
 * head_dim and target, for some number of units of some length. A size that never is need not be in the grid. Contracts are those of
 * variant_contract.c: nothing is compiled.
 *
 *     chosen_clusters          fails where a kernel is chosen for none of the problems below, and names it
 *     chosen_clusters GLOB     of each kernel that matches: for how many of the problems that suit it it is chosen, and the most that is lost without it,
 *                              where another cluster size takes its place
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "contract_kv.h"
#include "decode_fixture.h"
#include "family.h"
#include "glob.h"
#include "select.h"
#include "target.h"
#include "variant_contract.h"

static void fail_with(const char *what) {
    (void)fprintf(stderr, "chosen_clusters: %s: %s\n", what, libdecode_error_message());
    exit(1);
}

/* ---------------------------------------------------------------------------------------------------------- problems */

enum {
    NUM_UNITS = 110,  /* every number up to 64, then in steps of a sixteenth: up to 1,131 */
    NUM_LENGTHS = 33, /* in steps of the root of two, from 16 to 2^20 tokens */
    NUM_PARTS = 3,    /* all of them as long; half of that in all; an eighth */
    NUM_ROWS = 4,     /* a row tile, one less, which passes do not share evenly, two, three tiles */
    NUM_KINDS = 3,    /* a query of e4m3, if that can be; one that is converted, or as KV; a batch-invariant one */
    NUM_PROBLEMS = NUM_UNITS * NUM_LENGTHS * NUM_PARTS * NUM_ROWS * NUM_KINDS,
    STRIDE = 31337 /* a prime that is no factor of it: all come, and each is unlike the one before */
};

static int32_t number_of_units(int step) {
    int32_t units = 1;
    for (int i = 0; i < step; i++)
        units += units < 64 ? 1 : units / 16;
    return units;
}

static int32_t length(int step) { return step % 2 == 0 ? 16 << step / 2 : (int32_t)((16ll << step / 2) * 181 / 128); }

static int32_t number_of_rows(int32_t row_tile, int step) { return step == 0 ? row_tile - 1 : step * row_tile; }

static libdecode_dtype query_dtype(const struct libdecode_launch_contract *contract, bool may_be_e4m3) {
    if (contract_has_16_bit_kv(contract))
        return (libdecode_dtype)contract->kv_dtype;
    return may_be_e4m3 && (contract->query_dtypes >> KERNEL_DTYPE_E4M3 & 1u) != 0 ? LIBDECODE_DTYPE_E4M3 : LIBDECODE_DTYPE_BF16;
}

/* Those for which batch decode has kernels of their own: all of the kernel's, so that one with fewer cannot do it. */
static uint32_t options(const struct libdecode_launch_contract *contract) {
    const uint32_t asked = CONTRACT_FEATURE_SOFT_CAP | CONTRACT_FEATURE_ROPE | CONTRACT_OFFSETS;
    return contract->family == KERNEL_FAMILY_GQA_DECODE ? contract->features & asked : 0;
}

static int drawn(int *number, int count) {
    const int digit = *number % count;
    *number /= count;
    return digit;
}

static libdecode_problem problem_of(const struct libdecode_launch_contract *contract, int number) {
    const int32_t units = number_of_units(drawn(&number, NUM_UNITS)), tokens = length(drawn(&number, NUM_LENGTHS));
    const int64_t part = (int64_t[NUM_PARTS]){1, 2, 8}[drawn(&number, NUM_PARTS)];
    const int32_t rows = number_of_rows((int32_t)contract->row_tile, drawn(&number, NUM_ROWS));
    const bool is_mla = contract->family != KERNEL_FAMILY_GQA_DECODE;
    const uint32_t batch_invariant = contract->features & CONTRACT_FEATURE_BATCH_INVARIANT;
    libdecode_problem problem = {.struct_size = sizeof problem,
                                 .op = is_mla ? LIBDECODE_OP_MLA_DECODE : LIBDECODE_OP_BATCH_DECODE,
                                 .query_dtype = query_dtype(contract, number == 0),
                                 .kv_dtype = (libdecode_dtype)contract->kv_dtype,
                                 .features = options(contract) | (number == 2 ? batch_invariant : 0),
                                 .batch_size = units,
                                 .num_qo_heads = rows,
                                 .num_kv_heads = 1,
                                 .head_dim = (int32_t)contract->head_dim,
                                 .page_size = is_mla ? 64 : (int32_t)contract->min_page_size,
                                 .max_seq_len = tokens,
                                 .total_kv_tokens = part == 1 ? 0 : tokens * units / part,
                                 .kv_row_format = (libdecode_kv_row_format)contract->kv_row_format};
    problem.logits_soft_cap = (problem.features & LIBDECODE_FEATURE_SOFT_CAP) != 0 ? 30 : 0;
    if (contract->family == KERNEL_FAMILY_SPARSE_MLA_DECODE) {
        problem.sparse_top_k = tokens;
        problem.num_pages = 1 << 20;
    }
    return problem;
}

/* ------------------------------------------------------------------------------------------------------------- choices */

/* Kernels that stand against each other, and how often each is chosen. */
struct field {
    const struct kernel_table *table;
    long *chosen;
};

static size_t choice(const struct field *field, const libdecode_device *device, const libdecode_problem *given,
                     libdecode_verdict_function report, void *cookie) {
    const struct policy none = {.verbs = NULL};
    struct problem problem;
    struct selection selection;
    if (problem_check(given, &problem) != LIBDECODE_OK ||
        select_kernel(&problem, device, &none, field->table, report, cookie, &selection) != LIBDECODE_OK)
        fail_with("no choice");
    const size_t place = (size_t)(selection.record - field->table->records);
    field->chosen[place]++;
    return place;
}

/* Looks for a problem that it is chosen for; what is chosen instead counts, too. */
static bool search(const struct field *field, size_t wanted, const libdecode_device *device) {
    for (int64_t i = 0; i < NUM_PROBLEMS && field->chosen[wanted] == 0; i++) {
        const struct libdecode_launch_contract *contract = &field->table->records[wanted].kernel->contract;
        const libdecode_problem problem = problem_of(contract, (int)(i * STRIDE % NUM_PROBLEMS));
        (void)choice(field, device, &problem, NULL, NULL);
    }
    return field->chosen[wanted] > 0;
}

/* How long a kernel would take, and the fastest of those that differ from it in nothing but the size of their clusters. */
struct rivals {
    const char *name;
    int64_t ns, least_ns;
};

static size_t up_to_cluster(const char *name) { return (size_t)(strstr(name, "_c") - name); }

static void note_rival(void *cookie, const libdecode_verdict *verdict) {
    struct rivals *rivals = cookie;
    const size_t common = up_to_cluster(rivals->name);
    const bool is_rival = strncmp(verdict->kernel, rivals->name, common + 2) == 0 &&
                          strcmp(verdict->kernel + common + 3, rivals->name + common + 3) == 0;
    if (strcmp(verdict->kernel, rivals->name) == 0)
        rivals->ns = verdict->predicted_ns;
    else if (is_rival && verdict->eligible && verdict->predicted_ns < rivals->least_ns)
        rivals->least_ns = verdict->predicted_ns;
}

static void tell(const struct field *field, size_t place, const libdecode_device *device) {
    enum { SAMPLE = 5000 };
    const struct kernel_record *record = &field->table->records[place];
    double gain = 0;
    long chosen = 0;
    for (int64_t i = 0; i < SAMPLE; i++) {
        struct rivals rivals = {.name = record->name, .least_ns = INT64_MAX};
        const libdecode_problem problem = problem_of(&record->kernel->contract, (int)(i * STRIDE % NUM_PROBLEMS));
        if (choice(field, device, &problem, note_rival, &rivals) != place)
            continue;
        chosen++;
        const double lost = (double)(rivals.least_ns - rivals.ns) / (double)rivals.ns;
        gain = rivals.least_ns != INT64_MAX && lost > gain ? lost : gain;
    }
    (void)printf("%-56s %-9s  chosen %6.2f %%  gain %5.1f %%\n", record->name, device->name, 100.0 * (double)chosen / SAMPLE,
                 100.0 * gain);
}

/* ------------------------------------------------------------------------------------------------------------- the grid */

/* The five, and one with fewer SMs than its like, beside as much memory. */
static const char *const gpus[] = {"sm_90", "H100 PCIe", "sm_100", "sm_103", "sm_120", "sm_121"};
enum { NUM_GPUS = sizeof gpus / sizeof gpus[0] };

static bool serves(const struct field *field, size_t place, const libdecode_device *device) {
    return (field->table->gpus[place] & gpu_bit(device->compute_capability)) != 0;
}

/* Returns how many kernels are never chosen. */
static size_t judge_field(const struct field *field) {
    size_t wrong = 0;
    for (size_t place = 0; place < field->table->count; place++)
        for (size_t i = 0; i < NUM_GPUS; i++) {
            const libdecode_device device = preset(gpus[i]);
            if (serves(field, place, &device) && search(field, place, &device))
                break;
        }
    for (size_t place = 0; place < field->table->count; place++) {
        if (field->chosen[place] > 0)
            continue;
        (void)printf("%s is never chosen\n", field->table->records[place].name);
        wrong++;
    }
    return wrong;
}

static void tell_of_field(const struct field *field, const char *glob) {
    for (size_t place = 0; place < field->table->count; place++)
        for (size_t i = 0; i < NUM_GPUS && glob_matches(glob, field->table->records[place].name); i++) {
            const libdecode_device device = preset(gpus[i]);
            if (serves(field, place, &device))
                tell(field, place, &device);
        }
}

/* "gqa_decode_kvbf16_d128_r*_sm90": all that stand against this one. */
static void glob_of_field(const struct grid_variant *variant, char ret_glob[BUNDLE_MAX_NAME_BYTES]) {
    char name[BUNDLE_MAX_NAME_BYTES], row_tile[16];
    variant_name(variant, name);
    (void)snprintf(row_tile, sizeof row_tile, "_r%u_", variant->row_tile);
    (void)snprintf(ret_glob, BUNDLE_MAX_NAME_BYTES, "%.*s_r*_sm%u", (int)(strstr(name, row_tile) - name), name, variant->target);
}

/* Of a field with this glob, unless it is one of those before it. */
static bool is_new(char (*globs)[BUNDLE_MAX_NAME_BYTES], size_t count) {
    for (size_t i = 0; i < count; i++)
        if (strcmp(globs[i], globs[count]) == 0)
            return false;
    return true;
}

int main(int argc, char **argv) {
    enum { MAX_FIELDS = 128 };
    static char globs[MAX_FIELDS][BUNDLE_MAX_NAME_BYTES];
    size_t num_variants, num_fields = 0, wrong = 0;
    const struct grid_variant *variants = grid_variants(&num_variants);
    for (size_t i = 0; i < num_variants; i++) {
        if (!variant_decodes(&variants[i]) || num_fields == MAX_FIELDS)
            continue;
        glob_of_field(&variants[i], globs[num_fields]);
        if (!is_new(globs, num_fields))
            continue;
        struct grid *grid = grid_create_part(variants[i].target == 90    ? 1u
                                             : variants[i].target == 100 ? 2u
                                                                         : 4u,
                                             globs[num_fields++]);
        struct field field = {.table = &grid->table, .chosen = calloc(grid->table.count, sizeof(long))};
        if (field.chosen == NULL)
            fail_with("memory");
        if (argc > 1)
            tell_of_field(&field, argv[1]);
        else
            wrong += judge_field(&field);
        free(field.chosen);
        grid_destroy(grid);
    }
    if (num_fields == MAX_FIELDS)
        fail_with("more fields than there is room for");
    return wrong > 0 ? 1 : 0;
}
