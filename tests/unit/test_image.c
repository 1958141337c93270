/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_image.c: the audit over whole, truncated and damaged images. LIBDECODE_TEST_IMAGES names them, ':' between: files called
 * <kernel>.fatbin, made by tests/gen/fatbin.py and, where there is nvcc, compiled from tests/gen/tiny_kernel.cu.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bundle_format.h"
#include "image.h"

#define MAX_IMAGES 16
#define MAX_IMAGE_BYTES (1 << 20)

static struct test_image {
    char kernel[128], contract[160];
    uint8_t *bytes;
    size_t size;
    size_t elf_offset;
} images[MAX_IMAGES];
static size_t num_images;

static void load_image(const char *path, size_t path_bytes) {
    struct test_image *image = &images[num_images++];
    char file_name[1024];
    const char *stem;

    assert_true(num_images < MAX_IMAGES);
    snprintf(file_name, sizeof(file_name), "%.*s", (int)path_bytes, path);
    stem = strrchr(file_name, '/') != NULL ? strrchr(file_name, '/') + 1 : file_name;
    snprintf(image->kernel, sizeof(image->kernel), "%.*s", (int)strcspn(stem, "."), stem);
    snprintf(image->contract, sizeof(image->contract), "%.*s" LIBDECODE_CONTRACT_SUFFIX, (int)strcspn(stem, "."), stem);
    FILE *file = fopen(file_name, "rb");
    assert_non_null(file);
    image->bytes = malloc(MAX_IMAGE_BYTES);
    assert_non_null(image->bytes);
    image->size = fread(image->bytes, 1, MAX_IMAGE_BYTES, file);
    fclose(file);
    assert_in_range(image->size, 128, MAX_IMAGE_BYTES - 1);
    for (image->elf_offset = 0; memcmp(image->bytes + image->elf_offset, ELFMAG, SELFMAG) != 0;)
        image->elf_offset++;
}

static int load_images(void **state) {
    const char *paths = getenv("LIBDECODE_TEST_IMAGES");
    (void)state;
    assert_non_null(paths);
    for (const char *path = paths; *path != '\0';) {
        size_t path_bytes = strcspn(path, ":");
        load_image(path, path_bytes);
        path += path_bytes + (path[path_bytes] == ':');
    }
    assert_true(num_images > 0);
    return 0;
}

static int free_images(void **state) {
    (void)state;
    for (size_t index = 0; index < num_images; index++)
        free(images[index].bytes);
    return 0;
}

/* Every place of a small image; of a large one, whose headers are a small part, every 61st. */
static size_t stride(const struct test_image *image) { return image->size < 16384 ? 1 : 61; }

/* The image in memory of exactly its size, so that the address sanitizer sees one byte too far. */
static uint8_t *copy_of(const struct test_image *image, size_t bytes) {
    uint8_t *copy = malloc(bytes > 0 ? bytes : 1);
    assert_non_null(copy);
    memcpy(copy, image->bytes, bytes < image->size ? bytes : image->size);
    return copy;
}

/* Asks an image all there is to ask; whatever the answers, nothing may be read outside of it. */
static void ask_everything(const struct test_image *image, const uint8_t *bytes, size_t size) {
    struct image_elf elf;
    struct image_kernels kernels;

    if (image_audit(bytes, size, &elf) != LIBDECODE_OK) {
        assert_string_not_equal(libdecode_error_message(), "");
        return;
    }
    if (image_kernels_read(&elf, &kernels) != LIBDECODE_OK)
        return;
    assert_int_equal(kernels.count, image_kernel_count(&elf));
    (void)image_kernels_find(&kernels, image->kernel);
    for (size_t index = 0; index < kernels.count; index++) {
        const struct image_kernel *kernel = &kernels.kernels[index];
        assert_true(kernel->contract >= bytes && kernel->contract <= bytes + size);
        assert_true(kernel->contract_bytes <= (size_t)(bytes + size - kernel->contract));
        assert_true(strlen(kernel->name) < BUNDLE_MAX_NAME_BYTES);
    }
    image_kernels_free(&kernels);
}

