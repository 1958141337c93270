/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bytes of one image in, a checked cubin and what it records of its kernels out. Nothing of the image is believed before
 * it is checked: the driver crashes on damaged headers. Used by bundle.c before every load, and by gen/pack.c.
 *
 * The layout, as nvcc 13.0 writes it (found by experiment; the standard part is ELF64, little-endian):
 *
 *     fatbin_header          16 bytes
 *     fatbin_entry           64 bytes, then its options, up to header_bytes
 *     cubin                  payload_bytes: an ELF file with
 *         .text.K            the code of kernel K; K is a global function symbol with the entry bit in st_other
 *         .nv.info           attributes that name a function by its symbol: registers, stack
 *         .nv.info.K         attributes of kernel K: parameters, largest CTA
 *         .nv.shared.K       the size of K's static shared memory and of the system's 1 KiB before it
 *         .nv.global.init    initialised device objects: the launch contracts
 */
#define _POSIX_C_SOURCE 200809L /* strnlen under -std=c17 */

#include "image.h"

#include <elf.h>
#include <stdlib.h>
#include <string.h>

#include "bundle_format.h"
#include "status.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "images and bundles are little-endian and are read in place"
#endif

#define FATBIN_MAGIC 0xba55ed50u
#define FATBIN_VERSION 1u
#define FATBIN_KIND_CUBIN 2u
#define FATBIN_ENTRY_VERSION 0x0101u

struct fatbin_header {
    uint32_t magic;
    uint16_t version;
    uint16_t header_bytes;
    uint64_t payload_bytes; /* all entries */
};

struct fatbin_entry {
    uint16_t kind;
    uint16_t version;
    uint32_t header_bytes;
    uint64_t payload_bytes;
    uint32_t compressed_bytes; /* 0: not compressed */
    uint32_t options_offset;   /* from the start of the entry; 0: none */
    uint16_t minor_version, major_version;
    uint32_t sm;
    uint32_t name_offset, name_bytes;
    uint64_t flags;
    uint64_t reserved;
    uint64_t uncompressed_bytes; /* 0: not compressed */
};

_Static_assert(sizeof(struct fatbin_header) == 16, "fatbin_header has no padding");
_Static_assert(sizeof(struct fatbin_entry) == 64, "fatbin_entry has no padding");

/* What the toolkit writes into the ELF header since CUDA 13.0; before, the SM number lay elsewhere in e_flags. */
#define CUBIN_OS_ABI 0x41u
#define CUBIN_SM(e_flags) (((e_flags) >> 8) & 0xffu)
#define SECTION_TYPE_INFO 0x70000000u /* .nv.info and .nv.info.K */
#define SYMBOL_IS_ENTRY 0x10u         /* bit of st_other */

/* An attribute of .nv.info: one byte of format, one of what it says, then 16 bits of value or of size. */
#define INFO_HEADER_BYTES 4u
#define INFO_FORMAT_HAS_DATA 4u
#define INFO_MAX_THREADS 0x05u      /* 3 words: __launch_bounds__ */
#define INFO_REQUIRED_THREADS 0x10u /* 3 words: __block_size__ */
#define INFO_FRAME_BYTES 0x11u      /* function symbol, its own stack frame */
#define INFO_STACK_BYTES 0x12u      /* function symbol, stack of the whole call chain */
#define INFO_PARAMETER 0x17u        /* index, ordinal and offset, size in the upper 14 bits of the last word */
#define INFO_REGISTERS 0x2fu        /* function symbol, registers */

struct info_attribute {
    uint8_t format;
    uint8_t what;
    uint16_t bytes;
    const uint8_t *data;
};

#define DAMAGED(...) fail(LIBDECODE_ERROR_BUNDLE_DAMAGED, "image: " __VA_ARGS__)

static bool inside(uint64_t offset, uint64_t bytes, uint64_t limit) { return offset <= limit && bytes <= limit - offset; }

static bool is_power_of_two_or_zero(uint64_t value) { return (value & (value - 1)) == 0; }

