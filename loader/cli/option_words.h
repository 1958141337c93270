/* SPDX-License-Identifier: Apache-2.0 */
/*
 * option_words.c: a message of the library in, which speaks of fields of structs; the same in the words of the command line out.
 * Used wherever a message may be about what an option has set.
 */
#ifndef LIBDECODE_CLI_OPTION_WORDS_H
#define LIBDECODE_CLI_OPTION_WORDS_H

/* "problem.page_size is 1025: accepted are ..." becomes "--page is 1025: accepted are ...". Valid until the next call. */
const char *in_option_words(const char *message);

#endif
