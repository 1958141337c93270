/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plot.c: measured times in, an SVG file out: for every row its name and kernel, a bar of its time, of which the darker part is what
 * reading the bytes takes alone, and a bar of that part in per cent. Its colours follow the reader's, light or dark.
 */
#include "plot.h"

#include <math.h>
#include <stdlib.h>

#include "options.h"

/* In units of the drawing, which are pixels at its natural size. */
enum {
    MARGIN = 16,
    TITLE_HEIGHT = 56, /* with the names of the columns */
    ROW_HEIGHT = 40,
    BAR_HEIGHT = 16,
    AXIS_HEIGHT = 28,
    TIME_WIDTH = 320,
    SHARE_WIDTH = 200,
    NUMBER_WIDTH = 84, /* behind a bar */
    LEAST_LABEL_WIDTH = 180
};
#define LABEL_CHARACTER 7.6  /* of the widest text in the first column, roughly */
#define KERNEL_CHARACTER 6.7 /* it is smaller */
#define MOST_TICKS 6

bool plot_open(struct plot *plot, const char *path) {
    *plot = (struct plot){.path = path, .file = fopen(path, "w")};
    return plot->file != NULL || complain("bench: --plot %s: the file cannot be written", path);
}

bool plot_add(struct plot *plot, const struct plot_row *row) {
    if (plot->num_rows == plot->capacity) {
        const size_t capacity = plot->capacity > 0 ? 2 * plot->capacity : 32;
        struct plot_row *rows = realloc(plot->rows, capacity * sizeof rows[0]);
        if (rows == NULL)
            return complain("out of memory");
        plot->rows = rows;
        plot->capacity = capacity;
    }
    plot->rows[plot->num_rows++] = *row;
    return true;
}

static size_t count_characters(const char *text) {
    size_t count = 0;
    for (; *text != '\0'; text++)
        count += ((unsigned char)*text & 0xc0) != 0x80;
    return count;
}

static void write_escaped(FILE *file, const char *text) {
    for (; *text != '\0'; text++) {
        if (*text == '&')
            fputs("&amp;", file);
        else if (*text == '<')
            fputs("&lt;", file);
        else if (*text == '>')
            fputs("&gt;", file);
        else if ((unsigned char)*text >= 0x20)
            fputc(*text, file);
    }
}

static void write_text(FILE *file, double x, double y, const char *attributes, const char *text) {
    fprintf(file, "<text x=\"%.1f\" y=\"%.1f\"%s>", x, y, attributes);
    write_escaped(file, text);
    fputs("</text>\n", file);
}

static void write_bar(FILE *file, const char *class, double x, double y, double width) {
    fprintf(file, "<rect class=\"%s\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%d\"/>\n", class, x, y, width, BAR_HEIGHT);
}

/* 1, 2 or 5 times a power of ten: the smallest of which at most MOST_TICKS reach `largest`. */
static double tick_distance(double largest) {
    double power = pow(10.0, floor(log10(largest / MOST_TICKS)));
    static const double factors[] = {1, 2, 5};
    for (size_t factor = 0; factor < 3; factor++) {
        if (largest <= factors[factor] * power * MOST_TICKS)
            return factors[factor] * power;
    }
    return 10.0 * power;
}

static void write_ticks(FILE *file, double x, double width, double largest, double distance, double height, const char *unit) {
    for (int tick = 0; tick * distance <= largest * (1 + 1e-9); tick++) {
        const double at = x + width * tick * distance / largest;
        char text[32];
        snprintf(text, sizeof text, "%g%s", tick * distance, unit);
        fprintf(file, "<line class=\"grid\" x1=\"%.1f\" y1=\"%d\" x2=\"%.1f\" y2=\"%.1f\"/>\n", at, MARGIN + TITLE_HEIGHT, at,
                MARGIN + TITLE_HEIGHT + height);
        write_text(file, at, MARGIN + TITLE_HEIGHT + height + 16, " class=\"small\" text-anchor=\"middle\"", text);
    }
}

static void write_style(FILE *file) {
    fputs("<style>\n"
          "text { font: 13px system-ui, sans-serif; fill: #1c2127 }\n"
          ".title { font-size: 16px; font-weight: 600 } .small { font-size: 11px; fill: #57606a }\n"
          ".back { fill: #ffffff } .grid { stroke: #d0d7de } .ceiling { fill: #1f6feb } .rest { fill: #a5c8f5 }\n"
          "@media (prefers-color-scheme: dark) {\n"
          "text { fill: #e6edf3 } .small { fill: #9da7b1 }\n"
          ".back { fill: #0d1117 } .grid { stroke: #30363d } .ceiling { fill: #58a6ff } .rest { fill: #264a73 }\n"
          "}\n"
          "</style>\n",
          file);
}

