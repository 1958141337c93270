/* SPDX-License-Identifier: Apache-2.0 */
/* trace.c: a file of recorded requests in, lengths and shared prompt blocks out. Next: problem_args.c and kv_batch.c. */
#define _GNU_SOURCE /* memrchr; getline, strdup, readlink */
#include "trace.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "options.h"

#ifndef LIBDECODE_TRACE_DIR /* the build says where it installs the trace */
#define LIBDECODE_TRACE_DIR "packaging/traces"
#endif
#define SHIPPED_NAME "mooncake_64.csv"

#define MAX_TOKENS (1 << 26) /* of one request; more is a damaged file */
#define MAX_BLOCK_ID (1 << 30)

const char *trace_shipped_path(void) {
    static const char from_command[] = "/../share/libdecode/" SHIPPED_NAME; /* of an installation that was moved as a whole */
    static const char *const places[] = {LIBDECODE_TRACE_DIR "/" SHIPPED_NAME, "packaging/traces/" SHIPPED_NAME};
    static char moved[4096];
    ssize_t length = readlink("/proc/self/exe", moved, sizeof moved - sizeof from_command);
    char *slash = length > 0 ? memrchr(moved, '/', (size_t)length) : NULL;
    if (slash != NULL) {
        memcpy(slash, from_command, sizeof from_command);
        if (access(moved, R_OK) == 0)
            return moved;
    }
    for (size_t place = 0; place < sizeof places / sizeof places[0]; place++) {
        if (access(places[place], R_OK) == 0)
            return places[place];
    }
    complain("the trace that comes with libdecode is not at %s; name one with --trace FILE", places[0]);
    return NULL;
}

/* Splits FILE:FIRST:COUNT. Without numbers: the whole file. */
static bool split_range(const char *where, char **ret_path, size_t *ret_first, size_t *ret_count) {
    char *path = strdup(where);
    if (path == NULL)
        return complain("out of memory");
    *ret_path = path;
    *ret_first = 0;
    *ret_count = SIZE_MAX;
    char *last = strrchr(path, ':');
    if (last == NULL || last[strspn(last + 1, "0123456789") + 1] != '\0' || last[1] == '\0')
        return true;
    *last = '\0';
    char *middle = strrchr(path, ':');
    if (middle == NULL || middle[1] == '\0' || middle[strspn(middle + 1, "0123456789") + 1] != '\0')
        return complain("--trace %s: FILE or FILE:FIRST:COUNT is accepted", where);
    *middle = '\0';
    *ret_first = strtoul(middle + 1, NULL, 10);
    *ret_count = strtoul(last + 1, NULL, 10);
    return *ret_count > 0 || complain("--trace %s: COUNT must be 1 or more", where);
}

/* The number at *text; moves past it. */
static bool read_number(const char **text, long limit, int32_t *ret_number) {
    char *end;
    errno = 0;
    long number = strtol(*text, &end, 10);
    if (errno != 0 || end == *text || number < 0 || number > limit)
        return false;
    *text = end;
    *ret_number = (int32_t)number;
    return true;
}

static bool append_block(struct trace *trace, size_t *capacity, int32_t block) {
    if (trace->num_block_ids == *capacity) {
        size_t grown = *capacity > 0 ? 2 * *capacity : 1024;
        int32_t *block_ids = realloc(trace->block_ids, grown * sizeof block_ids[0]);
        if (block_ids == NULL)
            return complain("out of memory");
        trace->block_ids = block_ids;
        *capacity = grown;
    }
    trace->block_ids[trace->num_block_ids++] = block;
    return true;
}

/* Where the value of `"key":` begins in a line of JSON, or NULL. */
static const char *json_value(const char *line, const char *key) {
    const char *found = strstr(line, key);
    if (found == NULL)
        return NULL;
    found += strlen(key);
    return found + strspn(found, "\": \t");
}

/* One line of either format into `request` and trace->block_ids. */
static bool parse_line(const char *line, struct trace *trace, size_t *capacity, struct trace_request *request) {
    const char *input = line, *output, *blocks;
    const bool is_json = line[0] == '{';
    if (is_json && (input = json_value(line, "\"input_length")) == NULL)
        return false;
    if (!read_number(&input, MAX_TOKENS, &request->input_length))
        return false;
    output = is_json ? json_value(line, "\"output_length") : *input == ',' ? input + 1 : NULL;
    if (output == NULL || !read_number(&output, MAX_TOKENS, &request->output_length))
        return false;
    blocks = is_json ? json_value(line, "\"hash_ids") : *output == ',' ? output + 1 : output;
    if (blocks == NULL)
        return false;
    if (is_json && *blocks++ != '[')
        return false;
    request->seq_len = request->input_length + request->output_length / 2 + 1;
    request->first_block = trace->num_block_ids;
    for (;;) {
        blocks += strspn(blocks, " ,\t");
        int32_t block;
        if (*blocks < '0' || *blocks > '9')
            break;
        if (!read_number(&blocks, MAX_BLOCK_ID, &block) || !append_block(trace, capacity, block))
            return false;
    }
    request->num_blocks = trace->num_block_ids - request->first_block;
    return strchr(is_json ? "]" : "\r\n", *blocks) != NULL; /* the end of the line counts */
}

static bool append_request(struct trace *trace, size_t *capacity, const struct trace_request *request) {
    if (trace->num_requests == *capacity) {
        size_t grown = *capacity > 0 ? 2 * *capacity : 64;
        struct trace_request *requests = realloc(trace->requests, grown * sizeof requests[0]);
        if (requests == NULL)
            return complain("out of memory");
        trace->requests = requests;
        *capacity = grown;
    }
    trace->requests[trace->num_requests++] = *request;
    return true;
}

static bool read_lines(FILE *file, size_t first, size_t count, struct trace *trace) {
    char *line = NULL;
    size_t line_size = 0, line_number = 0, index = 0, request_capacity = 0, block_capacity = 0;
    bool good = true;
    while (good && trace->num_requests < count && getline(&line, &line_size, file) >= 0) {
        line_number++;
        if (line[0] == '#' || line[0] == '\n' || strncmp(line, "input_length", 12) == 0 || index++ < first)
            continue;
        struct trace_request request = {0};
        good = parse_line(line, trace, &block_capacity, &request) && append_request(trace, &request_capacity, &request);
        if (!good)
            complain("%s:%zu: not a request; expected input_length,output_length,hash_ids or Mooncake's JSON", trace->path,
                     line_number);
    }
    free(line);
    if (good && trace->num_requests < (count == SIZE_MAX ? 1 : count))
        good = complain("%s holds %zu requests; --trace asks for %zu from request %zu on", trace->path, index,
                        count == SIZE_MAX ? (size_t)1 : count, first);
    return good;
}

bool trace_read(const char *where, struct trace *ret_trace) {
    struct trace trace = {0};
    size_t first, count;
    bool good = split_range(where, &trace.path, &first, &count);
    if (good) {
        FILE *file = fopen(trace.path, "r");
        good = file != NULL ? read_lines(file, first, count, &trace) : complain("%s: %s", trace.path, strerror(errno));
        if (file != NULL)
            fclose(file);
    }
    if (good)
        *ret_trace = trace;
    else
        trace_free(&trace);
    return good;
}

void trace_free(struct trace *trace) {
    free(trace->requests);
    free(trace->block_ids);
    free(trace->path);
    *trace = (struct trace){0};
}
