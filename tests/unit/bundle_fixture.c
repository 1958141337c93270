/* SPDX-License-Identifier: Apache-2.0 */
/* bundle_fixture.c: a list of kernels in, the bytes of a bundle out. Next: the tests of bundle.c, module.c and decode.c. */
#include "bundle_fixture.h"

#include <elf.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zdict.h>
#include <zstd.h>

#include "sha256.h"

#define FRAME_ALIGNMENT 8u
#define ZSTD_LEVEL 3

#define NUM_COMMON_SECTIONS 6u /* of struct cubin */
#define SECTIONS_PER_KERNEL 2u /* .text.K, .nv.info.K */
#define SYMBOLS_PER_KERNEL 2u  /* the kernel, its contract */
#define SECTION_TYPE_INFO 0x70000000u
#define CUBIN_OS_ABI 0x41u
#define SYMBOL_IS_ENTRY 0x10u
#define CODE_BYTES 16u

static void *checked(void *memory) {
    if (!memory) {
        (void)fprintf(stderr, "bundle_fixture: out of memory\n");
        abort();
    }
    return memory;
}

/* -------------------------------------------------------------------------------------------------- a growing buffer */

struct buffer {
    uint8_t *bytes;
    size_t size, capacity;
};

/* Returns the offset of the appended bytes; `data` NULL appends zeros. */
static size_t append(struct buffer *buffer, const void *data, size_t bytes) {
    if (buffer->size + bytes > buffer->capacity) {
        buffer->capacity = 2 * (buffer->size + bytes);
        buffer->bytes = checked(realloc(buffer->bytes, buffer->capacity));
    }
    if (data && bytes)
        memcpy(buffer->bytes + buffer->size, data, bytes);
    else if (bytes)
        memset(buffer->bytes + buffer->size, 0, bytes);
    buffer->size += bytes;
    return buffer->size - bytes;
}

static void append_padding(struct buffer *buffer) {
    (void)append(buffer, NULL, (FRAME_ALIGNMENT - buffer->size % FRAME_ALIGNMENT) % FRAME_ALIGNMENT);
}

static uint32_t append_string(struct buffer *buffer, const char *prefix, const char *text) {
    size_t offset = append(buffer, prefix, strlen(prefix));
    (void)append(buffer, text, strlen(text) + 1);
    return (uint32_t)offset;
}

/* ------------------------------------------------------------------------------------------------------------ images */

struct libdecode_launch_contract fixture_contract(void) {
    return (struct libdecode_launch_contract){
        .magic = LIBDECODE_CONTRACT_MAGIC,
        .abi = LIBDECODE_KERNEL_ABI,
        .family = KERNEL_FAMILY_GQA_DECODE,
        .parameter_bytes = sizeof(struct gqa_decode_params),
        .threads = 160,
        .dynamic_shared_bytes = 100u * 1024u,
        .ctas_per_sm = 2,
        .cluster_size = 1,
        .query_dtypes = 1u << KERNEL_DTYPE_BF16,
        .kv_dtype = KERNEL_DTYPE_BF16,
        .out_dtypes = 1u << KERNEL_DTYPE_BF16,
        .head_dim = 128,
        .row_tile = 8,
        .tile_tokens = 64,
        .max_box_tokens = 64,
        .stages = 3,
        .min_page_size = 16,
        .max_page_size = 1024,
        .max_q_len = 1,
        .record_bytes = 4192,
        .consumer_warps = 4,
    };
}

const uint32_t fixture_decode_features =
    CONTRACT_FEATURE_WINDOW | CONTRACT_FEATURE_SINKS | CONTRACT_LSE | CONTRACT_FEATURE_RAGGED_Q | CONTRACT_FEATURE_DRAFT_MASK |
    CONTRACT_FEATURE_V_PAGE_TABLE | CONTRACT_FEATURE_QUERY_POSITIONS | CONTRACT_FEATURE_SKIP_SOFTMAX | CONTRACT_FEATURE_SOFT_CAP |
    CONTRACT_FEATURE_ALIBI | CONTRACT_FEATURE_LSE_ALIBI_FROM_ZERO | CONTRACT_FEATURE_ROPE;