static void whole_images_pass_and_say_what_they_hold(void **state) {
    (void)state;
    for (size_t index = 0; index < num_images; index++) {
        const struct test_image *image = &images[index];
        struct libdecode_launch_contract contract;
        struct image_elf elf;
        struct image_kernels kernels;
        char target[8];
        assert_int_equal(image_audit(image->bytes, image->size, &elf), LIBDECODE_OK);
        snprintf(target, sizeof(target), "sm%u", elf.sm);
        assert_non_null(strstr(image->kernel, target));
        assert_int_equal(image_kernel_count(&elf), 1);
        assert_int_equal(image_kernels_read(&elf, &kernels), LIBDECODE_OK);
        assert_int_equal(kernels.count, 1);
        const struct image_kernel *kernel = image_kernels_find(&kernels, image->kernel);
        assert_ptr_equal(kernel, &kernels.kernels[0]);
        assert_string_equal(kernel->name, image->kernel);
        assert_int_equal(kernel->parameter_bytes, sizeof(struct read_ceiling_params));
        assert_int_equal(kernel->max_threads, 96);
        assert_int_equal(kernel->static_shared_bytes, 400);
        assert_in_range(kernel->registers, 1, 255);
        if (strstr(image->kernel, "spills1") != NULL)
            assert_true(kernel->local_bytes > 0);
        else
            assert_int_equal(kernel->local_bytes, 0);
        assert_int_equal(kernel->contract_bytes, sizeof(contract));
        memcpy(&contract, kernel->contract, sizeof(contract));
        assert_int_equal(contract.magic, LIBDECODE_CONTRACT_MAGIC);
        assert_int_equal(contract.abi, LIBDECODE_KERNEL_ABI);
        assert_int_equal(contract.threads, 96);
        assert_int_equal(contract.parameter_bytes, sizeof(struct read_ceiling_params));
        image_kernels_free(&kernels);
    }
}

static void what_is_not_there_is_not_found(void **state) {
    (void)state;
    for (size_t index = 0; index < num_images; index++) {
        const struct test_image *image = &images[index];
        struct image_elf elf;
        struct image_kernels kernels;
        char part[128], more[160];
        snprintf(part, sizeof(part), "%.*s", (int)strlen(image->kernel) - 1, image->kernel);
        snprintf(more, sizeof(more), "%sx", image->kernel);
        assert_int_equal(image_audit(image->bytes, image->size, &elf), LIBDECODE_OK);
        assert_int_equal(image_kernels_read(&elf, &kernels), LIBDECODE_OK);
        assert_null(image_kernels_find(&kernels, "other"));
        assert_null(image_kernels_find(&kernels, ""));
        assert_null(image_kernels_find(&kernels, part));
        assert_null(image_kernels_find(&kernels, more));
        assert_null(image_kernels_find(&kernels, image->contract));
        image_kernels_free(&kernels);
        assert_null(kernels.kernels);
    }
}

static void no_truncated_image_passes(void **state) {
    (void)state;
    for (size_t index = 0; index < num_images; index++) {
        for (size_t size = 0; size < images[index].size; size += stride(&images[index])) {
            struct image_elf elf = {.sm = 77};
            uint8_t *copy = copy_of(&images[index], size);
            assert_int_equal(image_audit(copy, size, &elf), LIBDECODE_ERROR_BUNDLE_DAMAGED);
            assert_int_equal(elf.sm, 77);
            free(copy);
        }
    }
}

/* As above, with the lengths of the fatbin made to fit: the cubin inside ends too early. */
static void no_image_with_a_truncated_cubin_passes(void **state) {
    (void)state;
    for (size_t index = 0; index < num_images; index++) {
        for (size_t size = images[index].elf_offset; size < images[index].size; size += stride(&images[index])) {
            struct image_elf elf;
            uint8_t *copy = copy_of(&images[index], size);
            uint64_t all = size - 16, cubin = size - images[index].elf_offset;
            memcpy(copy + 8, &all, sizeof(all));
            memcpy(copy + 24, &cubin, sizeof(cubin));
            assert_int_equal(image_audit(copy, size, &elf), LIBDECODE_ERROR_BUNDLE_DAMAGED);
            free(copy);
        }
    }
}

static void bytes_behind_an_image_are_refused(void **state) {
    (void)state;
    for (size_t index = 0; index < num_images; index++) {
        struct image_elf elf;
        uint8_t *copy = copy_of(&images[index], images[index].size + 8);
        memset(copy + images[index].size, 0, 8);
        assert_int_equal(image_audit(copy, images[index].size + 8, &elf), LIBDECODE_ERROR_BUNDLE_DAMAGED);
        free(copy);
    }
}

static void no_altered_byte_leads_outside(void **state) {
    (void)state;
    for (size_t index = 0; index < num_images; index++) {
        uint8_t *copy = copy_of(&images[index], images[index].size);
        for (size_t offset = 0; offset < images[index].size; offset += stride(&images[index])) {
            uint8_t whole = copy[offset];
            const uint8_t altered[] = {0, 0xff, 0x7f, (uint8_t)(whole ^ 1), (uint8_t)(whole ^ 0x80), (uint8_t)(whole + 8)};
            for (size_t value = 0; value < sizeof(altered); value++) {
                copy[offset] = altered[value];
                ask_everything(&images[index], copy, images[index].size);
            }
            copy[offset] = whole;
        }
        free(copy);
    }
}

