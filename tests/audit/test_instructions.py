# SPDX-License-Identifier: Apache-2.0
"""Every image, disassembled: it uses the instructions that its speed rests on, and keeps nothing in local memory unless the grid says that it may.

test_instructions.py FOLDER_OF_NVCC FOLDER_OF_IMAGES NAME...

For GPUs that nobody here can run on, this and the contract that pack checks are all that is known before `libdecode check` runs.
Needs cuobjdump and nvdisasm, beside nvcc or on PATH; exit code 77 without.
"""

import concurrent.futures
import os
import pathlib
import re
import shutil
import subprocess
import sys
import unittest

NVCC_FOLDER, IMAGES, *NAMES = sys.argv[1:]
SEARCHED = os.pathsep.join([NVCC_FOLDER, os.environ.get("PATH", "")])
CUOBJDUMP = shutil.which("cuobjdump", path=SEARCHED)
SKIPPED = 77

CONVERT = "F2FP.F16.E4M3.UNPACK_B"  # two e4m3 to two fp16
# What the tensor cores multiply, and what makes operands of it.
OF_KV = {
    "bf16": {"HMMA.16816.F32.BF16"},
    "fp16": {"HMMA.16816.F32"},
    "e4m3": {"HMMA.16816.F32", CONVERT},
    "nvfp4": {"HMMA.16816.F32", CONVERT, "HMUL2", "LDGSTS"},  # and the copies of its scales
    "e5m2": {"HMMA.16816.F32", CONVERT, "PRMT"},  # converts queries of e4m3 alone
}
# With tiles of more rows than this: the matrix instructions of warpgroups, which have names of their own.
MOST_MMA_ROWS = 32
# One TMA box per page and tensor, or copies of the lanes.
OF_PAGES = {"16": {"UTMALDG.5D"}, "64": {"UTMALDG.5D"}, "1": {"LDGSTS"}}
CLUSTER_BARRIER = {"UCGABAR_ARV", "UCGABAR_WAIT"}
CLUSTER = {"STAS"} | CLUSTER_BARRIER  # stores into a neighbour's shared memory
LOCAL = {"LDL", "STL"}
QUERY_COPIES = {"LDGSTS"}  # of 64 rows, where they are converted
# One GPU's features on sm_90; those of the family elsewhere: an image of sm_100a is refused by sm_103, one of sm_100f is not.
ARCH = {"sm90": "sm_90a", "sm100": "sm_100f", "sm120": "sm_120f"}
GENERIC = {"LD"}  # of an address that may be anything: the parameter block by reference, a trip to memory for every word
# Sparse MLA gathers rows of several formats.
OF_ROWS = {
    "plain": set(),
    "scaled656": {"HMMA.16816.F32.BF16", "HMUL2"},  # the part with the position; scales of V
    "nvfp352": {"HMUL2"},
}
# Of warpgroups; and the wait for all of them, which stands behind every one where ptxas has serialised them, as it says (C7510, C7512).
MATRIX, WAIT_FOR_ALL = r"\b[HQ]GMMA\.", r"\bWARPGROUP\.DEPBAR\.LE gsb0, 0x0\b"
TRIGGER = {"PREEXIT"}  # lets a dependent grid begin early
OF_FAMILY = {
    # mbarriers, ldmatrix, exp2, both halves of programmatic dependent launch
    "gqa_decode": {"SYNCS", "LDSM", "MUFU.EX2", "ACQBULK"} | TRIGGER,
    "mla_decode": {"SYNCS", "LDSM", "MUFU.EX2", "ACQBULK"} | TRIGGER,
    "sparse_mla_decode": {"SYNCS", "LDSM", "MUFU.EX2", "ACQBULK", "UBLKCP"},  # a bulk copy for each row
    "merge_states": {"MUFU.EX2", "ACQBULK", "LDG.E.128", "STG.E.128"},
    "read_ceiling": {"UBLKCP", "SYNCS"},
    "late_copy": {"ACQBULK"} | TRIGGER,
    "page_ceiling": {"SYNCS", "ACQBULK"} | TRIGGER,
}


def disassemble(name):
    """What cuobjdump prints, and the opcodes in it."""
    result = subprocess.run([CUOBJDUMP, "-sass", pathlib.Path(IMAGES) / f"{name}.fatbin"], capture_output=True, text=True, check=True,
                            env=os.environ | {"PATH": SEARCHED})
    return result.stdout, set(re.findall(r"^\s+/\*[0-9a-f]+\*/\s+(?:@!?U?P\w+ )?([A-Z][\w.]*)", result.stdout, re.MULTILINE))


def used(opcodes, wanted):
    """Those of `wanted` that are there, alone or with more modifiers: SYNCS is used where SYNCS.EXCH.64 is."""
    return {word for word in wanted if any(opcode == word or opcode.startswith(word + ".") for opcode in opcodes)}


def of_warpgroups(wanted):
    """The same, with the matrix instructions of warpgroups for those of single warps."""
    single = {word for word in wanted if word.startswith("HMMA.")}
    return wanted - single | {word.replace("HMMA.16816", "HGMMA.64x64x16") for word in single} | {"STSM"}