/* ------------------------------------------------------------------------------ the pieces; all read within a checked ELF */

static Elf64_Ehdr elf_header(const struct image_elf *elf) {
    Elf64_Ehdr header;
    memcpy(&header, elf->bytes, sizeof(header));
    return header;
}

static Elf64_Shdr section_at(const struct image_elf *elf, size_t section) {
    Elf64_Shdr header;
    memcpy(&header, elf->bytes + elf_header(elf).e_shoff + section * sizeof(header), sizeof(header));
    return header;
}

static Elf64_Sym symbol_at(const struct image_elf *elf, const Elf64_Shdr *table, size_t symbol) {
    Elf64_Sym entry;
    memcpy(&entry, elf->bytes + table->sh_offset + symbol * sizeof(entry), sizeof(entry));
    return entry;
}

static size_t symbol_count(const Elf64_Shdr *table) { return (size_t)(table->sh_size / sizeof(Elf64_Sym)); }

static bool occupies_file(const Elf64_Shdr *section) { return section->sh_type != SHT_NULL && section->sh_type != SHT_NOBITS; }

static bool is_string_table(const struct image_elf *elf, size_t section) {
    Elf64_Shdr table = section_at(elf, section);
    return table.sh_type == SHT_STRTAB && table.sh_size > 0 && elf->bytes[table.sh_offset + table.sh_size - 1] == '\0';
}

/* NULL if the offset lies outside; a string table is known to end with NUL. */
static const char *string_at(const struct image_elf *elf, size_t table, uint32_t offset) {
    Elf64_Shdr strings = section_at(elf, table);
    return offset < strings.sh_size ? (const char *)elf->bytes + strings.sh_offset + offset : NULL;
}

static const char *section_name(const struct image_elf *elf, const Elf64_Shdr *section) {
    return string_at(elf, elf_header(elf).e_shstrndx, section->sh_name);
}

static bool find_section_by_type(const struct image_elf *elf, uint32_t type, Elf64_Shdr *ret_section) {
    size_t num_sections = elf_header(elf).e_shnum;
    for (size_t section = 1; section < num_sections; section++) {
        Elf64_Shdr candidate = section_at(elf, section);
        if (candidate.sh_type == type) {
            *ret_section = candidate;
            return true;
        }
    }
    return false;
}

/* Takes the attribute at *offset of an info section and moves on. False if it does not fit: the section is malformed. */
static bool next_attribute(const struct image_elf *elf, const Elf64_Shdr *section, uint64_t *offset,
                           struct info_attribute *ret_attribute) {
    if (!inside(*offset, INFO_HEADER_BYTES, section->sh_size))
        return false;
    const uint8_t *bytes = elf->bytes + section->sh_offset + *offset;
    struct info_attribute attribute = {.format = bytes[0], .what = bytes[1], .data = bytes + INFO_HEADER_BYTES};
    if (attribute.format == 0 || attribute.format > INFO_FORMAT_HAS_DATA)
        return false;
    if (attribute.format == INFO_FORMAT_HAS_DATA)
        memcpy(&attribute.bytes, bytes + 2, sizeof(attribute.bytes));
    if (!inside(*offset + INFO_HEADER_BYTES, attribute.bytes, section->sh_size))
        return false;
    *offset += INFO_HEADER_BYTES + (uint64_t)attribute.bytes;
    *ret_attribute = attribute;
    return true;
}

/* Word `index` of the attribute's data; 0 if it has none. */
static uint32_t attribute_word(const struct info_attribute *attribute, size_t index) {
    uint32_t word = 0;
    if (inside(index * sizeof(word), sizeof(word), attribute->bytes))
        memcpy(&word, attribute->data + index * sizeof(word), sizeof(word));
    return word;
}

/* ------------------------------------------------------------------------------------------------------------ the audit */

