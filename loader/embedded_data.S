/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bundle files in; libdecode_embedded_table and libdecode_embedded_count (embedded.c) out. The build defines EMBED_SM90,
 * EMBED_SM100, EMBED_SM120 for the bundles that it has made. For 64-bit ELF; nothing in it depends on the processor.
 */

    .macro embed_bundle file
    .section .rodata.libdecode_embedded, "a", %progbits
    .balign 64
8:
    .incbin "\file"
9:
    .section .data.rel.ro.libdecode_embedded, "aw", %progbits
    .quad 8b, 9b - 8b
    .endm

    .section .data.rel.ro.libdecode_embedded, "aw", %progbits
    .balign 8
    .globl libdecode_embedded_table
    .hidden libdecode_embedded_table
    .type libdecode_embedded_table, %object
libdecode_embedded_table:
#ifdef EMBED_SM90
    embed_bundle libdecode-sm90.bundle
#endif
#ifdef EMBED_SM100
    embed_bundle libdecode-sm100.bundle
#endif
#ifdef EMBED_SM120
    embed_bundle libdecode-sm120.bundle
#endif
    .size libdecode_embedded_table, . - libdecode_embedded_table

    .globl libdecode_embedded_count
    .hidden libdecode_embedded_count
    .type libdecode_embedded_count, %object
libdecode_embedded_count:
    .quad (. - libdecode_embedded_table) / 16
    .size libdecode_embedded_count, 8

    .section .note.GNU-stack, "", %progbits
