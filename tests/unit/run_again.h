/* SPDX-License-Identifier: Apache-2.0 */
/* run_again.h: a test program that runs itself, as another process with another place to look for the driver. */
#pragma once

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/*
 * What it prints; pclose answers how it ended. `library_path`: the folder to look into first, "" for none. Meson names in the environment
 * what a program of another processor is run by, which the kernel need not know.
 */
static inline FILE *run_again(const char *library_path, const char *argument) {
    const char *wrapper = getenv("MESON_EXE_WRAPPER");
    char program[4096], command[10000];
    ssize_t bytes = readlink("/proc/self/exe", program, sizeof program - 1);
    if (bytes <= 0)
        return NULL;
    program[bytes] = '\0';
    (void)snprintf(command, sizeof command, "LD_LIBRARY_PATH='%s' %s '%s' %s", library_path, wrapper != NULL ? wrapper : "",
                   program, argument);
    return popen(command, "r");
}
