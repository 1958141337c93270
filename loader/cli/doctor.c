/* SPDX-License-Identifier: Apache-2.0 */
/* doctor.c: `libdecode doctor`: this machine in; what is there, what is missing and what to do about it out. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "command.h"
#include "context.h"
#include "env.h"
#include "option_words.h"
#include "report.h"
#include "session.h"
#include "status.h"
#include "target.h"
#include "terminal.h"

#define show(...) print_wrapped(stdout, 11, __VA_ARGS__)

struct diagnosis {
    struct json *json; /* NULL: text */
    size_t num_advice, num_broken;
    char advice[16][ERROR_MESSAGE_BYTES];
};

/* One line of "What to do"; `broken`: as it is, kernels cannot run. */
__attribute__((format(printf, 3, 4))) static void advise(struct diagnosis *diagnosis, bool broken, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    diagnosis->num_broken += broken;
    if (diagnosis->num_advice < sizeof diagnosis->advice / sizeof diagnosis->advice[0])
        vsnprintf(diagnosis->advice[diagnosis->num_advice++], sizeof diagnosis->advice[0], format, arguments);
    va_end(arguments);
}

/* ------------------------------------------------------------------------------------------------------ driver and GPUs */

static void show_device(struct diagnosis *diagnosis, struct gpu *gpu, int ordinal, const libdecode_context *context) {
    struct gpu_facts facts;
    char memory[32];
    size_t num_kernels = 0;
    if (!gpu_get_facts(gpu, ordinal, &facts)) {
        advise(diagnosis, true, "GPU %d does not answer; 'nvidia-smi' may say why", ordinal);
        return;
    }
    const uint32_t bit = gpu_bit(facts.compute_capability);
    const size_t count = context != NULL ? libdecode_kernel_count(context) : 0;
    for (size_t index = 0; index < count; index++) {
        libdecode_kernel_info info = {.struct_size = sizeof info};
        if (libdecode_kernel_get_info(context, index, &info) == LIBDECODE_OK)
            num_kernels += (info.gpus & bit) != 0;
    }
    format_bytes((double)facts.memory_bytes, memory, sizeof memory);
    if (diagnosis->json != NULL) {
        json_begin(diagnosis->json, NULL, '{');
        json_text(diagnosis->json, "name", facts.name);
        json_integer(diagnosis->json, "compute_capability", facts.compute_capability);
        json_integer(diagnosis->json, "sm_count", facts.sm_count);
        json_integer(diagnosis->json, "memory_bytes", (int64_t)facts.memory_bytes);
        json_integer(diagnosis->json, "kernels", (int64_t)num_kernels);
        json_end(diagnosis->json, '}');
    } else {
        show("GPU %-6d %s, sm_%d, %d SMs, %s; %zu kernels for it", ordinal, facts.name, facts.compute_capability, facts.sm_count,
             memory, num_kernels);
    }
    if (bit == 0)
        advise(diagnosis, false, "GPU %d (%s) is sm_%d: libdecode has kernels for sm_90, sm_100, sm_103, sm_120 and sm_121",
               ordinal, facts.name, facts.compute_capability);
    else if (num_kernels == 0)
        advise(diagnosis, true, "no bundle here%s serves GPU %d (%s): install the kernels for %s, or build with -Dgpu_archs=%s",
               context != NULL && context->num_passed_over > 0 ? " that can be used" : "", ordinal, facts.name, gpu_name(bit),
               gpu_name(bit));
}

/* The newest driver that one of the bundles asks for. */
static int oldest_driver(const libdecode_context *context) {
    uint32_t oldest = 0;
    for (size_t index = 0; context != NULL && index < context->num_bundles; index++) {
        const struct bundle_header *header = bundle_header(context->bundles[index]);
        oldest = header->min_driver > oldest ? header->min_driver : oldest;
    }
    return (int)oldest;
}

