/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plot.c: rows of `bench` in; an SVG file with a bar for the time and one for the share of the read ceiling out. Before: bench_run.c.
 * Used by bench.c.
 */
#ifndef LIBDECODE_CLI_PLOT_H
#define LIBDECODE_CLI_PLOT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

struct plot_row {
    char label[160], kernel[128];
    double us, ceiling_us; /* the latter NaN without a ceiling */
};

struct plot {
    const char *path;
    FILE *file;
    struct plot_row *rows;
    size_t num_rows, capacity;
};

/* Makes the file, so that it is known before anything is measured whether there can be one. Prints what is wrong. */
bool plot_open(struct plot *plot, const char *path);
bool plot_add(struct plot *plot, const struct plot_row *row);
/* Draws what was added, and closes the file. `title`: the GPU. Prints what is wrong. */
bool plot_close(struct plot *plot, const char *title);

#endif