enum { CONVERTED_QUERIES = 1u << KERNEL_DTYPE_BF16 | 1u << KERNEL_DTYPE_FP16 | 1u << KERNEL_DTYPE_E4M3 };

const struct fixture_kv_dtype fixture_kv_dtypes[FIXTURE_KV_DTYPES] = {
    {"bf16", KERNEL_DTYPE_BF16, 1u << KERNEL_DTYPE_BF16}, {"fp16", KERNEL_DTYPE_FP16, 1u << KERNEL_DTYPE_FP16},
    {"e4m3", KERNEL_DTYPE_E4M3, CONVERTED_QUERIES},       {"nvfp4", KERNEL_DTYPE_NVFP4, CONVERTED_QUERIES},
    {"e5m2", KERNEL_DTYPE_E5M2, CONVERTED_QUERIES},
};

static struct libdecode_launch_contract contract_of(const struct fixture_kernel *kernel) {
    return kernel->contract.magic ? kernel->contract : fixture_contract();
}

/* .nv.info: registers of every kernel, named by its symbol. Symbols are: null, then kernel and contract of each kernel. */
static void append_register_info(struct buffer *elf, size_t num_kernels) {
    for (size_t kernel = 0; kernel < num_kernels; kernel++) {
        const uint8_t head[4] = {4, 0x2f, 8, 0};
        const uint32_t words[2] = {(uint32_t)(1 + SYMBOLS_PER_KERNEL * kernel), FIXTURE_REGISTERS};
        (void)append(elf, head, sizeof head);
        (void)append(elf, words, sizeof words);
    }
}

/* .nv.info.K: one parameter, and the largest CTA. */
static void append_kernel_info(struct buffer *elf, const struct libdecode_launch_contract *contract) {
    const uint8_t parameter_head[4] = {4, 0x17, 12, 0}, threads_head[4] = {4, 0x05, 12, 0};
    const uint32_t parameter[3] = {0, 0, contract->parameter_bytes << 18}, threads[3] = {contract->threads, 1, 1};
    (void)append(elf, parameter_head, sizeof parameter_head);
    (void)append(elf, parameter, sizeof parameter);
    (void)append(elf, threads_head, sizeof threads_head);
    (void)append(elf, threads, sizeof threads);
}

/* A cubin in the making. Sections: null, section names, symbol names, symbols, .nv.info, .nv.global.init, then two per kernel. */
struct cubin {
    struct buffer elf, section_names, symbol_names;
    Elf64_Shdr *sections;
    Elf64_Sym *symbols;
    size_t num_sections, num_symbols;
};
enum { SECTION_NAMES = 1, SYMBOL_NAMES = 2, SYMBOLS = 3, INFO = 4, CONTRACTS = 5 };

/* Writes a section's header: its bytes are those from `offset` to the present end of the file. */
static void close_section(struct cubin *cubin, size_t index, uint32_t type, const char *prefix, const char *name, size_t offset) {
    cubin->sections[index] = (Elf64_Shdr){.sh_name = append_string(&cubin->section_names, prefix, name),
                                          .sh_type = type,
                                          .sh_offset = offset,
                                          .sh_size = cubin->elf.size - offset,
                                          .sh_addralign = FRAME_ALIGNMENT};
    append_padding(&cubin->elf);
}

static void add_contracts(struct cubin *cubin, const struct fixture_kernel *kernels, size_t num_kernels) {
    size_t begin = cubin->elf.size;
    for (size_t kernel = 0; kernel < num_kernels; kernel++) {
        struct libdecode_launch_contract contract = contract_of(&kernels[kernel]);
        size_t offset = append(&cubin->elf, &contract, sizeof contract);
        cubin->symbols[1 + SYMBOLS_PER_KERNEL * kernel + 1] =
            (Elf64_Sym){.st_name = append_string(&cubin->symbol_names, kernels[kernel].name, LIBDECODE_CONTRACT_SUFFIX),
                        .st_info = ELF64_ST_INFO(STB_GLOBAL, STT_OBJECT),
                        .st_shndx = CONTRACTS,
                        .st_value = offset - begin,
                        .st_size = sizeof contract};
    }
    close_section(cubin, CONTRACTS, SHT_PROGBITS, ".nv.global.init", "", begin);
}

