/* SPDX-License-Identifier: Apache-2.0 */
/*
 * refusal.c: a question that no kernel at hand answers in, the one error that helps most out. It judges everything once more:
 * words and comparisons cost time that only a refusal should take. Before: select.c.
 */
#include "refusal.h"

#include <string.h>

#include "bundle_format.h"
#include "grid.h"
#include "operation.h"
#include "status.h"
#include "target.h"
#include "text.h"

/* Of what no kernel does: the remedy, which stands behind it, is never cut. */
#define NOT_DONE ": no kernel of libdecode does "
#define NEAREST "; nearest is "
#define OTHER_WAYS "; change the problem, or use libdecode_reference on the host"
enum { LIST_BYTES = 768 };
_Static_assert(sizeof "batch_decode" NOT_DONE NEAREST OTHER_WAYS + LIST_BYTES + BUNDLE_MAX_NAME_BYTES <= ERROR_MESSAGE_BYTES,
               "fail_unsupported: a message has room for all of its parts");

/* ---------------------------------------------------------------------------------------- what libdecode does at all */

/* The families of an operation may share axes: what all variants of the grid together do on one of them. */
struct axis_cover {
    const struct axis *axis;
    bool covered;
    bool near; /* all that stands in the way of a variant, or one of the few things that do */
};
#define MAX_COVERS (2 * FAMILY_MAX_AXES)
struct cover {
    struct axis_cover axes[MAX_COVERS];
    size_t count;
    bool whole;   /* one variant does it all */
    int nearness; /* axes that fail of the nearest variants */
};

/* For a GPU that is none of the five, every variant counts: what is missing then is the image. */
static bool is_for(const struct grid_variant *variant, const libdecode_device *device) {
    uint32_t bit = gpu_bit(device->compute_capability);
    return bit == 0 || (target_gpus(variant->target) & bit) != 0;
}

static const struct family *family_for(const struct grid_variant *variant, const struct question *question) {
    const struct family *family = family_find(variant->family);
    return family->op == question->problem->given.op && is_for(variant, question->device) ? family : NULL;
}

static void note_axis(struct cover *cover, const struct axis *axis, bool fits, bool is_nearest) {
    size_t place = 0;
    while (place < cover->count && cover->axes[place].axis != axis)
        place++;
    if (place == MAX_COVERS)
        return;
    if (place == cover->count)
        cover->axes[cover->count++] = (struct axis_cover){.axis = axis, .covered = false};
    cover->axes[place].covered = cover->axes[place].covered || fits;
    cover->axes[place].near = cover->axes[place].near || (is_nearest && !fits);
}

static void survey_grid(const struct question *question, struct cover *ret_cover) {
    size_t count;
    const struct grid_variant *variants = grid_variants(&count);
    *ret_cover = (struct cover){.nearness = INT32_MAX};
    for (size_t i = 0; i < count && !ret_cover->whole; i++) {
        const struct family *family = family_for(&variants[i], question);
        if (!family)
            continue;
        const struct libdecode_launch_contract contract = grid_contract(&variants[i]);
        uint32_t failing = judge_axes(family, question->problem, &contract);
        int nearness = __builtin_popcount(failing);
        for (size_t place = 0; nearness < ret_cover->nearness && place < ret_cover->count; place++)
            ret_cover->axes[place].near = false;
        ret_cover->nearness = nearness < ret_cover->nearness ? nearness : ret_cover->nearness;
        ret_cover->whole = failing == 0;
        for (size_t axis = 0; family->axes[axis]; axis++)
            note_axis(ret_cover, family->axes[axis], (failing >> axis & 1u) == 0, nearness == ret_cover->nearness);
    }
}

/* Adds a value to "64, 128" unless it is there. */
static void add_value(char *list, const char *value) {
    size_t length = strlen(value);
    for (const char *found = strstr(list, value); found; found = strstr(found + 1, value))
        if ((found == list || found[-1] == ' ') && (found[length] == '\0' || found[length] == ','))
            return;
    text_append(list, AXIS_TEXT_BYTES, "%s%s", list[0] ? ", " : "", value);
}

/* What kernels lack of the features asked for: sets of which none holds another one. */
#define MAX_LACKS 16
struct lacks {
    uint32_t features[MAX_LACKS];
    size_t count;
};

static void note_lack(struct lacks *lacks, uint32_t lack) {
    size_t kept = 0;
    for (size_t i = 0; i < lacks->count; i++)
        if ((lacks->features[i] & lack) == lacks->features[i])
            return;
    for (size_t i = 0; i < lacks->count; i++)
        if ((lacks->features[i] & lack) != lack)
            lacks->features[kept++] = lacks->features[i];
    lacks->count = kept;
    if (kept < MAX_LACKS)
        lacks->features[lacks->count++] = lack;
}

