/* SPDX-License-Identifier: Apache-2.0 */
/* report.c: JSON text, readable quantities and the clock, as every subcommand has them. */
#ifndef LIBDECODE_CLI_REPORT_H
#define LIBDECODE_CLI_REPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Writes one JSON document to standard output, indented, keys in the order of the calls. Inside an array `key` is NULL.
 *
 *     json_begin(&json, NULL, '{'); json_text(&json, "kernel", name); json_end(&json, '}');
 */
struct json {
    int depth;
    bool filled[16]; /* something stands before, per depth */
};
void json_begin(struct json *json, const char *key, char bracket);
void json_end(struct json *json, char bracket);
void json_text(struct json *json, const char *key, const char *value); /* NULL prints null */
void json_integer(struct json *json, const char *key, int64_t value);
void json_number(struct json *json, const char *key, double value); /* what JSON cannot hold prints null */
void json_bool(struct json *json, const char *key, bool value);
void json_hash(struct json *json, const char *key, const uint8_t hash[32]); /* in hexadecimal */
/* The names of the GPUs of a bit mask (libdecode_kernel_info.gpus) as an array. */
void json_gpus(struct json *json, const char *key, uint32_t gpus);
/* Bits of libdecode_dtype, as an array of names. */
void json_dtypes(struct json *json, const char *key, uint32_t dtypes);

/* Bits of libdecode_features, likewise. */
void json_features(struct json *json, const char *key, uint32_t features);

/* "sm_90 sm_100", into `text`. */
void format_gpus(uint32_t gpus, char *text, size_t size);
/* "1.07 GB", "17 MB": decimal units, into `text`. */
void format_bytes(double bytes, char *text, size_t size);

/* Monotonic time. */
double seconds_now(void);

/* The middle value; sorts `values` in place. */
double median(double *values, size_t count);

#endif
