/* SPDX-License-Identifier: Apache-2.0 */
/* write_manual.c: "man", "man bench", "bash" or "zsh" in; that page or that completion on standard output out. Does: man_page.c,
 * completion.c. */
#include <stdio.h>
#include <string.h>

#include "manual.h"

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";
    if (argc == 2 && strcmp(what, "bash") == 0)
        write_bash_completion();
    else if (argc == 2 && strcmp(what, "zsh") == 0)
        write_zsh_completion();
    else if (argc == 2 && strcmp(what, "man") == 0)
        write_overview_page();
    else if (argc == 3 && strcmp(what, "man") == 0) {
        size_t index = 0;
        while (index < num_commands && strcmp(commands[index]->name, argv[2]) != 0)
            index++;
        if (index == num_commands) {
            fprintf(stderr, "write_manual: there is no command '%s'\n", argv[2]);
            return EXIT_USAGE;
        }
        write_command_page(commands[index]);
    } else {
        fprintf(stderr, "usage: write_manual man [COMMAND] | bash | zsh\n");
        return EXIT_USAGE;
    }
    return fflush(stdout) == 0 ? EXIT_PASSED : EXIT_FAILED;
}