static void write_row(FILE *file, const struct plot_row *row, double y, double time_x, double share_x, double longest_us) {
    const bool has_ceiling = isfinite(row->ceiling_us);
    const double width = TIME_WIDTH * row->us / longest_us, share = has_ceiling ? row->ceiling_us / row->us : 0.0;
    const double bar_y = y + (ROW_HEIGHT - BAR_HEIGHT) / 2.0, number_y = bar_y + BAR_HEIGHT - 3;
    char number[32];
    write_text(file, MARGIN, y + 17, "", row->label);
    write_text(file, MARGIN, y + 32, " class=\"small\"", row->kernel);
    write_bar(file, "rest", time_x, bar_y, width);
    snprintf(number, sizeof number, "%.1f us", row->us);
    write_text(file, time_x + width + 6, number_y, "", number);
    if (!has_ceiling)
        return;
    /* a ceiling that was measured longer than the kernel is noise; it must not leave the bar */
    write_bar(file, "ceiling", time_x, bar_y, width * fmin(share, 1.0));
    write_bar(file, "ceiling", share_x, bar_y, SHARE_WIDTH * fmin(share, 1.0));
    snprintf(number, sizeof number, "%.1f %%", 100.0 * share);
    write_text(file, share_x + SHARE_WIDTH * fmin(share, 1.0) + 6, number_y, "", number);
}

static void draw(const struct plot *plot, const char *title) {
    double label_width = LEAST_LABEL_WIDTH, longest_us = 0;
    bool has_ceiling = false;
    for (size_t index = 0; index < plot->num_rows; index++) {
        const struct plot_row *row = &plot->rows[index];
        label_width = fmax(label_width, LABEL_CHARACTER * (double)count_characters(row->label));
        label_width = fmax(label_width, KERNEL_CHARACTER * (double)count_characters(row->kernel));
        longest_us = fmax(longest_us, row->us);
        has_ceiling = has_ceiling || isfinite(row->ceiling_us);
    }
    const double time_x = MARGIN + label_width + MARGIN, share_x = time_x + TIME_WIDTH + NUMBER_WIDTH;
    const double rows_height = ROW_HEIGHT * (double)plot->num_rows;
    const double width = share_x + (has_ceiling ? SHARE_WIDTH + NUMBER_WIDTH : 0),
                 height = MARGIN + TITLE_HEIGHT + rows_height + AXIS_HEIGHT;
    FILE *file = plot->file;
    fprintf(file,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" viewBox=\"0 0 %.0f %.0f\" role=\"img\">\n",
            width, height, width, height);
    fputs("<title>", file);
    write_escaped(file, title);
    fputs(": time of a decode attention kernel, and its share of the read ceiling</title>\n", file);
    write_style(file);
    fprintf(file, "<rect class=\"back\" width=\"%.0f\" height=\"%.0f\"/>\n", width, height);
    write_text(file, MARGIN, MARGIN + 14, " class=\"title\"", title);
    write_text(file, time_x, MARGIN + 42, "", "time");
    if (has_ceiling) { /* the colour of the part that reading takes is explained beside */
        write_bar(file, "ceiling", time_x + 48, MARGIN + 30, BAR_HEIGHT);
        write_text(file, time_x + 48 + BAR_HEIGHT + 6, MARGIN + 42, "", "of it reading the bytes alone");
        write_text(file, share_x, MARGIN + 42, "", "share of the read ceiling");
    }
    write_ticks(file, time_x, TIME_WIDTH, longest_us, tick_distance(longest_us), rows_height, " us");
    if (has_ceiling)
        write_ticks(file, share_x, SHARE_WIDTH, 100, 25, rows_height, " %");
    for (size_t index = 0; index < plot->num_rows; index++)
        write_row(file, &plot->rows[index], MARGIN + TITLE_HEIGHT + ROW_HEIGHT * (double)index, time_x, share_x, longest_us);
    fputs("</svg>\n", file);
}

bool plot_close(struct plot *plot, const char *title) {
    if (plot->file == NULL)
        return true;
    bool good = plot->num_rows > 0 || complain("bench: --plot %s: nothing was measured, so the file is empty", plot->path);
    if (good)
        draw(plot, title);
    if (fclose(plot->file) != 0)
        good = complain("bench: --plot %s: the file could not be written to its end", plot->path);
    free(plot->rows);
    *plot = (struct plot){0};
    return good;
}
