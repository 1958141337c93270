/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libdecode_open and libdecode_close: options and environment in, a context out: bundles read, kernels in one table, policy
 * parsed. No GPU is touched. Before: the caller, env.c. Next: decode.c and inspect.c.
 */
#include <stdlib.h>
#include <string.h>

#include "bundle_search.h"
#include "context.h"
#include "env.h"

#define OPTIONS_MINIMUM_BYTES (offsetof(libdecode_open_options, num_root_hashes) + sizeof(size_t))

#define ALL_OPEN_FLAGS (LIBDECODE_OPEN_IGNORE_ENVIRONMENT | LIBDECODE_OPEN_BUNDLES_ONLY | LIBDECODE_OPEN_STRICT)

static libdecode_status check_array(const void *array, size_t count, const char *name) {
    if (count > 0 && !array)
        return fail(LIBDECODE_ERROR_INVALID_ARGUMENT, "options.%s is NULL with a count of %zu: give the array, or the count 0",
                    name, count);
    return LIBDECODE_OK;
}

static libdecode_status read_options(const libdecode_open_options *options, libdecode_open_options *ret_options) {
    libdecode_open_options read = {.struct_size = sizeof read};
    if (options)
        FORWARD(read_caller_struct(&read, sizeof read, options, OPTIONS_MINIMUM_BYTES, "libdecode_open_options"));
    if (read.flags & ~(uint32_t)ALL_OPEN_FLAGS)
        return fail(LIBDECODE_ERROR_INVALID_ARGUMENT, "options.flags has unknown bits 0x%x: accepted are those of 0x%x",
                    read.flags & ~(uint32_t)ALL_OPEN_FLAGS, (unsigned)ALL_OPEN_FLAGS);
    if ((int)read.log_level < LIBDECODE_LOG_DEFAULT || (int)read.log_level > LIBDECODE_LOG_DEBUG)
        return fail(LIBDECODE_ERROR_INVALID_ARGUMENT, "options.log_level is %d: accepted are 0 (default) to 5 (debug)",
                    (int)read.log_level);
    FORWARD(check_array(read.bundle_paths, read.num_bundle_paths, "bundle_paths"));
    for (size_t i = 0; i < read.num_bundle_paths; i++)
        if (!read.bundle_paths[i])
            return fail(LIBDECODE_ERROR_INVALID_ARGUMENT, "options.bundle_paths[%zu] is NULL: give a file or a folder", i);
    FORWARD(check_array(read.memory_bundles, read.num_memory_bundles, "memory_bundles"));
    for (size_t i = 0; i < read.num_memory_bundles; i++)
        if (!read.memory_bundles[i].data)
            return fail(LIBDECODE_ERROR_INVALID_ARGUMENT, "options.memory_bundles[%zu].data is NULL: give the bytes of a bundle",
                        i);
    FORWARD(check_array(read.root_hashes, read.num_root_hashes, "root_hashes"));
    *ret_options = read;
    return LIBDECODE_OK;
}

static libdecode_status read_environment(const libdecode_open_options *options, struct environment *ret_environment) {
    *ret_environment = (struct environment){.log_level = LIBDECODE_LOG_DEFAULT};
    if (options->flags & LIBDECODE_OPEN_IGNORE_ENVIRONMENT)
        return LIBDECODE_OK;
    FORWARD(environment_read(ret_environment));
    const char *path = ret_environment->bundle_path;
    const bool looks_at_path = (options->flags & LIBDECODE_OPEN_BUNDLES_ONLY) == 0;
    if (looks_at_path && ret_environment->bundle_only && (!path || path[strspn(path, ":")] == '\0'))
        return fail(LIBDECODE_ERROR_INVALID_ARGUMENT,
                    "environment variable LIBDECODE_BUNDLE_ONLY is 1 and LIBDECODE_BUNDLE_PATH is '%s', which "
                    "leaves no bundle; set the path, or unset it",
                    path ? path : "");
    return LIBDECODE_OK;
}

/* Later ones overlay earlier ones. */
static libdecode_status find_bundles(const libdecode_open_options *options, const struct environment *environment,
                                     struct bundle_list *list) {
    bool options_only = (options->flags & LIBDECODE_OPEN_BUNDLES_ONLY) != 0;
    bool environment_only = environment->bundle_only && !options_only;
    if (!options_only && !environment_only) {
        FORWARD(bundle_list_add_embedded(list));
        if (list->count == 0) /* what the library carries is its own; a folder may be another version's */
            FORWARD(bundle_list_add_installed(list));
    }
    if (!environment_only) {
        for (size_t i = 0; i < options->num_bundle_paths; i++)
            FORWARD(bundle_list_add_path(list, options->bundle_paths[i], "options.bundle_paths"));
        for (size_t i = 0; i < options->num_memory_bundles; i++)
            FORWARD(bundle_list_add_memory(list, options->memory_bundles[i].data, options->memory_bundles[i].bytes, "memory"));
    }
    if (!options_only && environment->bundle_path)
        FORWARD(bundle_list_add_paths(list, environment->bundle_path, "LIBDECODE_BUNDLE_PATH"));
    return LIBDECODE_OK;
}