/* The wrapper: exactly one uncompressed cubin that fills it to the last byte. */
static libdecode_status audit_fatbin(const uint8_t *image, size_t image_bytes, struct image_elf *ret_elf) {
    struct fatbin_header header;
    struct fatbin_entry entry;

    if (image_bytes < sizeof(header) + sizeof(entry))
        return DAMAGED("%zu bytes are too few for a fatbin", image_bytes);
    memcpy(&header, image, sizeof(header));
    memcpy(&entry, image + sizeof(header), sizeof(entry));
    if (header.magic != FATBIN_MAGIC || header.version != FATBIN_VERSION || header.header_bytes != sizeof(header))
        return DAMAGED("no fatbin header at offset 0: magic 0x%08x, version %u", header.magic, header.version);
    if (header.payload_bytes != image_bytes - sizeof(header))
        return DAMAGED("the fatbin header announces %llu bytes after it, %zu are there", (unsigned long long)header.payload_bytes,
                       image_bytes - sizeof(header));
    if (entry.kind != FATBIN_KIND_CUBIN || entry.version != FATBIN_ENTRY_VERSION)
        return DAMAGED("the fatbin entry at offset 16 is not a cubin: kind %u, version 0x%04x", entry.kind, entry.version);
    if (entry.compressed_bytes != 0 || entry.uncompressed_bytes != 0)
        return DAMAGED("the cubin is compressed; images are made with --compress-mode=none");
    if (entry.header_bytes < sizeof(entry) || entry.header_bytes % 8 != 0 || entry.header_bytes > header.payload_bytes ||
        entry.payload_bytes != header.payload_bytes - entry.header_bytes)
        return DAMAGED("the fatbin entry at offset 16 (%u + %llu bytes) does not fill the %llu bytes: not exactly one cubin",
                       entry.header_bytes, (unsigned long long)entry.payload_bytes, (unsigned long long)header.payload_bytes);
    if (entry.options_offset != 0) {
        uint32_t options[2]; /* offset from the start of the entry, bytes */
        if (!inside(entry.options_offset, sizeof(options), entry.header_bytes))
            return DAMAGED("the fatbin entry's options lie outside it, at %u", entry.options_offset);
        memcpy(options, image + sizeof(header) + entry.options_offset, sizeof(options));
        if (!inside(options[0], options[1], entry.header_bytes))
            return DAMAGED("the fatbin entry's options (%u bytes at %u) lie outside it", options[1], options[0]);
    }
    if (!inside(entry.name_offset, entry.name_bytes, entry.header_bytes))
        return DAMAGED("the fatbin entry's name lies outside it, at %u", entry.name_offset);
    *ret_elf = (struct image_elf){
        .bytes = image + sizeof(header) + entry.header_bytes,
        .size = (size_t)entry.payload_bytes,
        .sm = entry.sm,
    };
    return LIBDECODE_OK;
}

static libdecode_status audit_elf_header(const struct image_elf *elf) {
    if (elf->size < sizeof(Elf64_Ehdr))
        return DAMAGED("%zu bytes are too few for a cubin", elf->size);
    Elf64_Ehdr header = elf_header(elf);
    if (memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_ident[EI_CLASS] != ELFCLASS64 ||
        header.e_ident[EI_DATA] != ELFDATA2LSB || header.e_ident[EI_VERSION] != EV_CURRENT || header.e_version != EV_CURRENT)
        return DAMAGED("the fatbin holds no 64-bit little-endian ELF file");
    if (header.e_machine != EM_CUDA || header.e_type != ET_EXEC || header.e_ident[EI_OSABI] != CUBIN_OS_ABI)
        return DAMAGED("the ELF file is not a cubin of CUDA 13.0 or newer: machine %u, type %u, OS ABI 0x%02x", header.e_machine,
                       header.e_type, header.e_ident[EI_OSABI]);
    if (CUBIN_SM(header.e_flags) != elf->sm)
        return DAMAGED("the fatbin says sm_%u, the cubin's flags 0x%08x say sm_%u", elf->sm, header.e_flags,
                       CUBIN_SM(header.e_flags));
    if (header.e_ehsize != sizeof(Elf64_Ehdr) || header.e_shentsize != sizeof(Elf64_Shdr) ||
        header.e_phentsize != sizeof(Elf64_Phdr))
        return DAMAGED("the cubin's header sizes are %u, %u, %u", header.e_ehsize, header.e_shentsize, header.e_phentsize);
    if (header.e_shoff % 8 != 0 || !inside(header.e_shoff, (uint64_t)header.e_shnum * sizeof(Elf64_Shdr), elf->size))
        return DAMAGED("%u section headers at %llu exceed the cubin of %zu bytes", header.e_shnum,
                       (unsigned long long)header.e_shoff, elf->size);
    if (header.e_phoff % 8 != 0 || !inside(header.e_phoff, (uint64_t)header.e_phnum * sizeof(Elf64_Phdr), elf->size))
        return DAMAGED("%u program headers at %llu exceed the cubin of %zu bytes", header.e_phnum,
                       (unsigned long long)header.e_phoff, elf->size);
    if (header.e_shstrndx == 0 || header.e_shstrndx >= header.e_shnum)
        return DAMAGED("the section names are said to be in section %u of %u", header.e_shstrndx, header.e_shnum);
    return LIBDECODE_OK;
}

