/* SPDX-License-Identifier: Apache-2.0 */
/*
 * context.c: the end of every public function: a status in, the same status out, with what the context has to say about it logged
 * or added to the message. Used by open.c, decode.c and inspect.c.
 */
#include "context.h"

libdecode_status context_result(const libdecode_context *context, libdecode_status status) {
    if (status != LIBDECODE_OK && context)
        log_message(&context->log, LIBDECODE_LOG_ERROR, "%s: %s", libdecode_status_name(status), libdecode_error_message());
    return status;
}

libdecode_status context_refusal(const libdecode_context *context, libdecode_status status) {
    if (status / 100 != LIBDECODE_ERROR_UNSUPPORTED / 100)
        return status;
    return name_passed_over(status, context->passed_over, context->num_passed_over);
}

libdecode_status require_pointer(const void *pointer, const char *name) {
    if (!pointer)
        return fail(LIBDECODE_ERROR_INVALID_ARGUMENT, "%s is NULL: it must not be", name);
    return LIBDECODE_OK;
}