/* "all but soft_cap, all but query_offsets": what may be left out. All that kernels have is much, and nearly the same. */
static void list_features(const struct question *question, char ret_list[AXIS_TEXT_BYTES]) {
    struct lacks lacks = {.count = 0};
    size_t count;
    const struct grid_variant *variants = grid_variants(&count);
    for (size_t i = 0; i < count; i++)
        if (family_for(&variants[i], question))
            note_lack(&lacks, question->problem->given.features & ~grid_contract(&variants[i]).features);
    ret_list[0] = '\0';
    for (size_t i = 0; i < lacks.count; i++) {
        const struct libdecode_launch_contract others = {.features = ~lacks.features[i]};
        text_append(ret_list, AXIS_TEXT_BYTES, "%sall but ", i > 0 ? ", " : "");
        name_missing_features(question->problem, &others, ret_list);
    }
}

/* "64, 128": what there is of an axis. */
static void list_built(const struct question *question, const struct axis *axis, char ret_list[AXIS_TEXT_BYTES]) {
    size_t count;
    if (axis == &axis_features) {
        list_features(question, ret_list);
        return;
    }
    const struct grid_variant *variants = grid_variants(&count);
    ret_list[0] = '\0';
    for (size_t i = 0; i < count; i++) {
        const struct family *family = family_for(&variants[i], question);
        const struct libdecode_launch_contract contract = grid_contract(&variants[i]);
        char value[AXIS_TEXT_BYTES] = "";
        if (!family)
            continue;
        axis->offers(&contract, value);
        add_value(ret_list, value);
    }
}

/* Each of it is built, but not together: "page_size 8 together with v_sf_layout V_INTERLEAVE4". */
static void word_combination(const struct question *question, const struct cover *cover, char ret_text[LIST_BYTES]) {
    ret_text[0] = '\0';
    for (size_t i = 0; i < cover->count; i++) {
        char asked[AXIS_TEXT_BYTES] = "";
        if (!cover->axes[i].near)
            continue;
        cover->axes[i].axis->asks(question->problem, asked);
        text_append(ret_text, LIST_BYTES, "%s%s %s", ret_text[0] ? " together with " : "", cover->axes[i].axis->name, asked);
    }
}

static libdecode_status fail_unsupported(const struct question *question, const struct cover *cover,
                                         const struct judgement *nearest) {
    char missing[LIST_BYTES] = "";
    for (size_t i = 0; i < cover->count; i++) {
        if (cover->axes[i].covered)
            continue;
        char asked[AXIS_TEXT_BYTES] = "", built[AXIS_TEXT_BYTES];
        cover->axes[i].axis->asks(question->problem, asked);
        list_built(question, cover->axes[i].axis, built);
        text_append(missing, sizeof missing, "%s%s %s (built: %s)", missing[0] ? "; " : "", cover->axes[i].axis->name, asked,
                    built);
    }
    if (!missing[0])
        word_combination(question, cover, missing);
    return fail(LIBDECODE_ERROR_UNSUPPORTED, "%s" NOT_DONE "%s%s%s" OTHER_WAYS, question->problem->operation->name, missing,
                nearest->record ? NEAREST : "", nearest->record ? nearest->record->name : "");
}

/* --------------------------------------------------------------------------------------------------- what is at hand */

struct survey {
    struct judgement nearest, nearest_forced;
    bool has_op, has_gpu; /* kernels of this operation are at hand; for this GPU */
    uint32_t gpus;        /* that the kernels for this problem serve */
    size_t num_denied;
};

/* A kernel of this GPU before any other; then how far it came; then the name, so that the order of records does not matter. */
static bool nearer(const struct question *question, const struct judgement *a, const struct judgement *b) {
    if (!b->record)
        return true;
    uint32_t bit = gpu_bit(question->device->compute_capability);
    const struct kernel_table *table = question->table;
    bool a_here = (table->gpus[a->record - table->records] & bit) != 0;
    bool b_here = (table->gpus[b->record - table->records] & bit) != 0;
    if (a_here != b_here)
        return a_here;
    if (a->stage != b->stage)
        return a->stage > b->stage;
    int a_axes = __builtin_popcount(a->failing_axes), b_axes = __builtin_popcount(b->failing_axes);
    return a_axes != b_axes ? a_axes < b_axes : strcmp(a->record->name, b->record->name) < 0;
}