static libdecode_status audit_segments(const struct image_elf *elf) {
    Elf64_Ehdr header = elf_header(elf);
    for (size_t segment = 0; segment < header.e_phnum; segment++) {
        Elf64_Phdr program;
        memcpy(&program, elf->bytes + header.e_phoff + segment * sizeof(program), sizeof(program));
        if (!inside(program.p_offset, program.p_filesz, elf->size) || !is_power_of_two_or_zero(program.p_align))
            return DAMAGED("segment %zu (%llu bytes at %llu) exceeds the cubin of %zu bytes", segment,
                           (unsigned long long)program.p_filesz, (unsigned long long)program.p_offset, elf->size);
    }
    return LIBDECODE_OK;
}

/* Every section inside the file, well named, and linked to sections that exist. Together they are no larger than the file: whoever
 * walks each of them has walked the file once, however many there are. */
static libdecode_status audit_sections(const struct image_elf *elf) {
    Elf64_Ehdr header = elf_header(elf);
    size_t num_symbol_tables = 0;
    uint64_t all_bytes = 0;

    for (size_t index = 0; index < header.e_shnum; index++) {
        Elf64_Shdr section = section_at(elf, index);
        if (occupies_file(&section) && !inside(section.sh_offset, section.sh_size, elf->size))
            return DAMAGED("section %zu (%llu bytes at %llu) exceeds the cubin of %zu bytes", index,
                           (unsigned long long)section.sh_size, (unsigned long long)section.sh_offset, elf->size);
        if (section.sh_link >= header.e_shnum || !is_power_of_two_or_zero(section.sh_addralign))
            return DAMAGED("section %zu has link %u of %u, alignment %llu", index, section.sh_link, header.e_shnum,
                           (unsigned long long)section.sh_addralign);
        num_symbol_tables += section.sh_type == SHT_SYMTAB;
        all_bytes += occupies_file(&section) ? section.sh_size : 0; /* each below 2^63, and there are 2^16 */
        if (all_bytes > elf->size)
            return DAMAGED("sections 0 to %zu have %llu bytes in a cubin of %zu: they overlap", index,
                           (unsigned long long)all_bytes, elf->size);
    }
    if (!is_string_table(elf, header.e_shstrndx))
        return DAMAGED("section %u holds no section names", header.e_shstrndx);
    for (size_t index = 0; index < header.e_shnum; index++) {
        Elf64_Shdr section = section_at(elf, index);
        if (section_name(elf, &section) == NULL)
            return DAMAGED("section %zu has its name at %u, outside the names", index, section.sh_name);
    }
    if (num_symbol_tables != 1)
        return DAMAGED("%zu symbol tables, one is expected", num_symbol_tables);
    return LIBDECODE_OK;
}