static void no_wild_word_leads_outside(void **state) {
    static const uint64_t words[] = {0, 1, 0x7fffffff, 0xffffffff, UINT64_MAX, UINT64_MAX - 63, INT64_MAX, 1ull << 40};
    (void)state;
    for (size_t index = 0; index < num_images; index++) {
        uint8_t *copy = copy_of(&images[index], images[index].size);
        for (size_t offset = 0; offset + 8 <= images[index].size; offset += 4 * stride(&images[index])) {
            for (size_t word = 0; word < 2 * sizeof(words) / sizeof(words[0]); word++) {
                memcpy(copy + offset, &words[word / 2], word % 2 == 0 ? 4 : 8);
                ask_everything(&images[index], copy, images[index].size);
            }
            memcpy(copy + offset, images[index].bytes + offset, 8);
        }
        free(copy);
    }
}

/* Several places at once, by a fixed sequence. */
static void no_scattered_damage_leads_outside(void **state) {
    uint64_t sequence = 0x9e3779b97f4a7c15u;
    (void)state;
    for (size_t index = 0; index < num_images; index++) {
        uint8_t *copy = copy_of(&images[index], images[index].size);
        for (int round = 0; round < 20000; round++) {
            memcpy(copy, images[index].bytes, images[index].size);
            for (int place = 0; place < 1 + round % 6; place++) {
                sequence = sequence * 6364136223846793005u + 1442695040888963407u;
                copy[(sequence >> 20) % images[index].size] = (uint8_t)(sequence >> 56);
            }
            ask_everything(&images[index], copy, images[index].size);
        }
        free(copy);
    }
}

/* One field of the ELF header, of a section header or of the fatbin set to a value that must be refused. */
static void refused_with(const struct test_image *image, size_t offset, uint64_t value, size_t value_bytes, const char *says) {
    struct image_elf elf;
    uint8_t *copy = copy_of(image, image->size);
    memcpy(copy + offset, &value, value_bytes);
    assert_int_equal(image_audit(copy, image->size, &elf), LIBDECODE_ERROR_BUNDLE_DAMAGED);
    if (strstr(libdecode_error_message(), says) == NULL)
        fail_msg("'%s' does not say '%s'", libdecode_error_message(), says);
    free(copy);
}

static void damaged_headers_are_named(void **state) {
    (void)state;
    for (size_t index = 0; index < num_images; index++) {
        const struct test_image *image = &images[index];
        Elf64_Ehdr header;
        memcpy(&header, image->bytes + image->elf_offset, sizeof(header));
        size_t elf = image->elf_offset, sections = elf + header.e_shoff;
        size_t names = sections + sizeof(Elf64_Shdr) * header.e_shstrndx;
        size_t last = sections + sizeof(Elf64_Shdr) * (header.e_shnum - 1u);
        refused_with(image, 0, 0, 4, "no fatbin header");
        refused_with(image, 4, 2, 2, "version 2");
        refused_with(image, 8, 0, 8, "announces 0 bytes");
        refused_with(image, 16, 1, 2, "not a cubin: kind 1");
        refused_with(image, 20, 0, 4, "not exactly one cubin");
        refused_with(image, 24, UINT64_MAX, 8, "not exactly one cubin");
        refused_with(image, 32, 5, 4, "compressed");
        refused_with(image, 36, UINT32_MAX, 4, "options");
        refused_with(image, 44, 75, 4, "says sm_75");
        refused_with(image, 48, UINT32_MAX, 4, "name");
        refused_with(image, 72, 5, 8, "compressed");
        refused_with(image, elf, 0, 1, "no 64-bit");
        refused_with(image, elf + EI_CLASS, ELFCLASS32, 1, "no 64-bit");
        refused_with(image, elf + EI_OSABI, 0x33, 1, "OS ABI 0x33");
        refused_with(image, elf + offsetof(Elf64_Ehdr, e_machine), EM_X86_64, 2, "machine 62");
        refused_with(image, elf + offsetof(Elf64_Ehdr, e_flags), 0x6005000, 4, "say sm_80");
        refused_with(image, elf + offsetof(Elf64_Ehdr, e_shoff), UINT64_MAX - 7, 8, "section headers at");
        refused_with(image, elf + offsetof(Elf64_Ehdr, e_phoff), image->size, 8, "program headers at");
        refused_with(image, elf + offsetof(Elf64_Ehdr, e_shentsize), 63, 2, "header sizes");
        refused_with(image, elf + offsetof(Elf64_Ehdr, e_shstrndx), header.e_shnum, 2, "section names");
        refused_with(image, elf + header.e_phoff + offsetof(Elf64_Phdr, p_offset), UINT64_MAX, 8, "segment 0");
        refused_with(image, names + offsetof(Elf64_Shdr, sh_size), UINT64_MAX, 8, "exceeds the cubin");
        refused_with(image, names + offsetof(Elf64_Shdr, sh_offset), image->size, 8, "exceeds the cubin");
        refused_with(image, names + offsetof(Elf64_Shdr, sh_size), 0, 8, "no section names");
        refused_with(image, last + offsetof(Elf64_Shdr, sh_name), UINT32_MAX, 4, "outside the names");
        refused_with(image, last + offsetof(Elf64_Shdr, sh_link), header.e_shnum, 4, "has link");
    }
}