static void add_kernels(struct cubin *cubin, const struct fixture_kernel *kernels, size_t num_kernels) {
    for (size_t kernel = 0; kernel < num_kernels; kernel++) {
        struct libdecode_launch_contract contract = contract_of(&kernels[kernel]);
        size_t section = NUM_COMMON_SECTIONS + SECTIONS_PER_KERNEL * kernel;
        cubin->symbols[1 + SYMBOLS_PER_KERNEL * kernel] =
            (Elf64_Sym){.st_name = append_string(&cubin->symbol_names, "", kernels[kernel].name),
                        .st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC),
                        .st_other = SYMBOL_IS_ENTRY,
                        .st_shndx = (uint16_t)section,
                        .st_size = CODE_BYTES};
        size_t offset = append(&cubin->elf, NULL, CODE_BYTES);
        close_section(cubin, section, SHT_PROGBITS, ".text.", kernels[kernel].name, offset);
        offset = cubin->elf.size;
        append_kernel_info(&cubin->elf, &contract);
        close_section(cubin, section + 1, SECTION_TYPE_INFO, ".nv.info.", kernels[kernel].name, offset);
    }
    size_t offset = cubin->elf.size;
    append_register_info(&cubin->elf, num_kernels);
    close_section(cubin, INFO, SECTION_TYPE_INFO, ".nv.info", "", offset);
}

static void add_tables(struct cubin *cubin, uint32_t target) {
    size_t offset = append(&cubin->elf, cubin->symbols, cubin->num_symbols * sizeof *cubin->symbols);
    close_section(cubin, SYMBOLS, SHT_SYMTAB, ".symtab", "", offset);
    cubin->sections[SYMBOLS].sh_entsize = sizeof *cubin->symbols;
    cubin->sections[SYMBOLS].sh_link = SYMBOL_NAMES;
    offset = append(&cubin->elf, cubin->symbol_names.bytes, cubin->symbol_names.size);
    close_section(cubin, SYMBOL_NAMES, SHT_STRTAB, ".strtab", "", offset);
    uint32_t own_name = append_string(&cubin->section_names, ".shstrtab", "");
    offset = append(&cubin->elf, cubin->section_names.bytes, cubin->section_names.size);
    close_section(cubin, SECTION_NAMES, SHT_STRTAB, "", "", offset);
    cubin->sections[SECTION_NAMES].sh_name = own_name;
    Elf64_Ehdr header = {.e_ident = {ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64, ELFDATA2LSB, EV_CURRENT, CUBIN_OS_ABI},
                         .e_type = ET_EXEC,
                         .e_machine = EM_CUDA,
                         .e_version = EV_CURRENT,
                         .e_flags = target << 8,
                         .e_ehsize = sizeof(Elf64_Ehdr),
                         .e_phentsize = sizeof(Elf64_Phdr),
                         .e_shentsize = sizeof(Elf64_Shdr),
                         .e_shnum = (uint16_t)cubin->num_sections,
                         .e_shstrndx = SECTION_NAMES};
    header.e_shoff = append(&cubin->elf, cubin->sections, cubin->num_sections * sizeof *cubin->sections);
    memcpy(cubin->elf.bytes, &header, sizeof header);
}

static struct buffer make_cubin(const struct fixture_kernel *kernels, size_t num_kernels) {
    struct cubin cubin = {.num_sections = NUM_COMMON_SECTIONS + SECTIONS_PER_KERNEL * num_kernels,
                          .num_symbols = 1 + SYMBOLS_PER_KERNEL * num_kernels};
    cubin.sections = checked(calloc(cubin.num_sections, sizeof *cubin.sections));
    cubin.symbols = checked(calloc(cubin.num_symbols, sizeof *cubin.symbols));
    (void)append(&cubin.elf, NULL, sizeof(Elf64_Ehdr));
    (void)append_string(&cubin.section_names, "", "");
    (void)append_string(&cubin.symbol_names, "", "");
    add_contracts(&cubin, kernels, num_kernels);
    add_kernels(&cubin, kernels, num_kernels);
    add_tables(&cubin, kernels[0].target);
    free(cubin.section_names.bytes);
    free(cubin.symbol_names.bytes);
    free(cubin.sections);
    free(cubin.symbols);
    return cubin.elf;
}