static libdecode_status audit_symbols(const struct image_elf *elf) {
    Elf64_Shdr table;
    size_t num_sections = elf_header(elf).e_shnum;

    if (!find_section_by_type(elf, SHT_SYMTAB, &table) || table.sh_entsize != sizeof(Elf64_Sym) ||
        table.sh_size % sizeof(Elf64_Sym) != 0)
        return DAMAGED("the symbol table is malformed");
    if (!is_string_table(elf, table.sh_link))
        return DAMAGED("section %u holds no symbol names", table.sh_link);
    for (size_t index = 0; index < symbol_count(&table); index++) {
        Elf64_Sym symbol = symbol_at(elf, &table, index);
        unsigned type = ELF64_ST_TYPE(symbol.st_info);
        if (string_at(elf, table.sh_link, symbol.st_name) == NULL)
            return DAMAGED("symbol %zu has its name at %u, outside the names", index, symbol.st_name);
        if (symbol.st_shndx >= num_sections && symbol.st_shndx < SHN_LORESERVE)
            return DAMAGED("symbol %zu is in section %u of %zu", index, symbol.st_shndx, num_sections);
        if ((type == STT_FUNC || type == STT_OBJECT) && symbol.st_shndx != SHN_UNDEF && symbol.st_shndx < SHN_LORESERVE &&
            !inside(symbol.st_value, symbol.st_size, section_at(elf, symbol.st_shndx).sh_size))
            return DAMAGED("symbol %zu (%llu bytes at %llu) exceeds section %u", index, (unsigned long long)symbol.st_size,
                           (unsigned long long)symbol.st_value, symbol.st_shndx);
    }
    return LIBDECODE_OK;
}

/* One table of relocations: each names a symbol that exists and a place inside the section that it changes. */
static libdecode_status audit_relocations(const struct image_elf *elf, size_t index, const Elf64_Shdr *relocations,
                                          size_t num_symbols) {
    size_t entry_bytes = relocations->sh_type == SHT_RELA ? sizeof(Elf64_Rela) : sizeof(Elf64_Rel);

    if (relocations->sh_entsize != entry_bytes || relocations->sh_size % entry_bytes != 0 ||
        relocations->sh_info >= elf_header(elf).e_shnum || section_at(elf, relocations->sh_link).sh_type != SHT_SYMTAB)
        return DAMAGED("the relocations in section %zu are malformed", index);
    uint64_t target_bytes = section_at(elf, relocations->sh_info).sh_size;
    for (uint64_t offset = 0; offset < relocations->sh_size; offset += entry_bytes) {
        Elf64_Rel relocation; /* the common part of the two forms */
        memcpy(&relocation, elf->bytes + relocations->sh_offset + offset, sizeof(relocation));
        if (ELF64_R_SYM(relocation.r_info) >= num_symbols || relocation.r_offset >= target_bytes)
            return DAMAGED("relocation at %llu of section %zu is outside: symbol %llu of %zu, place %llu of %llu",
                           (unsigned long long)offset, index, (unsigned long long)ELF64_R_SYM(relocation.r_info), num_symbols,
                           (unsigned long long)relocation.r_offset, (unsigned long long)target_bytes);
    }
    return LIBDECODE_OK;
}

/* The sections with an inner structure: relocations and attributes. */
static libdecode_status audit_contents(const struct image_elf *elf) {
    size_t num_sections = elf_header(elf).e_shnum;
    Elf64_Shdr symbols = {0};

    (void)find_section_by_type(elf, SHT_SYMTAB, &symbols); /* audit_sections has seen it */
    for (size_t index = 0; index < num_sections; index++) {
        Elf64_Shdr section = section_at(elf, index);
        if (section.sh_type == SHT_RELA || section.sh_type == SHT_REL)
            FORWARD(audit_relocations(elf, index, &section, symbol_count(&symbols)));
        if (section.sh_type != SECTION_TYPE_INFO)
            continue;
        struct info_attribute attribute;
        for (uint64_t offset = 0; offset < section.sh_size;) {
            if (!next_attribute(elf, &section, &offset, &attribute))
                return DAMAGED("the attributes in section %zu are malformed at %llu", index, (unsigned long long)offset);
        }
    }
    return LIBDECODE_OK;
}