/* Whether there is a GPU. */
static bool show_driver(struct diagnosis *diagnosis, const libdecode_context *context) {
    struct gpu gpu;
    char why[256];
    enum gpu_presence presence = gpu_find(&gpu, why, sizeof why);
    if (diagnosis->json != NULL) {
        json_text(diagnosis->json, "driver", presence == GPU_PRESENT ? "ok" : why);
        json_integer(diagnosis->json, "driver_version", gpu.driver_version);
        json_begin(diagnosis->json, "gpus", '[');
    } else if (presence == GPU_PRESENT) {
        printf("driver     for CUDA %d.%d\n", gpu.driver_version / 1000, gpu.driver_version % 1000 / 10);
    } else {
        show("driver     %s", why);
    }
    if (presence == GPU_FAULTY)
        advise(diagnosis, true, "%s: update or reinstall the NVIDIA driver, or restart the machine after an update", why);
    if (presence == GPU_ABSENT)
        advise(diagnosis, false,
               "%s, so kernels cannot run here; 'libdecode demo', 'libdecode explain --gpu all' and libdecode_reference work all "
               "the "
               "same. If this machine has an NVIDIA GPU, install its driver (the CUDA toolkit is not needed)",
               why);
    const int oldest = oldest_driver(context);
    if (presence == GPU_PRESENT && gpu.driver_version < oldest)
        advise(diagnosis, true, "the driver is for CUDA %d.%d, the kernels need %d.%d: update the NVIDIA driver",
               gpu.driver_version / 1000, gpu.driver_version % 1000 / 10, oldest / 1000, oldest % 1000 / 10);
    for (int ordinal = 0; presence == GPU_PRESENT && ordinal < gpu.num_devices; ordinal++)
        show_device(diagnosis, &gpu, ordinal, context);
    if (diagnosis->json != NULL)
        json_end(diagnosis->json, ']');
    if (presence == GPU_PRESENT)
        gpu_close(&gpu);
    return presence == GPU_PRESENT;
}

/* -------------------------------------------------------------------------------------------------------------- bundles */

static void show_bundle(struct diagnosis *diagnosis, const libdecode_bundle_info *info) {
    char gpus[64], bytes[32];
    format_gpus(info->gpus, gpus, sizeof gpus);
    format_bytes((double)info->file_bytes, bytes, sizeof bytes);
    if (diagnosis->json != NULL) {
        json_begin(diagnosis->json, NULL, '{');
        json_text(diagnosis->json, "path", info->path);
        json_gpus(diagnosis->json, "gpus", info->gpus);
        json_integer(diagnosis->json, "kernels", info->num_kernels);
        json_integer(diagnosis->json, "images", info->num_images);
        json_integer(diagnosis->json, "bytes", (int64_t)info->file_bytes);
        json_hash(diagnosis->json, "root_hash", info->root_hash);
        json_end(diagnosis->json, '}');
        return;
    }
    char root_hash[65];
    for (size_t byte = 0; byte < 32; byte++)
        snprintf(root_hash + 2 * byte, 3, "%02x", info->root_hash[byte]);
    show("bundle     %s: %s, %u kernel%s, %s, root %s", info->path, gpus, info->num_kernels, info->num_kernels == 1 ? "" : "s",
         bytes, root_hash);
}

/* Every place where bundles were looked for. `context` may be NULL. */
static void show_places(struct diagnosis *diagnosis, const libdecode_context *context) {
    if (diagnosis->json != NULL)
        json_begin(diagnosis->json, "places", '[');
    for (size_t index = 0; context != NULL && index < context->num_places; index++) {
        const struct bundle_place *place = &context->places[index];
        if (diagnosis->json != NULL) {
            json_begin(diagnosis->json, NULL, '{');
            json_text(diagnosis->json, "path", place->path);
            json_text(diagnosis->json, "source", in_option_words(place->source));
            json_bool(diagnosis->json, "there", place->is_there);
            json_integer(diagnosis->json, "bundles", (int64_t)place->num_bundles);
            json_end(diagnosis->json, '}');
        } else if (place->path == NULL) {
            show("looked in  the library itself: %zu bundle%s", place->num_bundles, place->num_bundles == 1 ? "" : "s");
        } else if (place->is_there) {
            show("looked in  %s (%s): %zu bundle%s", place->path, in_option_words(place->source), place->num_bundles,
                 place->num_bundles == 1 ? "" : "s");
        } else {
            show("looked in  %s (%s): not there", place->path, in_option_words(place->source));
        }
    }
    if (diagnosis->json != NULL)
        json_end(diagnosis->json, ']');
}