/* Where the header of the first section of this type or, with a name, of this name lies in the image; 0: there is none. */
static size_t find_header(const struct test_image *image, uint32_t type, const char *name, Elf64_Shdr *ret_section) {
    const uint8_t *elf = image->bytes + image->elf_offset;
    Elf64_Ehdr header;
    Elf64_Shdr names;
    memcpy(&header, elf, sizeof(header));
    memcpy(&names, elf + header.e_shoff + header.e_shstrndx * sizeof(names), sizeof(names));
    for (size_t index = 1; index < header.e_shnum; index++) {
        size_t offset = header.e_shoff + index * sizeof(*ret_section);
        memcpy(ret_section, elf + offset, sizeof(*ret_section));
        const char *its_name = (const char *)elf + names.sh_offset + ret_section->sh_name;
        if (name != NULL ? strcmp(its_name, name) == 0 : ret_section->sh_type == type)
            return image->elf_offset + offset;
    }
    return 0;
}

static void damaged_symbols_are_named(void **state) {
    (void)state;
    for (size_t index = 0; index < num_images; index++) {
        const struct test_image *image = &images[index];
        Elf64_Shdr section;
        size_t symbols = find_header(image, SHT_SYMTAB, NULL, &section);
        size_t symbol = image->elf_offset + section.sh_offset + sizeof(Elf64_Sym);
        refused_with(image, symbols + offsetof(Elf64_Shdr, sh_type), SHT_PROGBITS, 4, "0 symbol tables");
        refused_with(image, symbols + offsetof(Elf64_Shdr, sh_entsize), 23, 8, "symbol table is malformed");
        refused_with(image, symbols + offsetof(Elf64_Shdr, sh_link), 0, 4, "holds no symbol names");
        refused_with(image, symbol + offsetof(Elf64_Sym, st_name), UINT32_MAX, 4, "symbol 1 has its name");
        refused_with(image, symbol + offsetof(Elf64_Sym, st_shndx), 0x7fff, 2, "symbol 1 is in section 32767");
    }
}

/* What fatbin.py does not make, and nvcc does. */
static void damaged_relocations_and_options_are_named(void **state) {
    size_t images_of_nvcc = 0, images_with_relocations = 0, images_with_options = 0;
    (void)state;
    for (size_t index = 0; index < num_images; index++) {
        const struct test_image *image = &images[index];
        Elf64_Shdr section;
        uint32_t options;
        size_t relocations = find_header(image, 0, ".rela.debug_frame", &section);
        images_of_nvcc += strncmp(image->kernel, "synthetic", 9) != 0;
        if (relocations != 0) {
            size_t relocation = image->elf_offset + section.sh_offset;
            refused_with(image, relocation + offsetof(Elf64_Rela, r_offset), UINT64_MAX, 8, "relocation at 0");
            refused_with(image, relocation + offsetof(Elf64_Rela, r_info) + 4, 9999, 4, "symbol 9999");
            refused_with(image, relocations + offsetof(Elf64_Shdr, sh_info), UINT32_MAX, 4, "malformed");
            refused_with(image, relocations + offsetof(Elf64_Shdr, sh_link), 0, 4, "malformed");
            images_with_relocations++;
        }
        memcpy(&options, image->bytes + 36, sizeof(options));
        if (options != 0) {
            refused_with(image, 16 + options, UINT32_MAX, 4, "options");
            refused_with(image, 16 + options + 4, UINT32_MAX, 4, "options");
            images_with_options++;
        }
    }
    assert_true((images_with_relocations > 0) == (images_of_nvcc > 0) && (images_with_options > 0) == (images_of_nvcc > 0));
}