libdecode_status image_audit(const void *image, size_t image_bytes, struct image_elf *ret_elf) {
    struct image_elf elf = {0};

    FORWARD(audit_fatbin(image, image_bytes, &elf));
    FORWARD(audit_elf_header(&elf));
    FORWARD(audit_segments(&elf));
    FORWARD(audit_sections(&elf));
    FORWARD(audit_symbols(&elf));
    FORWARD(audit_contents(&elf));
    *ret_elf = elf;
    return LIBDECODE_OK;
}

/* ------------------------------------------------------------------------------------------- what the cubin says of itself */

static bool is_defined(const Elf64_Sym *symbol, unsigned type) {
    return ELF64_ST_TYPE(symbol->st_info) == type && symbol->st_shndx != SHN_UNDEF && symbol->st_shndx < SHN_LORESERVE;
}

static bool is_kernel(const Elf64_Sym *symbol) {
    return is_defined(symbol, STT_FUNC) && (symbol->st_other & SYMBOL_IS_ENTRY) != 0;
}

size_t image_kernel_count(const struct image_elf *elf) {
    Elf64_Shdr table;
    size_t count = 0;

    if (!find_section_by_type(elf, SHT_SYMTAB, &table))
        return 0;
    for (size_t index = 1; index < symbol_count(&table); index++) {
        Elf64_Sym symbol = symbol_at(elf, &table, index);
        count += is_kernel(&symbol);
    }
    return count;
}

/* The kernels in the order of their symbols, with names of a fair length. */
static libdecode_status list_kernels(const struct image_elf *elf, const Elf64_Shdr *table, struct image_kernels *list) {
    for (size_t index = 1; index < symbol_count(table); index++) {
        Elf64_Sym symbol = symbol_at(elf, table, index);
        if (!is_kernel(&symbol))
            continue;
        const char *name = string_at(elf, table->sh_link, symbol.st_name);
        if (strnlen(name, BUNDLE_MAX_NAME_BYTES) == BUNDLE_MAX_NAME_BYTES)
            return DAMAGED("kernel '%.40s...' has a name of more than %u characters", name, BUNDLE_MAX_NAME_BYTES - 1);
        list->kernels[list->count++] = (struct image_kernel){.name = name, .symbol = (uint32_t)index};
    }
    return LIBDECODE_OK;
}

/* While the list is in the order of the symbols. */
static struct image_kernel *kernel_of_symbol(const struct image_kernels *list, uint32_t symbol) {
    size_t first = 0, last = list->count;
    while (first < last) {
        size_t middle = first + (last - first) / 2;
        if (list->kernels[middle].symbol == symbol)
            return &list->kernels[middle];
        if (list->kernels[middle].symbol < symbol)
            first = middle + 1;
        else
            last = middle;
    }
    return NULL;
}

static int compare_names(const void *left, const void *right) {
    return strcmp(((const struct image_kernel *)left)->name, ((const struct image_kernel *)right)->name);
}

/* Once it is in the order of the names; the name is the first `bytes` of `text`. */
static struct image_kernel *kernel_of_name(const struct image_kernels *list, const char *text, size_t bytes) {
    size_t first = 0, last = list->count;
    while (first < last) {
        size_t middle = first + (last - first) / 2;
        int order = strncmp(list->kernels[middle].name, text, bytes);
        if (order == 0 && list->kernels[middle].name[bytes] == '\0')
            return &list->kernels[middle];
        if (order < 0)
            first = middle + 1;
        else
            last = middle;
    }
    return NULL;
}

/* .nv.info: what is recorded under the kernels' symbols. */
static void read_symbol_attributes(const struct image_elf *elf, const Elf64_Shdr *section, struct image_kernels *list) {
    struct info_attribute attribute;

    for (uint64_t offset = 0; offset < section->sh_size && next_attribute(elf, section, &offset, &attribute);) {
        if (attribute.format != INFO_FORMAT_HAS_DATA ||
            (attribute.what != INFO_REGISTERS && attribute.what != INFO_FRAME_BYTES && attribute.what != INFO_STACK_BYTES))
            continue;
        struct image_kernel *kernel = kernel_of_symbol(list, attribute_word(&attribute, 0));
        uint32_t value = attribute_word(&attribute, 1);
        if (kernel == NULL)
            continue;
        if (attribute.what == INFO_REGISTERS)
            kernel->registers = value;
        else if (value > kernel->local_bytes)
            kernel->local_bytes = value;
    }
}

