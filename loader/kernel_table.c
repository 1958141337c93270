/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernel_table.c: the bundles of a context in, one table of all their kernels out.
 * Before: bundle.c opened them. Next: select.c looks through the table.
 */
#include "kernel_table.h"

#include <stdlib.h>
#include <string.h>

#include "contract.h"
#include "family.h"
#include "status.h"

/* By name; of the same name, the newest bundle first. */
static bool comes_before(const struct kernel_record *a, const struct kernel_record *b) {
    int order = strcmp(a->name, b->name);
    return order != 0 ? order < 0 : a->bundle_rank > b->bundle_rank;
}

/* The records of the bundles from `first` to before `last`, which begin at `begins`. Each bundle's own are sorted already. */
static void merge_bundles(struct kernel_record *records, const size_t *begins, size_t first, size_t last,
                          struct kernel_record *scratch) {
    if (last - first < 2)
        return;
    size_t middle = first + (last - first) / 2, num_left = begins[middle] - begins[first];
    merge_bundles(records, begins, first, middle, scratch);
    merge_bundles(records, begins, middle, last, scratch);
    memcpy(scratch, records + begins[first], num_left * sizeof *records);
    const struct kernel_record *left = scratch, *right = records + begins[middle], *right_end = records + begins[last];
    for (struct kernel_record *next = records + begins[first]; left < scratch + num_left; next++)
        *next = right < right_end && comes_before(right, left) ? *right++ : *left++;
}

/* Gives each GPU of a name to the newest record that serves it, and drops records that are left without one. */
static size_t overlay(struct kernel_record *records, uint32_t *gpus, size_t count) {
    size_t kept = 0;
    uint32_t served = 0;
    for (size_t index = 0; index < count; index++) {
        struct kernel_record record = records[index];
        if (index > 0 && strcmp(records[index - 1].name, record.name) != 0)
            served = 0;
        uint32_t left = record.kernel->gpus & ~served;
        served |= record.kernel->gpus;
        records[kept] = record;
        gpus[kept] = left;
        kept += left != 0;
    }
    return kept;
}

/* ------------------------------------------------------------------------------------------------------------- index */

/* Places in the table, bucket after bucket, by the hash of the key. A kernel has a place for every GPU that it serves. */
struct kernel_index {
    uint32_t num_buckets; /* a power of two */
    uint32_t *places;     /* behind begins */
    uint32_t begins[];    /* [num_buckets + 1] */
};

static uint32_t bucket_of(const struct kernel_key *key, uint32_t num_buckets) {
    const uint32_t words[] = {(uint32_t)key->op, key->kv_dtype, key->head_dim, key->gpu};
    uint64_t hash = 0;
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        hash = (hash ^ words[i]) * 0x9e3779b97f4a7c15ull;
    return (uint32_t)(hash >> 32) & (num_buckets - 1);
}

static struct kernel_key key_of(const struct kernel_record *record, uint32_t gpu) {
    const struct libdecode_launch_contract *contract = &record->kernel->contract;
    return (struct kernel_key){
        .op = record->family->op, .kv_dtype = contract->kv_dtype, .head_dim = contract->head_dim, .gpu = gpu};
}

/* Counts each bucket's places in begins[bucket + 1], or with `places` puts them there, from begins[bucket] on. */
static void walk(const struct kernel_table *table, struct kernel_index *index, bool placing) {
    for (size_t i = 0; i < table->count; i++) {
        if (!table->records[i].family)
            continue;
        for (uint32_t gpus = table->gpus[i]; gpus != 0; gpus &= gpus - 1) {
            const struct kernel_key key = key_of(&table->records[i], gpus & (0u - gpus));
            uint32_t bucket = bucket_of(&key, index->num_buckets);
            if (placing)
                index->places[index->begins[bucket]++] = (uint32_t)i;
            else
                index->begins[bucket + 1]++;
        }
    }
}