static void a_contract_without_contents_is_refused(void **state) {
    (void)state;
    for (size_t index = 0; index < num_images; index++) {
        const uint32_t no_bits = SHT_NOBITS;
        struct image_elf elf;
        struct image_kernels kernels = {NULL, 0};
        Elf64_Shdr section;
        uint8_t *copy = copy_of(&images[index], images[index].size);
        size_t contracts = find_header(&images[index], 0, ".nv.global.init", &section);
        assert_true(contracts != 0);
        memcpy(copy + contracts + offsetof(Elf64_Shdr, sh_type), &no_bits, sizeof(no_bits));
        assert_int_equal(image_audit(copy, images[index].size, &elf), LIBDECODE_OK);
        assert_int_equal(image_kernels_read(&elf, &kernels), LIBDECODE_ERROR_BUNDLE_DAMAGED);
        assert_non_null(strstr(libdecode_error_message(), "no initial value"));
        free(copy);
    }
}

/* A section without contents may lie anywhere; an attribute section that pretends to be one must not be read. */
static void attributes_without_contents_are_refused(void **state) {
    static const Elf64_Shdr nowhere = {.sh_type = SHT_NOBITS, .sh_offset = 1ull << 40, .sh_size = 1ull << 30};
    (void)state;
    for (size_t index = 0; index < num_images; index++) {
        char of_kernel[160];
        snprintf(of_kernel, sizeof(of_kernel), ".nv.info.%.128s", images[index].kernel);
        const char *names[] = {".nv.info", of_kernel};
        for (size_t name = 0; name < sizeof(names) / sizeof(names[0]); name++) {
            struct image_elf elf;
            struct image_kernels kernels = {NULL, 0};
            Elf64_Shdr section, damaged = nowhere;
            uint8_t *copy = copy_of(&images[index], images[index].size);
            size_t header = find_header(&images[index], 0, names[name], &section);
            assert_true(header != 0);
            damaged.sh_name = section.sh_name;
            memcpy(copy + header, &damaged, sizeof(damaged));
            assert_int_equal(image_audit(copy, images[index].size, &elf), LIBDECODE_OK);
            assert_int_equal(image_kernels_read(&elf, &kernels), LIBDECODE_ERROR_BUNDLE_DAMAGED);
            assert_non_null(strstr(libdecode_error_message(), names[name]));
            assert_null(kernels.kernels); /* untouched */
            free(copy);
        }
    }
}

/* Else 65,000 sections of 64 MiB each, all of the same bytes, would be walked. */
static void sections_that_overlap_are_refused(void **state) {
    (void)state;
    for (size_t index = 0; index < num_images; index++) {
        struct image_elf elf;
        Elf64_Ehdr header;
        uint8_t *copy = copy_of(&images[index], images[index].size);
        memcpy(&header, copy + images[index].elf_offset, sizeof(header));
        for (size_t section = 1; section < header.e_shnum; section++) {
            size_t at = images[index].elf_offset + header.e_shoff + section * sizeof(Elf64_Shdr);
            const uint64_t whole[2] = {0, images[index].size - images[index].elf_offset}; /* sh_offset, sh_size */
            memcpy(copy + at + offsetof(Elf64_Shdr, sh_offset), whole, sizeof(whole));
        }
        assert_int_equal(image_audit(copy, images[index].size, &elf), LIBDECODE_ERROR_BUNDLE_DAMAGED);
        assert_non_null(strstr(libdecode_error_message(), "they overlap"));
        free(copy);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole_images_pass_and_say_what_they_hold),
        cmocka_unit_test(what_is_not_there_is_not_found),
        cmocka_unit_test(no_truncated_image_passes),
        cmocka_unit_test(no_image_with_a_truncated_cubin_passes),
        cmocka_unit_test(bytes_behind_an_image_are_refused),
        cmocka_unit_test(no_altered_byte_leads_outside),
        cmocka_unit_test(no_wild_word_leads_outside),
        cmocka_unit_test(no_scattered_damage_leads_outside),
        cmocka_unit_test(damaged_headers_are_named),
        cmocka_unit_test(damaged_symbols_are_named),
        cmocka_unit_test(damaged_relocations_and_options_are_named),
        cmocka_unit_test(a_contract_without_contents_is_refused),
        cmocka_unit_test(attributes_without_contents_are_refused),
        cmocka_unit_test(sections_that_overlap_are_refused),
    };
    return cmocka_run_group_tests(tests, load_images, free_images);
}