/* What was found in those places and cannot be used. `context` may be NULL. */
static void show_passed_over(struct diagnosis *diagnosis, const libdecode_context *context) {
    const size_t count = context != NULL ? context->num_passed_over : 0;
    if (diagnosis->json != NULL)
        json_begin(diagnosis->json, "passed_over", '[');
    for (size_t index = 0; index < count; index++) {
        const char *reason = in_option_words(context->passed_over[index]);
        if (diagnosis->json != NULL)
            json_text(diagnosis->json, NULL, reason);
        else
            show("unusable   %s", reason);
    }
    if (diagnosis->json != NULL)
        json_end(diagnosis->json, ']');
    if (count == 1)
        advise(diagnosis, true, "a bundle that cannot be used was passed over: replace it, or take it away");
    if (count > 1)
        advise(diagnosis, true, "%zu bundles that cannot be used were passed over: replace them, or take them away", count);
}

static void show_bundles(struct diagnosis *diagnosis, libdecode_context *context) {
    const size_t count = context != NULL ? libdecode_bundle_count(context) : 0;
    bool verified = false;
    if (diagnosis->json != NULL)
        json_begin(diagnosis->json, "bundles", '[');
    for (size_t index = 0; index < count; index++) {
        libdecode_bundle_info info = {.struct_size = sizeof info};
        if (libdecode_bundle_get_info(context, index, &info) == LIBDECODE_OK)
            show_bundle(diagnosis, &info);
    }
    if (diagnosis->json != NULL)
        json_end(diagnosis->json, ']');
    if (context != NULL && count > 0) {
        progress("verifying every image");
        verified = libdecode_verify(context) == LIBDECODE_OK;
        progress_clear();
        if (!verified)
            advise(diagnosis, true, "%s", libdecode_error_message());
    } else if (context != NULL) {
        advise(diagnosis, true,
               "no bundle%s was found: install the kernels, or name a folder of *.bundle with --bundle or LIBDECODE_BUNDLE_PATH",
               context->num_passed_over > 0 ? " that can be used" : "");
    }
    if (diagnosis->json != NULL)
        json_bool(diagnosis->json, "verified", verified && context->num_passed_over == 0);
    else if (count > 0)
        printf("verified   %s\n", !verified                      ? "no"
                                  : context->num_passed_over > 0 ? "every image of what can be used: length, SHA-256 and headers"
                                                                 : "every image: length, SHA-256 and headers");
    else
        printf("bundles    none\n");
}

/* ---------------------------------------------------------------------------------------------------------- environment */

static void show_variable(struct diagnosis *diagnosis, const char *name, const char *value) {
    if (diagnosis->json != NULL)
        json_text(diagnosis->json, name, value);
    else if (value != NULL)
        show("variable   %s=%s", name, value);
}

static void advise_of_variable(void *cookie, const char *name, const char *near) {
    struct diagnosis *diagnosis = cookie;
    if (near != NULL)
        advise(diagnosis, false, "the variable %s has no effect: nothing reads it. Did you mean %s?", name, near);
    else
        advise(diagnosis, false,
               "the variable %s has no effect: nothing reads it. Unset it, or see 'libdecode help' for those that do", name);
}