uint8_t *fixture_image(const struct fixture_kernel *kernels, size_t num_kernels, size_t *ret_bytes) {
    struct {
        uint32_t magic;
        uint16_t version, header_bytes;
        uint64_t payload_bytes;
        uint16_t entry_kind, entry_version;
        uint32_t entry_header_bytes;
        uint64_t entry_payload_bytes;
        uint32_t compressed_bytes, options_offset;
        uint16_t minor_version, major_version;
        uint32_t sm;
        uint32_t name_offset, name_bytes;
        uint64_t flags, reserved, uncompressed_bytes;
    } head;
    _Static_assert(sizeof head == 16 + 64, "fatbin header and entry, no padding");
    struct buffer cubin = make_cubin(kernels, num_kernels), fatbin = {0};
    memset(&head, 0, sizeof head);
    head.magic = 0xba55ed50u;
    head.version = 1;
    head.header_bytes = 16;
    head.payload_bytes = 64 + cubin.size;
    head.entry_kind = 2;
    head.entry_version = 0x0101;
    head.entry_header_bytes = 64;
    head.entry_payload_bytes = cubin.size;
    head.sm = kernels[0].target;
    (void)append(&fatbin, &head, sizeof head);
    (void)append(&fatbin, cubin.bytes, cubin.size);
    free(cubin.bytes);
    *ret_bytes = fatbin.size;
    return fatbin.bytes;
}

/* ----------------------------------------------------------------------------------------------------------- bundles */

static int compare_names(const void *left, const void *right) {
    return strcmp(((const struct fixture_kernel *)left)->name, ((const struct fixture_kernel *)right)->name);
}

static uint32_t gpus_of(const struct fixture_kernel *kernel) {
    if (kernel->gpus)
        return kernel->gpus;
    return kernel->target == 90    ? BUNDLE_GPU_SM90
           : kernel->target == 100 ? BUNDLE_GPU_SM100 | BUNDLE_GPU_SM103
                                   : BUNDLE_GPU_SM120 | BUNDLE_GPU_SM121;
}

struct fixture_dictionary fixture_dictionary(void) {
    enum { NUM_SAMPLES = 200, DICTIONARY_BYTES = 2048 };
    struct fixture_dictionary dictionary = {.bytes = checked(malloc(DICTIONARY_BYTES))};
    struct buffer samples = {0};
    size_t sample_bytes[NUM_SAMPLES];
    for (unsigned sample = 0; sample < NUM_SAMPLES; sample++) {
        char name[32];
        (void)snprintf(name, sizeof name, "sample_%u_of_%u", sample * 7919 % 1000, sample);
        struct fixture_kernel kernel = {.name = name, .target = 90, .contract = fixture_contract()};
        kernel.contract.row_tile = 1 + sample;
        uint8_t *image = fixture_image(&kernel, 1, &sample_bytes[sample]);
        (void)append(&samples, image, sample_bytes[sample]);
        free(image);
    }
    dictionary.num_bytes = ZDICT_trainFromBuffer(dictionary.bytes, DICTIONARY_BYTES, samples.bytes, sample_bytes, NUM_SAMPLES);
    free(samples.bytes);
    if (ZDICT_isError(dictionary.num_bytes)) {
        (void)fprintf(stderr, "bundle_fixture: no dictionary: %s\n", ZDICT_getErrorName(dictionary.num_bytes));
        abort();
    }
    return dictionary;
}

static void hash_of(const void *data, size_t bytes, uint8_t ret_digest[32]) {
    struct sha256 hash;
    sha256_init(&hash);
    sha256_update(&hash, data, bytes);
    sha256_finish(&hash, ret_digest);
}