libdecode_status kernel_index_create(const struct kernel_table *table, struct kernel_index **ret_index) {
    size_t num_places = 0;
    uint32_t num_buckets = 16;
    for (size_t i = 0; i < table->count; i++)
        num_places += (size_t)__builtin_popcount(table->gpus[i]);
    while (num_buckets < table->count)
        num_buckets *= 2;
    size_t words = num_buckets + 1 + num_places;
    struct kernel_index *index = calloc(1, sizeof *index + words * sizeof(uint32_t));
    if (!index)
        return fail(LIBDECODE_ERROR_OUT_OF_MEMORY, "no memory for an index of %zu kernels; free memory and try again",
                    table->count);
    index->num_buckets = num_buckets;
    index->places = index->begins + num_buckets + 1;
    walk(table, index, false);
    for (uint32_t bucket = 0; bucket < num_buckets; bucket++)
        index->begins[bucket + 1] += index->begins[bucket];
    walk(table, index, true); /* after which each begin is the next one's: */
    memmove(index->begins + 1, index->begins, num_buckets * sizeof index->begins[0]);
    index->begins[0] = 0;
    *ret_index = index;
    return LIBDECODE_OK;
}

void kernel_index_destroy(struct kernel_index *index) { free(index); }

size_t kernel_table_candidates(const struct kernel_table *table, const struct kernel_key *key, const uint32_t **ret_places) {
    const struct kernel_index *index = table->index;
    uint32_t bucket = bucket_of(key, index->num_buckets);
    *ret_places = index->places + index->begins[bucket];
    return index->begins[bucket + 1] - index->begins[bucket];
}

const struct kernel_record *kernel_table_find(const struct kernel_table *table, const struct family *family, uint32_t gpu) {
    const struct kernel_key key = {.op = family->op, .gpu = gpu};
    const uint32_t *places;
    const size_t count = kernel_table_candidates(table, &key, &places);
    for (size_t i = 0; i < count; i++) {
        const struct kernel_record *record = &table->records[places[i]];
        if (record->family == family && (table->gpus[places[i]] & gpu) != 0)
            return record;
    }
    return NULL;
}

/* ------------------------------------------------------------------------------------------------------------- table */

static void list_kernels(const struct bundle *bundle, size_t rank, struct kernel_record *records) {
    for (uint32_t i = 0; i < bundle_header(bundle)->num_kernels; i++) {
        const struct bundle_kernel *kernel = &bundle_kernels(bundle)[i];
        char unused[FAMILY_REASON_BYTES];
        records[i] = (struct kernel_record){.name = bundle_string(bundle, kernel->name),
                                            .kernel = kernel,
                                            .bundle = bundle,
                                            .family = contract_family(&kernel->contract, unused),
                                            .bundle_rank = (uint32_t)rank};
    }
}

libdecode_status kernel_table_build(struct bundle *const *bundles, size_t num_bundles, struct kernel_table *ret_table) {
    size_t count = 0;
    for (size_t rank = 0; rank < num_bundles; rank++)
        count += bundle_header(bundles[rank])->num_kernels;
    struct kernel_record *records = calloc(count + 1, sizeof *records); /* + 1: never of size 0 */
    struct kernel_record *scratch = malloc((count + 1) * sizeof *scratch);
    uint32_t *gpus = calloc(count + 1, sizeof *gpus);
    size_t *begins = calloc(num_bundles + 1, sizeof *begins);
    libdecode_status status = LIBDECODE_OK;
    if (records && scratch && gpus && begins) {
        for (size_t rank = 0; rank < num_bundles; rank++) {
            list_kernels(bundles[rank], rank, records + begins[rank]);
            begins[rank + 1] = begins[rank] + bundle_header(bundles[rank])->num_kernels;
        }
        merge_bundles(records, begins, 0, num_bundles, scratch);
        struct kernel_table table = {.records = records, .gpus = gpus, .count = overlay(records, gpus, count)};
        status = kernel_index_create(&table, &table.index);
        if (status == LIBDECODE_OK)
            *ret_table = table;
    } else {
        status = fail(LIBDECODE_ERROR_OUT_OF_MEMORY, "no memory for a table of %zu kernels; free memory and try again", count);
    }
    free(begins);
    free(scratch);
    if (status != LIBDECODE_OK) {
        free(records);
        free(gpus);
    }
    return status;
}

void kernel_table_destroy(struct kernel_table *table) {
    free(table->records);
    free(table->gpus);
    kernel_index_destroy(table->index);
    *table = (struct kernel_table){0};
}
