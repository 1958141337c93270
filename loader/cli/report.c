/* SPDX-License-Identifier: Apache-2.0 */
/* report.c: JSON text, readable quantities and the clock. Used by every subcommand. */
#define _POSIX_C_SOURCE 200809L /* clock_gettime */
#include "report.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "axis.h"
#include "dtype.h"
#include "target.h"

static void json_string(const char *text) {
    putchar('"');
    for (; *text != '\0'; text++) {
        unsigned char byte = (unsigned char)*text;
        if (byte == '"' || byte == '\\')
            printf("\\%c", byte);
        else if (byte < 0x20)
            printf("\\u%04x", byte);
        else
            putchar(byte);
    }
    putchar('"');
}

/* Comma, new line, indentation and key before a value. */
static void json_lead(struct json *json, const char *key) {
    if (json->depth > 0) {
        printf("%s\n%*s", json->filled[json->depth] ? "," : "", 2 * json->depth, "");
        json->filled[json->depth] = true;
    }
    if (key != NULL) {
        json_string(key);
        fputs(": ", stdout);
    }
}

void json_begin(struct json *json, const char *key, char bracket) {
    json_lead(json, key);
    putchar(bracket);
    json->filled[++json->depth] = false;
}

void json_end(struct json *json, char bracket) {
    bool filled = json->filled[json->depth--];
    if (filled)
        printf("\n%*s", 2 * json->depth, "");
    putchar(bracket);
    if (json->depth == 0)
        putchar('\n');
}

void json_text(struct json *json, const char *key, const char *value) {
    json_lead(json, key);
    if (value == NULL)
        fputs("null", stdout);
    else
        json_string(value);
}

void json_integer(struct json *json, const char *key, int64_t value) {
    json_lead(json, key);
    printf("%lld", (long long)value);
}

void json_number(struct json *json, const char *key, double value) {
    json_lead(json, key);
    if (isfinite(value))
        printf("%.9g", value);
    else
        fputs("null", stdout);
}

void json_bool(struct json *json, const char *key, bool value) {
    json_lead(json, key);
    fputs(value ? "true" : "false", stdout);
}

void json_hash(struct json *json, const char *key, const uint8_t hash[32]) {
    json_lead(json, key);
    putchar('"');
    for (int byte = 0; byte < 32; byte++)
        printf("%02x", hash[byte]);
    putchar('"');
}

#define NUM_GPUS 5

void json_gpus(struct json *json, const char *key, uint32_t gpus) {
    json_begin(json, key, '[');
    for (unsigned gpu = 0; gpu < NUM_GPUS; gpu++) {
        if ((gpus & (1u << gpu)) != 0)
            json_text(json, NULL, gpu_name(1u << gpu));
    }
    json_end(json, ']');
}

void json_dtypes(struct json *json, const char *key, uint32_t dtypes) {
    json_begin(json, key, '[');
    for (int dtype = LIBDECODE_DTYPE_BF16; dtype <= LIBDECODE_DTYPE_NVFP4; dtype++) {
        if ((dtypes >> dtype & 1u) != 0)
            json_text(json, NULL, dtype_name((libdecode_dtype)dtype));
    }
    json_end(json, ']');
}

void json_features(struct json *json, const char *key, uint32_t features) {
    json_begin(json, key, '[');
    for (unsigned bit = 0; bit < 32; bit++) {
        const char *name = (features >> bit & 1u) != 0 ? feature_name(1u << bit) : NULL;
        if (name != NULL)
            json_text(json, NULL, name);
    }
    json_end(json, ']');
}

void format_gpus(uint32_t gpus, char *text, size_t size) {
    size_t used = 0;
    text[0] = '\0';
    for (unsigned gpu = 0; gpu < NUM_GPUS && used < size; gpu++) {
        if ((gpus & (1u << gpu)) != 0)
            used += (size_t)snprintf(text + used, size - used, "%s%s", used > 0 ? " " : "", gpu_name(1u << gpu));
    }
}

void format_bytes(double bytes, char *text, size_t size) {
    static const char *const units[] = {"B", "KB", "MB", "GB", "TB"};
    size_t unit = 0;
    for (; bytes >= 999.5 && unit < 4; unit++)
        bytes /= 1000.0;
    snprintf(text, size, "%.*f %s", unit > 0 && bytes < 9.995 ? 2 : unit > 0 && bytes < 99.95 ? 1 : 0, bytes, units[unit]);
}

double seconds_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static int compare_doubles(const void *left, const void *right) {
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

double median(double *values, size_t count) {
    qsort(values, count, sizeof values[0], compare_doubles);
    return count % 2 == 1 ? values[count / 2] : 0.5 * (values[count / 2 - 1] + values[count / 2]);
}