class InstructionsTest(unittest.TestCase):
    def test_every_image_uses_what_it_should_and_nothing_that_it_should_not(self):
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            images = list(zip(NAMES, pool.map(disassemble, NAMES), strict=True))
        for name, (text, opcodes) in images:
            with self.subTest(name):
                wanted = next(words for family, words in OF_FAMILY.items() if name.startswith(family + "_"))
                fields = re.search(r"_kv(\w+?)_d\d+_r(\d+)(?:_p(\d+))?_c(\d+)(?:_o(\d))?_sm\d+$", name)
                unwanted = (LOCAL | CLUSTER | TRIGGER | GENERIC) - wanted
                if fields and name.startswith("page_ceiling_"):  # copies, and nothing that computes
                    wanted = wanted | OF_PAGES[fields[3]] | ({"LDGSTS"} if fields[1] == "nvfp4" else set())
                    unwanted = unwanted | {"HMMA", "LDSM", "MUFU.EX2"}
                    if int(fields[4]) > 1:
                        wanted, unwanted = wanted | CLUSTER_BARRIER, unwanted - CLUSTER_BARRIER
                    fields = None
                if rows := re.search(r"^sparse_mla_decode_kv(\w+?)_rows(\w+?)_d\d+_r(\d+)_c(\d+)_sm(\d+)$", name):
                    wanted = wanted | (OF_KV[rows[1]] - {"LDGSTS"}) | OF_ROWS[rows[2]]
                    unwanted = unwanted | (OF_KV["bf16"] | {"LDGSTS", "UTMALDG"}) - wanted
                    if int(rows[3]) > MOST_MMA_ROWS:
                        wanted = of_warpgroups(wanted) | QUERY_COPIES
                        if rows[2] in ("plain", "nvfp352"):  # copies of the lanes, or stores, into tiles that have a swizzle
                            wanted, unwanted = wanted - {"UBLKCP"}, unwanted | {"UBLKCP"}
                            if rows[2] == "nvfp352":  # which the second cache has been asked for
                                wanted = wanted | {"CCTL.E.PF2", "STS.128"}
                            elif rows[1] == "e4m3":
                                wanted = wanted | {"QGMMA.64x64x32.F32.E4M3.E4M3"}
                            elif "_d512_" in name:  # all of the query stays in shared memory: K has no line that V lacks
                                wanted, unwanted = wanted - {"LDSM"}, unwanted | {"LDSM"}
                        unwanted = (unwanted | {"HMMA"}) - wanted - LOCAL  # as the grid declares
                    if int(rows[4]) > 1:
                        wanted, unwanted = wanted | CLUSTER, unwanted - CLUSTER
                    if rows[2] != "plain" and rows[3] == "32" and rows[5] == "100":  # as the grid declares
                        unwanted = unwanted - LOCAL
                    fields = None
                if fields:
                    kv_dtype, row_tile, min_page_size, cluster_size, options = fields.groups()
                    wanted = wanted | OF_KV[kv_dtype] | OF_PAGES[min_page_size or "16"]
                    unwanted = unwanted | OF_KV["bf16"] - wanted
                    if int(row_tile) > MOST_MMA_ROWS:
                        wanted, unwanted = of_warpgroups(wanted), unwanted | {"HMMA"}
                    if name.startswith("gqa_decode_") and int(row_tile) > MOST_MMA_ROWS:  # operands as they lie in tiles
                        wanted = {word.replace("64x64x16", "64x32x16") for word in wanted} - {"LDSM"}
                        unwanted = unwanted | {"LDSM"}
                    if name.startswith("mla_decode_") and (row_tile, kv_dtype) == ("64", "e4m3"):
                        wanted = wanted | QUERY_COPIES | {"QGMMA.64x64x32.F32.E4M3.E4M3"}
                    if re.search(r"^mla_decode_kve4m3_d\d+_r16_c[12]_sm90$", name):  # with queries of e4m3
                        wanted = wanted | {"QGMMA.64x16x32.F32.E4M3.E4M3"}
                    wide = name.startswith("mla_decode_") and (row_tile == "32" or (row_tile, kv_dtype) == ("64", "e4m3"))
                    if re.search(r"^gqa_decode_kv((e4m3|nvfp4|e5m2)_d128_r(64|128)_p\d+_(c[28]|c1_o3)_|\w+_d128_r(64|128)_p16_c[28]_o3_)", name):
                        wide = True
                    passes_over_tiles = kv_dtype in ("bf16", "fp16") and (row_tile, options) == ("16", "3") and cluster_size in ("2", "8")
                    if options in ("1", "4") or passes_over_tiles or wide:  # as the grid declares
                        unwanted = unwanted - LOCAL
                if fields and int(cluster_size) > 1:
                    wanted, unwanted = wanted | CLUSTER, unwanted - CLUSTER
                self.assertRegex(text, rf"Function : {name}\n")
                self.assertRegex(text, rf"\narch = {ARCH[name.rsplit('_', 1)[1]]}\n")
                self.assertEqual(wanted - used(opcodes, wanted), set(), "missing")
                self.assertEqual(used(opcodes, unwanted), set(), "not wanted")
                matrix, waits = len(re.findall(MATRIX, text)), len(re.findall(WAIT_FOR_ALL, text))
                self.assertTrue(matrix == 0 or waits < matrix, f"{matrix} matrix instructions one after the other")


if CUOBJDUMP is None or shutil.which("nvdisasm", path=SEARCHED) is None:
    print("no cuobjdump and nvdisasm beside nvcc or on PATH")
    sys.exit(SKIPPED)
unittest.main(argv=sys.argv[:1])