static size_t compress(const struct fixture_dictionary *dictionary, const struct fixture_image_bytes *image, uint8_t *ret_frame,
                       size_t capacity) {
    ZSTD_CCtx *context = checked(ZSTD_createCCtx());
    size_t frame_bytes = ZSTD_compress_usingDict(context, ret_frame, capacity, image->bytes, image->num_bytes, dictionary->bytes,
                                                 dictionary->num_bytes, ZSTD_LEVEL);
    (void)ZSTD_freeCCtx(context);
    return frame_bytes;
}

static void append_frame(struct buffer *bundle, const struct fixture_dictionary *dictionary,
                         const struct fixture_image_bytes *image, struct bundle_image *record) {
    size_t capacity = ZSTD_compressBound(image->num_bytes), frame_bytes = image->frame_bytes;
    uint8_t *frame = checked(malloc(capacity + image->frame_bytes));
    if (image->frame)
        memcpy(frame, image->frame, image->frame_bytes);
    else
        frame_bytes = compress(dictionary, image, frame, capacity);
    append_padding(bundle);
    *record = (struct bundle_image){.offset = append(bundle, frame, frame_bytes),
                                    .frame_bytes = frame_bytes,
                                    .image_bytes = image->num_bytes,
                                    .target = image->target,
                                    .num_kernels = image->num_kernels};
    free(frame);
    hash_of(image->bytes, image->num_bytes, record->sha256);
}

uint8_t *fixture_assemble_with(const struct fixture_dictionary *dictionary, const struct fixture_kernel *kernels,
                               size_t num_kernels, const struct fixture_image_bytes *images, size_t num_images,
                               size_t *ret_bytes) {
    static const struct fixture_dictionary none;
    dictionary = dictionary ? dictionary : &none;
    struct fixture_kernel *sorted = checked(malloc(num_kernels * sizeof *sorted));
    struct buffer bundle = {0}, strings = {0};
    struct bundle_header header = {.version = BUNDLE_VERSION,
                                   .kernel_abi = LIBDECODE_KERNEL_ABI,
                                   .num_kernels = (uint32_t)num_kernels,
                                   .num_images = (uint32_t)num_images,
                                   .min_driver = 13000,
                                   .toolkit = 13000};
    memcpy(sorted, kernels, num_kernels * sizeof *sorted);
    qsort(sorted, num_kernels, sizeof *sorted, compare_names);
    (void)append(&bundle, NULL, sizeof header);
    (void)append_string(&strings, "", "");
    for (size_t kernel = 0; kernel < num_kernels; kernel++) {
        struct bundle_kernel record = {.name = append_string(&strings, "", sorted[kernel].name),
                                       .image = sorted[kernel].image,
                                       .gpus = gpus_of(&sorted[kernel]),
                                       .registers = FIXTURE_REGISTERS,
                                       .contract = contract_of(&sorted[kernel])};
        header.gpus |= record.gpus;
        (void)append(&bundle, &record, sizeof record);
    }
    append_padding(&strings);
    size_t images_offset = append(&bundle, NULL, num_images * sizeof(struct bundle_image));
    (void)append(&bundle, strings.bytes, strings.size);
    header.strings_bytes = strings.size;
    header.tables_bytes = bundle.size;
    header.dictionary_bytes = (uint32_t)dictionary->num_bytes;
    if (dictionary->num_bytes > 0) {
        append_padding(&bundle);
        (void)append(&bundle, dictionary->bytes, dictionary->num_bytes);
        hash_of(dictionary->bytes, dictionary->num_bytes, header.dictionary_sha256);
    }
    for (size_t image = 0; image < num_images; image++) {
        struct bundle_image record;
        append_frame(&bundle, dictionary, &images[image], &record);
        memcpy(bundle.bytes + images_offset + image * sizeof record, &record, sizeof record);
    }
    append_padding(&bundle);
    header.file_bytes = bundle.size;
    memcpy(header.magic, BUNDLE_MAGIC, sizeof header.magic);
    memcpy(bundle.bytes, &header, sizeof header);
    fixture_seal(bundle.bytes, bundle.size);
    free(strings.bytes);
    free(sorted);
    *ret_bytes = bundle.size;
    return bundle.bytes;
}