static void survey_table(const struct question *question, struct survey *ret_survey) {
    uint32_t bit = gpu_bit(question->device->compute_capability);
    *ret_survey = (struct survey){.has_op = false};
    for (size_t i = 0; i < question->table->count; i++) {
        struct judgement judgement;
        judge(question, i, &judgement);
        if (judgement.stage == JUDGED_OP)
            continue;
        if (nearer(question, &judgement, &ret_survey->nearest))
            ret_survey->nearest = judgement;
        if (judgement.stage == JUDGED_CONTRACT)
            continue;
        if (judgement.verb == POLICY_FORCE && nearer(question, &judgement, &ret_survey->nearest_forced))
            ret_survey->nearest_forced = judgement;
        ret_survey->has_op = true;
        ret_survey->has_gpu = ret_survey->has_gpu || (question->table->gpus[i] & bit) != 0;
        ret_survey->gpus |= question->table->gpus[i];
        ret_survey->num_denied += judgement.stage == JUDGED_POLICY;
    }
}

static const char *device_name(const libdecode_device *device) { return device->name[0] ? device->name : "unnamed GPU"; }

static libdecode_status fail_nothing(const struct question *question, const struct judgement *nearest) {
    char reason[REASON_BYTES];
    if (!nearest->record)
        return fail(LIBDECODE_ERROR_NOT_IN_BUNDLE,
                    "%s: the bundles at hand hold no kernel for it; install libdecode's bundles, or name one with "
                    "LIBDECODE_BUNDLE_PATH (libdecode doctor shows where it looks)",
                    question->problem->operation->name);
    word_judgement(question, nearest, reason);
    return fail(LIBDECODE_ERROR_NOT_IN_BUNDLE,
                "%s: the bundles at hand hold no kernel for it that this libdecode can launch; %s %s; use the bundles that "
                "belong to this libdecode",
                question->problem->operation->name, nearest->record->name, reason);
}

static libdecode_status fail_gpu(const struct question *question, uint32_t gpus) {
    const libdecode_device *device = question->device;
    char served[AXIS_TEXT_BYTES] = "";
    for (uint32_t bit = BUNDLE_GPU_SM90; bit <= BUNDLE_GPU_SM121; bit <<= 1)
        if (gpus & bit)
            text_append(served, sizeof served, "%s%s", served[0] ? ", " : "", gpu_name(bit));
    return fail(LIBDECODE_ERROR_NO_GPU_IMAGE, "no image for sm_%d (%s): the bundles at hand serve %s; %s",
                device->compute_capability, device_name(device), served,
                gpu_bit(device->compute_capability) ? "install the bundle of this GPU, or see libdecode doctor"
                                                    : "libdecode is built for sm_90, sm_100, sm_103, sm_120 and sm_121 only");
}

/* A kernel of this operation and GPU came nearest. */
static libdecode_status fail_nearest(const struct question *question, const struct survey *survey) {
    const struct judgement *nearest = &survey->nearest;
    const libdecode_device *device = question->device;
    char reason[REASON_BYTES];
    word_judgement(question, nearest, reason);
    switch (nearest->stage) {
    case JUDGED_POLICY:
        return fail(LIBDECODE_ERROR_OVERRIDE,
                    "the kernel policy denies every kernel that could do this (%zu, %s among them); change or unset the policy",
                    survey->num_denied, nearest->record->name);
    case JUDGED_DEVICE:
        if (nearest->lack == LACKS_DRIVER)
            return fail(LIBDECODE_ERROR_DRIVER_TOO_OLD, "%s %s; install a newer NVIDIA driver", nearest->record->name, reason);
        return fail(LIBDECODE_ERROR_NO_GPU_IMAGE, "no kernel fits sm_%d (%s): %s %s", device->compute_capability,
                    device_name(device), nearest->record->name, reason);
    case JUDGED_PROBLEM:
        return fail(LIBDECODE_ERROR_NOT_IN_BUNDLE,
                    "%s: no kernel at hand has this combination; nearest is %s: %s; install a bundle that holds it (libdecode "
                    "list shows what is there)",
                    question->problem->operation->name, nearest->record->name, reason);
    case JUDGED_CONTRACT:
    case JUDGED_OP:
    case JUDGED_GPU:
    case JUDGED_ELIGIBLE:
        break;
    }
    return fail(LIBDECODE_ERROR_INTERNAL, "selection refused %s without a reason; please report this", nearest->record->name);
}

libdecode_status refuse(const struct question *question, bool forcing) {
    struct survey survey;
    struct cover cover;
    survey_table(question, &survey);
    if (forcing) {
        char reason[REASON_BYTES];
        word_judgement(question, &survey.nearest_forced, reason);
        return fail(LIBDECODE_ERROR_OVERRIDE, "the kernel policy forces %s, which cannot do this: %s; change or unset the policy",
                    survey.nearest_forced.record->name, reason);
    }
    survey_grid(question, &cover);
    if (!cover.whole)
        return fail_unsupported(question, &cover, &survey.nearest);
    if (!survey.has_op)
        return fail_nothing(question, &survey.nearest);
    if (!survey.has_gpu)
        return fail_gpu(question, survey.gpus);
    return fail_nearest(question, &survey);
}