static void show_environment(struct diagnosis *diagnosis) {
    static const char *const levels[] = {NULL, "none", "error", "warn", "info", "debug"};
    struct environment environment;
    if (environment_read(&environment) != LIBDECODE_OK) {
        advise(diagnosis, true, "%s", libdecode_error_message());
        environment = (struct environment){0};
    }
    if (diagnosis->json != NULL)
        json_begin(diagnosis->json, "environment", '{');
    show_variable(diagnosis, "LIBDECODE_KERNEL", environment.kernel_policy);
    show_variable(diagnosis, "LIBDECODE_BUNDLE_PATH", environment.bundle_path);
    show_variable(diagnosis, "LIBDECODE_BUNDLE_ONLY", environment.bundle_only ? "1" : NULL);
    show_variable(diagnosis, "LIBDECODE_LOG", levels[environment.log_level]);
    show_variable(diagnosis, "LIBDECODE_STRICT", environment.strict ? "1" : NULL);
    environment_unknown(advise_of_variable, diagnosis);
    if (diagnosis->json != NULL)
        json_end(diagnosis->json, '}');
}

static int conclude(struct diagnosis *diagnosis, bool has_gpu) {
    const int result = diagnosis->num_broken > 0 ? EXIT_FAILED : has_gpu ? EXIT_PASSED : EXIT_NO_GPU;
    if (diagnosis->json != NULL) {
        json_begin(diagnosis->json, "advice", '[');
        for (size_t index = 0; index < diagnosis->num_advice; index++)
            json_text(diagnosis->json, NULL, diagnosis->advice[index]);
        json_end(diagnosis->json, ']');
        json_bool(diagnosis->json, "well", diagnosis->num_broken == 0);
        return result;
    }
    if (diagnosis->num_advice > 0)
        printf("\n%sWhat to do%s\n", style(stdout, STYLE_HEADING), style(stdout, STYLE_PLAIN));
    for (size_t index = 0; index < diagnosis->num_advice; index++)
        print_wrapped(stdout, 4, "  - %s", diagnosis->advice[index]);
    if (result == EXIT_PASSED && diagnosis->num_advice == 0)
        printf("\nAll is well. 'libdecode check --quick' runs every kernel on this GPU.\n");
    return result;
}

static int run(int argc, char **argv) {
    struct session_args session = {0};
    void *const targets[] = {&session};
    if (!options_parse(&doctor_command, targets, argc, argv, NULL))
        return EXIT_USAGE;
    struct json json = {0};
    struct diagnosis diagnosis = {.json = session.json ? &json : NULL};
    libdecode_context *context = NULL;
    libdecode_open_options options = {.struct_size = sizeof options};
    options.bundle_paths = session.bundles.items;
    options.num_bundle_paths = session.bundles.count;
    options.kernel_policy = ""; /* one that libdecode_open refuses must not hide the bundles */
    const bool opened = context_open(&options, &context) == LIBDECODE_OK;
    if (!opened || session_check_policy(&session, context) != LIBDECODE_OK)
        advise(&diagnosis, true, "%s", in_option_words(libdecode_error_message()));
    if (session.json)
        json_begin(&json, NULL, '{');
    if (session.json)
        json_text(&json, "libdecode", libdecode_version());
    else
        printf("libdecode  %s\n", libdecode_version());
    const bool has_gpu = show_driver(&diagnosis, opened ? context : NULL);
    show_places(&diagnosis, context);
    show_passed_over(&diagnosis, context);
    show_bundles(&diagnosis, opened ? context : NULL);
    show_environment(&diagnosis);
    int result = conclude(&diagnosis, has_gpu);
    if (session.json)
        json_end(&json, '}');
    libdecode_close(context);
    return result;
}

static const struct option_group groups[] = {{"Bundles and output", bundle_options}};

const struct command doctor_command = {
    .name = "doctor",
    .summary = "driver, GPUs, bundles: what is there, what is missing, what to do",
    .operands = "",
    .description =
        "Looks at the driver, the GPUs, the bundles and the environment, and says what is missing and what to do. Every "
        "image of every bundle is decompressed, hashed and audited. A bundle in a folder that cannot be used, which the library "
        "passes over, is named with the reason, and counts as broken.",
    .examples = "",
    .notes = "Exit codes: 0 all is well, 1 something is broken, 77 no GPU, but nothing is broken.",
    COMMAND_GROUPS(groups),
    .run = run,
};