/* .nv.info.K: parameters and launch bounds. */
static void read_kernel_attributes(const struct image_elf *elf, const Elf64_Shdr *section, struct image_kernel *kernel) {
    struct info_attribute attribute;
    uint32_t parameters_begin = UINT32_MAX, parameters_end = 0;

    for (uint64_t offset = 0; offset < section->sh_size && next_attribute(elf, section, &offset, &attribute);) {
        if (attribute.what == INFO_PARAMETER && attribute.bytes == 12) {
            uint32_t begin = attribute_word(&attribute, 1) >> 16, end = begin + (attribute_word(&attribute, 2) >> 18);
            parameters_begin = begin < parameters_begin ? begin : parameters_begin;
            parameters_end = end > parameters_end ? end : parameters_end;
        }
        if ((attribute.what == INFO_MAX_THREADS || attribute.what == INFO_REQUIRED_THREADS) && attribute.bytes == 12) {
            uint64_t threads = (uint64_t)attribute_word(&attribute, 0) * attribute_word(&attribute, 1);
            /* No GPU has a CTA of more than 1024 threads: whatever is larger is damage, and must not wrap around. */
            threads = threads > UINT16_MAX ? UINT16_MAX : threads * attribute_word(&attribute, 2);
            kernel->max_threads = threads > UINT16_MAX ? UINT16_MAX : (uint32_t)threads;
        }
    }
    /* The block need not begin at 0: where it wants 64-byte alignment, the compiler may pad in front of it. */
    kernel->parameter_bytes = parameters_end > parameters_begin ? parameters_end - parameters_begin : 0;
}

/* From the size of .nv.shared.K, which counts the system's part too. */
static uint32_t static_shared_bytes(uint64_t section_bytes) {
    if (section_bytes <= IMAGE_SYSTEM_SHARED_BYTES)
        return 0;
    return section_bytes > UINT32_MAX ? UINT32_MAX : (uint32_t)section_bytes - IMAGE_SYSTEM_SHARED_BYTES;
}

/* The kernel whose own section of this kind `name` is; NULL: none. A name that is longer than any kernel's is read no further. */
static struct image_kernel *owner(const struct image_kernels *list, const char *name, const char *prefix) {
    size_t prefix_bytes = strlen(prefix);
    if (strncmp(name, prefix, prefix_bytes) != 0)
        return NULL;
    return kernel_of_name(list, name + prefix_bytes, strnlen(name + prefix_bytes, BUNDLE_MAX_NAME_BYTES));
}

/* The type of a section matters: what is SHT_NOBITS need not lie in the file. Of two with one name the first counts. */
static void read_kernel_sections(const struct image_elf *elf, struct image_kernels *list) {
    size_t num_sections = elf_header(elf).e_shnum;

    for (size_t index = 1; index < num_sections; index++) {
        Elf64_Shdr section = section_at(elf, index);
        const char *name = section_name(elf, &section);
        struct image_kernel *kernel;
        if (section.sh_type == SECTION_TYPE_INFO && (kernel = owner(list, name, ".nv.info.")) != NULL && !kernel->has_info) {
            read_kernel_attributes(elf, &section, kernel);
            kernel->has_info = true;
        }
        if (section.sh_type == SHT_NOBITS && (kernel = owner(list, name, ".nv.shared.")) != NULL && !kernel->has_shared) {
            kernel->static_shared_bytes = static_shared_bytes(section.sh_size);
            kernel->has_shared = true;
        }
    }
}

