# SPDX-License-Identifier: Apache-2.0
"""gen/pack.c: images made by fatbin.py in, the bundle read back field by field; and every input that it must refuse."""

import dataclasses
import hashlib
import os
import pathlib
import shutil
import struct
import subprocess
import tempfile
import unittest

import fatbin

PACK = os.environ["PACK"]
ABI = fatbin.Abi(pathlib.Path(os.environ["ABI_H"]))
PARAMETER_BYTES = int(os.environ["READ_CEILING_PARAMETER_BYTES"])
GQA_PARAMETER_BYTES = int(os.environ["GQA_DECODE_PARAMETER_BYTES"])


def kernel(name, contract=None, **recorded):
    contract = {"parameter_bytes": PARAMETER_BYTES} | (contract or {})
    return fatbin.Kernel(name, **({"contract": ABI.contract(**contract), "parameter_bytes": PARAMETER_BYTES} | recorded))


class PackTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def manifest(self, text):
        (self.folder / "manifest").write_text(text, encoding="utf-8")

    def one(self, sm=90, gpus="sm_90", may_spill="", declared=None, **of_kernel):
        """One image with one kernel, and its manifest."""
        name = f"read_ceiling_sm{sm}"
        self.image("image.fatbin", fatbin.image(sm, kernel(name, **of_kernel)))
        self.manifest(f"target\t{sm}\nimage\timage.fatbin\nkernel\t{declared or name}\t{gpus}\t{may_spill}\n")

    def image(self, file, data):
        (self.folder / file).write_bytes(data)

    def pack(self, level=3, folder=None, dictionary=0, tally=None):
        folder = folder or self.folder
        options = ["--tally", folder / tally] if tally else []
        return subprocess.run([PACK, "--manifest", folder / "manifest", "--images", folder, "--toolkit", "13.0",
                               "--level", str(level), "--dictionary", str(dictionary), "--output", folder / "out.bundle", *options],
                              capture_output=True, text=True, check=False)

    def packed(self, **options):
        result = self.pack(**options)
        self.assertEqual((result.returncode, result.stderr, result.stdout), (0, "", ""))
        return (options.get("folder") or self.folder).joinpath("out.bundle").read_bytes()

    def refused(self, *says, **options):
        result = self.pack(**options)
        self.assertEqual(result.returncode, 1, result.stderr)
        self.assertEqual(len(result.stderr.splitlines()), 1, result.stderr)
        for part in says:
            self.assertIn(part, result.stderr)
        self.assertFalse((self.folder / "out.bundle").exists())

    # ---- what a bundle holds

    def test_a_bundle_holds_what_the_images_say(self):
        images = {"b.fatbin": fatbin.image(100, kernel("read_ceiling_b_sm100", {"stages": 3}, registers=40)),
                  "a.fatbin": fatbin.image(100, kernel("read_ceiling_a_sm100", {"head_dim": 64}, registers=24))}
        for file, data in images.items():
            self.image(file, data)
        self.manifest("target\t100\nimage\tb.fatbin\nkernel\tread_ceiling_b_sm100\tsm_100,sm_103\t\n"
                      "image\ta.fatbin\nkernel\tread_ceiling_a_sm100\tsm_103\t\n")
        bundle = self.packed()
        magic, version, abi, file_bytes, tables_bytes, kernels, image_count, strings_bytes, gpus, driver, toolkit, _ = \
            struct.unpack_from("<8sIIQQIIQIIII", bundle)
        self.assertEqual((magic, version, abi), (b"\x89LDKB\r\n\x1a", 2, ABI.constants["LIBDECODE_KERNEL_ABI"]))
        self.assertEqual((file_bytes, kernels, image_count, gpus, driver, toolkit), (len(bundle), 2, 2, 2 | 4, 13000, 13000))
        record_bytes = 16 + 4 * len(ABI.fields)
        self.assertEqual(tables_bytes, 128 + 2 * record_bytes + 2 * 64 + strings_bytes)
        strings = bundle[tables_bytes - strings_bytes:tables_bytes]
        records = [struct.unpack_from("<4I", bundle, 128 + index * record_bytes) for index in range(2)]
        names = [strings[name:strings.index(b"\0", name)].decode() for name, *_ in records]
        self.assertEqual(names, ["read_ceiling_a_sm100", "read_ceiling_b_sm100"])
        self.assertEqual([record[1:] for record in records], [(1, 4, 24), (0, 2 | 4, 40)])
        self.assertEqual(bundle[128 + 16:128 + record_bytes], ABI.contract(parameter_bytes=PARAMETER_BYTES, head_dim=64))
        end = tables_bytes
        for index, data in enumerate(images.values()):
            offset, frame_bytes, image_bytes, target, image_kernels, digest = \
                struct.unpack_from("<QQQII32s", bundle, 128 + 2 * record_bytes + index * 64)
            self.assertEqual((offset, image_bytes, target, image_kernels), ((end + 7) & ~7, len(data), 100, 1))
            self.assertEqual(digest, hashlib.sha256(data).digest())
            frame = bundle[offset:offset + frame_bytes]
            self.assertTrue(frame.startswith(b"\x28\xb5\x2f\xfd"))
            # Frame header: the checksum flag, and a content size (a single segment, or a size field).
            self.assertTrue(frame[4] & 0x04 and frame[4] & 0xE0)
            if shutil.which("zstd"):
                self.assertEqual(subprocess.run(["zstd", "-dc"], input=frame, capture_output=True, check=True).stdout, data)
            end = offset + frame_bytes
        self.assertEqual(file_bytes, (end + 7) & ~7)
        tables, half = bundle[:64] + bytes(32) + bundle[96:tables_bytes], tables_bytes // 128 * 64
        halves = hashlib.sha256(tables[:half]).digest() + hashlib.sha256(tables[half:]).digest()
        self.assertEqual(bundle[64:96], hashlib.sha256(halves).digest())

    def test_two_kernels_may_share_an_image(self):
        self.image("two.fatbin", fatbin.image(90, kernel("read_ceiling_r8"), kernel("read_ceiling_r16", {"row_tile": 16})))
        self.manifest("target\t90\nimage\ttwo.fatbin\nkernel\tread_ceiling_r8\tsm_90\t\nkernel\tread_ceiling_r16\tsm_90\t\n")
        self.assertEqual(struct.unpack_from("<II", self.packed(), 32), (2, 1))

    def test_the_bytes_depend_on_images_and_level_alone(self):
        self.one()
        first = self.packed()
        elsewhere = self.folder / "another folder"
        elsewhere.mkdir()
        for file in ("manifest", "image.fatbin"):
            shutil.copy(self.folder / file, elsewhere / file)
            os.utime(elsewhere / file, (86400, 86400))
        self.assertEqual(self.packed(folder=elsewhere), first)
        self.assertNotEqual(self.packed(level=19), first)

    # ---- the dictionary

    def many(self, count):
        """So many images of one kernel each, and their manifest."""
        lines = ["target\t90"]
        for index in range(count):
            name = f"read_ceiling_{index:03}"
            self.image(f"{name}.fatbin", fatbin.image(90, kernel(name, {"stages": 1 + index % 60, "row_tile": 1 + index})))
            lines += [f"image\t{name}.fatbin", f"kernel\t{name}\tsm_90\t"]
        self.manifest("\n".join(lines) + "\n")

    def test_images_share_a_dictionary_when_asked(self):
        self.many(60)
        plain, bundle = self.packed(), self.packed(dictionary=2048)
        tables_bytes, = struct.unpack_from("<Q", bundle, 24)
        dictionary_bytes, = struct.unpack_from("<I", bundle, 60)
        begin = (tables_bytes + 7) & ~7
        dictionary = bundle[begin:begin + dictionary_bytes]
        self.assertEqual(struct.unpack_from("<I32x32s", plain, 60), (0, bytes(32)))
        self.assertEqual(bundle[96:128], hashlib.sha256(dictionary).digest())
        self.assertTrue(1024 <= dictionary_bytes <= 2048)
        self.assertTrue(dictionary.startswith(b"\x37\xa4\x30\xec"))
        images = 128 + 60 * (16 + 4 * len(ABI.fields))
        offset, frame_bytes = struct.unpack_from("<QQ", bundle, images)
        self.assertEqual(offset, (begin + dictionary_bytes + 7) & ~7)
        self.assertEqual(bundle[offset + 4] & 3, 3) # the frame names a dictionary by four bytes
        self.assertTrue(frame_bytes < struct.unpack_from("<QQ", plain, images)[1])
        if shutil.which("zstd"):
            (self.folder / "dictionary").write_bytes(dictionary)
            command = ["zstd", "-dc", "-D", self.folder / "dictionary"]
            image = subprocess.run(command, input=bundle[offset:offset + frame_bytes], capture_output=True, check=True).stdout
            self.assertEqual(image, (self.folder / "read_ceiling_000.fatbin").read_bytes())
        self.assertEqual(self.packed(dictionary=2048), bundle)

    def test_a_tally_counts_what_the_bundle_holds(self):
        gqa = {"family": ABI.constants["KERNEL_FAMILY_GQA_DECODE"], "parameter_bytes": GQA_PARAMETER_BYTES}
        images = {
            "a.fatbin": fatbin.image(90, *(kernel(f"gqa_decode_r{rows}", gqa | {"row_tile": rows}, parameter_bytes=GQA_PARAMETER_BYTES)
                                           for rows in (8, 16))),
            "b.fatbin": fatbin.image(90, kernel("gqa_decode_r32", gqa | {"row_tile": 32}, parameter_bytes=GQA_PARAMETER_BYTES)),
            "c.fatbin": fatbin.image(90, kernel("read_ceiling_sm90"))}
        for file, data in images.items():
            self.image(file, data)
        self.manifest("target\t90\nimage\tc.fatbin\nkernel\tread_ceiling_sm90\tsm_90\t\n"
                      "image\ta.fatbin\nkernel\tgqa_decode_r8\tsm_90\t\nkernel\tgqa_decode_r16\tsm_90\t\n"
                      "image\tb.fatbin\nkernel\tgqa_decode_r32\tsm_90\t\n")
        bundle = self.packed(tally="out.tally")
        tables_bytes, = struct.unpack_from("<Q", bundle, 24)
        frames = [struct.unpack_from("<QQ", bundle, 128 + 4 * (16 + 4 * len(ABI.fields)) + 64 * image)[1] for image in range(3)]
        self.assertEqual((self.folder / "out.tally").read_text(encoding="utf-8"),
                         f"bundle\t90\t{len(bundle)}\t{tables_bytes}\t0\n"
                         f"family\tgqa_decode\t90\t3\t2\t{len(images['a.fatbin']) + len(images['b.fatbin'])}\t{frames[1] + frames[2]}\n"
                         f"family\tread_ceiling\t90\t1\t1\t{len(images['c.fatbin'])}\t{frames[0]}\n")
        (self.folder / "out.bundle").unlink()
        self.refused("no such folder/tally: No such file", tally="no such folder/tally")

    def test_a_dictionary_that_cannot_be_is_refused(self):
        self.one()
        self.refused("1 images", "make no dictionary of 2048 bytes", dictionary=2048)

    # ---- the contract against the ELF

    def test_other_threads_than_the_contract_says_are_refused(self):
        self.one(max_threads=160)
        self.refused("image.fatbin", "160 threads", "says 128")

    def test_a_kernel_without_launch_bounds_is_refused(self):
        self.one(max_threads=0)
        self.refused("image.fatbin", "__launch_bounds__", "128")

    def test_other_parameters_than_the_contract_says_are_refused(self):
        self.one(parameter_bytes=PARAMETER_BYTES + 8)
        self.refused("image.fatbin", f"{PARAMETER_BYTES + 8} bytes of parameters", f"says {PARAMETER_BYTES}")

    def test_a_parameter_block_of_another_size_than_in_abi_h_is_refused(self):
        self.one(contract={"parameter_bytes": PARAMETER_BYTES + 8}, parameter_bytes=PARAMETER_BYTES + 8)
        self.refused("image.fatbin", f"{PARAMETER_BYTES + 8} bytes", f"read_ceiling_params has {PARAMETER_BYTES}")

    def test_the_parameter_block_is_that_of_the_family(self):
        gqa = {"family": ABI.constants["KERNEL_FAMILY_GQA_DECODE"], "parameter_bytes": GQA_PARAMETER_BYTES}
        good = kernel("gqa_decode_sm90", gqa, parameter_bytes=GQA_PARAMETER_BYTES)
        self.manifest("target\t90\nimage\timage.fatbin\nkernel\tgqa_decode_sm90\tsm_90\t\n")
        self.image("image.fatbin", fatbin.image(90, good))
        self.packed()
        (self.folder / "out.bundle").unlink()
        bad = ABI.contract(**(gqa | {"parameter_bytes": PARAMETER_BYTES}))
        self.image("image.fatbin", fatbin.image(90, dataclasses.replace(good, contract=bad, parameter_bytes=PARAMETER_BYTES)))
        self.refused(f"{PARAMETER_BYTES} bytes", f"gqa_decode_params has {GQA_PARAMETER_BYTES}")

    def test_contracts_that_no_launch_could_use_are_refused(self):
        cases = {
            "magic": ({"magic": 1}, ["magic 0x00000001"]),
            "interface": ({"abi": 77}, ["kernel interface 77"]),
            "family": ({"family": 99}, ["unknown family 99"]),
            "name of another family": ({"family": ABI.constants["KERNEL_FAMILY_GQA_DECODE"]}, ["family 1", "gqa_decode_"]),
            "no CTA": ({"ctas_per_sm": 0}, ["0 CTAs per SM"]),
            "no cluster": ({"cluster_size": 0}, ["clusters of 0"]),
            "cluster of 3": ({"cluster_size": 3}, ["loader would refuse", "clusters of 3"]),
            "features that no launch can ask for": ({"features": 1 << 8}, ["computes features 0x100", "loader/families"]),
            "reserved words": ({"reserved0": 1}, ["reserved words"]),
            "shared memory of a CTA": ({"dynamic_shared_bytes": 227 * 1024 + 16, "ctas_per_sm": 1}, ["232464 bytes", "232448"]),
            "shared memory of an SM": ({"dynamic_shared_bytes": 100 * 1024, "ctas_per_sm": 3}, ["3 CTAs", "103424 of 233472"]),
            "threads of an SM": ({"ctas_per_sm": 17, "dynamic_shared_bytes": 0}, ["17 CTAs", "128 of 2048 threads"]),
        }
        for mistake, (contract, says) in cases.items():
            with self.subTest(mistake):
                self.one(contract=contract)
                self.refused("image.fatbin", "read_ceiling_sm90", *says)

    def test_more_registers_than_the_ctas_of_an_sm_have_are_refused(self):
        self.one(contract={"ctas_per_sm": 4}, registers=129)
        self.refused("4 CTAs per SM", "17408 of 65536 registers")

    def test_static_shared_memory_counts(self):
        self.one(contract={"ctas_per_sm": 7}, static_shared_bytes=0)
        self.refused("33792 of 233472")
        self.one(contract={"ctas_per_sm": 6}, static_shared_bytes=0)
        self.packed()
        (self.folder / "out.bundle").unlink()
        self.one(contract={"ctas_per_sm": 6}, static_shared_bytes=8192)
        self.refused("41984 of 233472")

    def test_the_smaller_sms_of_sm_120_are_known(self):
        self.one(120, "sm_120,sm_121", contract={"dynamic_shared_bytes": 49 * 1024})
        self.packed()
        (self.folder / "out.bundle").unlink()
        self.one(120, "sm_120,sm_121", contract={"dynamic_shared_bytes": 50 * 1024})
        self.refused("52224 of 102400")

    def test_a_spill_must_be_declared(self):
        self.one(local_bytes=40)
        self.refused("image.fatbin", "spills", "40 bytes", "32 registers", "may_spill")
        self.one(local_bytes=40, may_spill="cold path")
        self.refused("may spill", "CONTRACT_FLAG_MAY_SPILL")
        self.one(local_bytes=40, may_spill="cold path", contract={"flags": 1})
        self.packed()
        (self.folder / "out.bundle").unlink()
        self.one(contract={"flags": 1})
        self.refused("must not spill", "CONTRACT_FLAG_MAY_SPILL")

    # ---- records

    def test_two_records_of_one_name_are_refused(self):
        self.one()
        (self.folder / "again.fatbin").write_bytes(fatbin.image(90, kernel("read_ceiling_sm90", {"stages": 2})))
        text = (self.folder / "manifest").read_text(encoding="utf-8")
        self.manifest(text + "image\tagain.fatbin\nkernel\tread_ceiling_sm90\tsm_90\t\n")
        self.refused("two kernels are called read_ceiling_sm90")

    def test_two_records_of_one_contract_are_refused_on_one_gpu_only(self):
        for name in "ab":
            self.image(f"{name}.fatbin", fatbin.image(120, kernel(f"read_ceiling_{name}")))
        lines = "target\t120\nimage\ta.fatbin\nkernel\tread_ceiling_a\t{}\t\nimage\tb.fatbin\nkernel\tread_ceiling_b\t{}\t\n"
        self.manifest(lines.format("sm_120,sm_121", "sm_121"))
        self.refused("read_ceiling_a and read_ceiling_b", "one and the same contract")
        self.manifest(lines.format("sm_120", "sm_121"))
        self.packed()

    # ---- images

    def test_a_missing_image_is_refused(self):
        self.one()
        (self.folder / "image.fatbin").unlink()
        self.refused("image.fatbin", "No such file")

    def test_a_missing_kernel_is_refused(self):
        self.one(declared="read_ceiling_other")
        self.refused("image.fatbin", "no kernel 'read_ceiling_other'")

    def test_a_missing_contract_is_refused(self):
        self.image("image.fatbin", fatbin.image(90, dataclasses.replace(kernel("read_ceiling_sm90"), contract=None)))
        self.manifest("target\t90\nimage\timage.fatbin\nkernel\tread_ceiling_sm90\tsm_90\t\n")
        self.refused("image.fatbin", "no object 'read_ceiling_sm90_contract'")

    def test_a_contract_of_another_size_is_refused(self):
        whole = kernel("read_ceiling_sm90")
        self.one(contract=None)
        self.image("image.fatbin", fatbin.image(90, dataclasses.replace(whole, contract=whole.contract[:-4])))
        self.refused("image.fatbin", f"has {len(whole.contract) - 4} bytes", f"{len(whole.contract)}")

    def test_more_kernels_than_declared_are_refused(self):
        self.one()
        self.image("image.fatbin", fatbin.image(90, kernel("read_ceiling_sm90"), kernel("read_ceiling_more")))
        self.refused("image.fatbin", "holds 2 kernels", "declares 1")

    def test_an_image_for_another_gpu_is_refused(self):
        self.one()
        self.image("image.fatbin", fatbin.image(100, kernel("read_ceiling_sm90")))
        self.refused("image.fatbin", "sm_100", "sm_90")

    def test_images_that_are_not_one_whole_cubin_are_refused(self):
        cubin = fatbin.cubin(90, [kernel("read_ceiling_sm90")])
        whole = fatbin.fatbin(fatbin.entry(90, cubin))
        cases = {
            "empty": (b"", "0 bytes"),
            "truncated": (whole[:-1], "announces"),
            "bytes behind": (whole + b"\0", "announces"),
            "no fatbin": (cubin, "no fatbin header"),
            "PTX": (fatbin.fatbin(fatbin.entry(90, cubin, kind=1)), "not a cubin"),
            "two cubins": (fatbin.fatbin(fatbin.entry(90, cubin), fatbin.entry(90, cubin)), "not exactly one cubin"),
            "compressed": (fatbin.fatbin(fatbin.entry(90, cubin, uncompressed_bytes=9999)), "--compress-mode=none"),
            "header of another GPU": (fatbin.fatbin(fatbin.entry(100, cubin)), "fatbin says sm_100"),
        }
        for mistake, (data, says) in cases.items():
            with self.subTest(mistake):
                self.one()
                self.image("image.fatbin", data)
                self.refused("image.fatbin", says)

    # ---- manifest and command line

    def test_malformed_manifests_are_refused(self):
        kernel_line = "kernel\tread_ceiling_sm90\tsm_90\t\n"
        cases = {
            "empty": ("", "names no kernel"),
            "no kernel": ("target\t90\nimage\timage.fatbin\n", "names no kernel"),
            "no target": ("image\timage.fatbin\n" + kernel_line, "manifest:1"),
            "target that is none": ("target\tx\n", "manifest:1"),
            "kernel before image": ("target\t90\n" + kernel_line, "manifest:2"),
            "unknown line": ("target\t90\nfile\timage.fatbin\n", "'file'"),
            "too many fields": ("target\t90\nimage\timage.fatbin\tx\ty\tz\n" + kernel_line, "manifest:2"),
            "cut off": ("target\t90\nimage\timage.fatbin\n" + kernel_line.rstrip("\n"), "cut off"),
            "GPU of another family": ("target\t90\nimage\timage.fatbin\n" + kernel_line.replace("sm_90", "sm_100"), "'sm_100'"),
            "no GPU": ("target\t90\nimage\timage.fatbin\n" + kernel_line.replace("\tsm_90", "\t"), "''"),
            "name too long": ("target\t90\nimage\timage.fatbin\n" + kernel_line.replace("ceiling", "c" * 128), "127"),
        }
        self.one()
        for mistake, (text, says) in cases.items():
            with self.subTest(mistake):
                self.manifest(text)
                self.refused("manifest", says)

    def test_a_bad_command_line_shows_how_it_is_used(self):
        files = ["--manifest", "m", "--images", "i", "--output", "o"]
        for arguments in ([], files, [*files, "--level", "3", "--toolkit", "x"], [*files, "--level", "99", "--toolkit", "13.0"],
                          [*files, "--level", "3", "--toolkit", "13.0", "more"], ["--unknown"],
                          *([*files, "--level", "3", "--toolkit", "13.0", "--dictionary", text]
                            for text in ("1023", "-1", "1048577", "much"))):
            result = subprocess.run([PACK, *arguments], capture_output=True, text=True, check=False)
            self.assertEqual(result.returncode, 2)
            self.assertIn("usage: pack", result.stderr)

    def test_a_bundle_that_cannot_be_written_is_an_error(self):
        self.one()
        (self.folder / "out.bundle").mkdir()
        result = self.pack()
        self.assertEqual(result.returncode, 1)
        self.assertIn("out.bundle: Is a directory", result.stderr)


if __name__ == "__main__":
    unittest.main()