uint8_t *fixture_assemble(const struct fixture_kernel *kernels, size_t num_kernels, const struct fixture_image_bytes *images,
                          size_t num_images, size_t *ret_bytes) {
    return fixture_assemble_with(NULL, kernels, num_kernels, images, num_images, ret_bytes);
}

uint8_t *fixture_bundle(const struct fixture_kernel *kernels, size_t num_kernels, size_t *ret_bytes) {
    return fixture_bundle_with(NULL, kernels, num_kernels, ret_bytes);
}

uint8_t *fixture_bundle_with(const struct fixture_dictionary *dictionary, const struct fixture_kernel *kernels,
                             size_t num_kernels, size_t *ret_bytes) {
    struct fixture_kernel *placed = checked(malloc(num_kernels * sizeof *placed));
    struct fixture_kernel *siblings = checked(malloc(num_kernels * sizeof *siblings));
    struct fixture_image_bytes *images = checked(calloc(num_kernels, sizeof *images));
    bool *is_placed = checked(calloc(num_kernels, sizeof *is_placed));
    size_t num_images = 0;
    memcpy(placed, kernels, num_kernels * sizeof *placed);
    for (size_t first = 0; first < num_kernels; first++) {
        size_t num_siblings = 0;
        for (size_t kernel = first; kernel < num_kernels && !is_placed[first]; kernel++) {
            if (kernel == first || (kernels[first].image != 0 && kernels[kernel].image == kernels[first].image)) {
                siblings[num_siblings++] = kernels[kernel];
                placed[kernel].image = (uint32_t)num_images;
                is_placed[kernel] = kernel != first;
            }
        }
        if (is_placed[first])
            continue;
        is_placed[first] = true;
        struct fixture_image_bytes *image = &images[num_images++];
        image->bytes = fixture_image(siblings, num_siblings, &image->num_bytes);
        image->target = kernels[first].target;
        image->num_kernels = (uint32_t)num_siblings;
    }
    uint8_t *bundle = fixture_assemble_with(dictionary, placed, num_kernels, images, num_images, ret_bytes);
    for (size_t image = 0; image < num_images; image++)
        free((void *)(uintptr_t)images[image].bytes);
    free(images);
    free(siblings);
    free(placed);
    free(is_placed);
    return bundle;
}

struct bundle_header *fixture_header(uint8_t *bundle) {
    return (struct bundle_header *)(void *)bundle;
}

struct bundle_kernel *fixture_kernels(uint8_t *bundle) {
    return (struct bundle_kernel *)(void *)(bundle + sizeof(struct bundle_header));
}

struct bundle_image *fixture_images(uint8_t *bundle) {
    return (struct bundle_image *)(void *)(fixture_kernels(bundle) + fixture_header(bundle)->num_kernels);
}

uint8_t *fixture_dictionary_of(uint8_t *bundle) { return bundle + (fixture_header(bundle)->tables_bytes + 7) / 8 * 8; }

char *fixture_strings(uint8_t *bundle) { return (char *)(fixture_images(bundle) + fixture_header(bundle)->num_images); }

void fixture_seal(uint8_t *bundle, size_t bytes) {
    struct bundle_header *header = fixture_header(bundle);
    if (bytes < sizeof *header || header->tables_bytes < sizeof *header || header->tables_bytes > bytes)
        return;
    memset(header->root_hash, 0, sizeof header->root_hash);
    sha256_of_halves(bundle, (size_t)header->tables_bytes, header->root_hash);
}

void fixture_write_file(const char *path, const void *data, size_t bytes) {
    FILE *file = fopen(path, "wb");
    if (!file || fwrite(data, 1, bytes, file) != bytes || fclose(file) != 0) {
        (void)fprintf(stderr, "bundle_fixture: cannot write %s\n", path);
        abort();
    }
}