static void set_log(libdecode_context *context, const libdecode_open_options *options, const struct environment *environment) {
    libdecode_log_level level = options->log_level != LIBDECODE_LOG_DEFAULT ? options->log_level : environment->log_level;
    context->log = (struct log_sink){.function = options->log,
                                     .cookie = options->log_cookie,
                                     .level = level != LIBDECODE_LOG_DEFAULT ? level : LIBDECODE_LOG_NONE};
}

static void warn_of_variable(void *log, const char *name, const char *near) {
    if (near)
        log_message(log, LIBDECODE_LOG_WARN, "environment variable %s has no effect: nothing reads it; did you mean %s?", name,
                    near);
    else
        log_message(log, LIBDECODE_LOG_WARN, "environment variable %s has no effect: nothing reads it; unset it", name);
}

static bool context_ended(void *devices, uint64_t context_id) { return device_cache_context_ended(devices, context_id); }

/* Whatever is made before an error stays in the context, for libdecode_close. */
static libdecode_status fill_context(libdecode_context *context, const libdecode_open_options *options,
                                     const struct environment *environment) {
    struct bundle_list list = {
        .root_hashes = options->root_hashes, .num_root_hashes = options->num_root_hashes, .log = &context->log};
    libdecode_status status = find_bundles(options, environment, &list);
    context->bundles = list.bundles;
    context->num_bundles = list.count;
    context->places = list.places;
    context->num_places = list.num_places;
    context->passed_over = list.passed_over;
    context->num_passed_over = list.num_passed_over;
    FORWARD(status);
    FORWARD(kernel_table_build(context->bundles, context->num_bundles, &context->table));

    bool strict = environment->strict || (options->flags & LIBDECODE_OPEN_STRICT) != 0;
    const char *text = options->kernel_policy ? options->kernel_policy : environment->kernel_policy;
    const char *source = options->kernel_policy ? "options.kernel_policy" : "LIBDECODE_KERNEL";
    FORWARD(context_refusal(context, policy_parse(text, source, strict, &context->table, &context->policy)));
    FORWARD(device_cache_create(&context->devices));
    FORWARD(residency_create(&context->residency));
    FORWARD(module_cache_create(&context->log, &context->modules));
    const struct plan_memo_owner owner = {libdecode_plan_destroy, context_ended, context->devices};
    FORWARD(plan_memo_create(&owner, &context->memo));
    for (size_t i = 0; i < context->num_bundles; i++)
        log_message(&context->log, LIBDECODE_LOG_DEBUG, "bundle %s: %u kernels", bundle_path(context->bundles[i]),
                    bundle_header(context->bundles[i])->num_kernels);
    return LIBDECODE_OK;
}

libdecode_status context_open(const libdecode_open_options *options, libdecode_context **ret_context) {
    libdecode_open_options read = {0};
    struct environment environment = {0};
    *ret_context = NULL;
    FORWARD(read_options(options, &read));
    FORWARD(read_environment(&read, &environment));

    libdecode_context *context = calloc(1, sizeof *context);
    if (!context)
        return fail(LIBDECODE_ERROR_OUT_OF_MEMORY, "no memory for a context (%zu bytes); free memory", sizeof *context);
    set_log(context, &read, &environment);
    if ((read.flags & LIBDECODE_OPEN_IGNORE_ENVIRONMENT) == 0)
        environment_unknown(warn_of_variable, &context->log);
    *ret_context = context;
    return context_result(context, fill_context(context, &read, &environment));
}

libdecode_status libdecode_open(const libdecode_open_options *options, libdecode_context **ret_context) {
    libdecode_context *context;
    FORWARD(require_pointer(ret_context, "ret_context"));
    libdecode_status status = context_open(options, &context);
    if (status == LIBDECODE_OK)
        *ret_context = context;
    else
        libdecode_close(context);
    return status;
}

void libdecode_close(libdecode_context *context) {
    if (!context)
        return;
    plan_memo_destroy(context->memo);
    module_cache_destroy(context->modules);
    residency_destroy(context->residency);
    device_cache_destroy(context->devices);
    policy_destroy(&context->policy);
    kernel_table_destroy(&context->table);
    struct bundle_list list = {.bundles = context->bundles,
                               .count = context->num_bundles,
                               .places = context->places,
                               .num_places = context->num_places,
                               .passed_over = context->passed_over,
                               .num_passed_over = context->num_passed_over};
    bundle_list_close(&list);
    free(context);
}