/* The initialised object K_contract of kernel K; of two with one name the first counts. */
static libdecode_status find_contracts(const struct image_elf *elf, const Elf64_Shdr *table, struct image_kernels *list) {
    const size_t suffix_bytes = strlen(LIBDECODE_CONTRACT_SUFFIX), max_bytes = BUNDLE_MAX_NAME_BYTES + suffix_bytes;

    for (size_t index = 1; index < symbol_count(table); index++) {
        Elf64_Sym symbol = symbol_at(elf, table, index);
        if (!is_defined(&symbol, STT_OBJECT))
            continue;
        const char *name = string_at(elf, table->sh_link, symbol.st_name);
        size_t bytes = strnlen(name, max_bytes);
        if (bytes == max_bytes || bytes < suffix_bytes || strcmp(name + bytes - suffix_bytes, LIBDECODE_CONTRACT_SUFFIX) != 0)
            continue;
        struct image_kernel *kernel = kernel_of_name(list, name, bytes - suffix_bytes);
        if (kernel == NULL || kernel->contract != NULL)
            continue;
        Elf64_Shdr section = section_at(elf, symbol.st_shndx);
        if (section.sh_type != SHT_PROGBITS)
            return DAMAGED("object '%s' has no initial value", name);
        kernel->contract = elf->bytes + section.sh_offset + symbol.st_value;
        kernel->contract_bytes = (size_t)symbol.st_size;
    }
    return LIBDECODE_OK;
}

static bool find_info(const struct image_elf *elf, Elf64_Shdr *ret_section) {
    size_t num_sections = elf_header(elf).e_shnum;
    for (size_t index = 1; index < num_sections; index++) {
        *ret_section = section_at(elf, index);
        if (ret_section->sh_type == SECTION_TYPE_INFO && strcmp(section_name(elf, ret_section), ".nv.info") == 0)
            return true;
    }
    return false;
}

static libdecode_status read_kernels(const struct image_elf *elf, struct image_kernels *list) {
    Elf64_Shdr symbols = {0}, info;

    (void)find_section_by_type(elf, SHT_SYMTAB, &symbols); /* the audit has seen it */
    FORWARD(list_kernels(elf, &symbols, list));
    if (!find_info(elf, &info))
        return DAMAGED("the cubin has no section .nv.info");
    read_symbol_attributes(elf, &info, list);
    qsort(list->kernels, list->count, sizeof(list->kernels[0]), compare_names);
    read_kernel_sections(elf, list);
    FORWARD(find_contracts(elf, &symbols, list));
    for (size_t index = 0; index < list->count; index++) {
        const struct image_kernel *kernel = &list->kernels[index];
        if (kernel->contract == NULL)
            return DAMAGED("the cubin holds no object '%s" LIBDECODE_CONTRACT_SUFFIX "'", kernel->name);
        if (!kernel->has_info)
            return DAMAGED("kernel '%s' has no section .nv.info.%s", kernel->name, kernel->name);
        if (kernel->registers == 0)
            return DAMAGED("the cubin does not record the registers of kernel '%s'", kernel->name);
    }
    return LIBDECODE_OK;
}

libdecode_status image_kernels_read(const struct image_elf *elf, struct image_kernels *ret_kernels) {
    size_t count = image_kernel_count(elf);
    if (count == 0 || count > BUNDLE_MAX_KERNELS)
        return DAMAGED("the cubin holds %zu kernels, accepted is 1 to %u", count, BUNDLE_MAX_KERNELS);
    struct image_kernels list = {.kernels = calloc(count, sizeof(list.kernels[0]))};
    if (list.kernels == NULL)
        return fail(LIBDECODE_ERROR_OUT_OF_MEMORY, "no memory for a list of the %zu kernels of an image; free memory", count);
    libdecode_status status = read_kernels(elf, &list);
    if (status == LIBDECODE_OK)
        *ret_kernels = list;
    else
        free(list.kernels);
    return status;
}

const struct image_kernel *image_kernels_find(const struct image_kernels *kernels, const char *name) {
    return kernel_of_name(kernels, name, strlen(name));
}

void image_kernels_free(struct image_kernels *kernels) {
    free(kernels->kernels);
    *kernels = (struct image_kernels){NULL, 0};
}
