# SPDX-License-Identifier: Apache-2.0
"""The command line of the comparisons with PyTorch, pytorch_*_check.py, and what they print: cases in, the exit code out."""

import argparse
import collections
import math
import random
import sys
import time

import torch

import libdecode

from pytorch_elements import check_e4m3, check_e5m2

NO_KERNEL = (libdecode.UnsupportedError, libdecode.NotInBundleError)
ROUNDING_SLACK = 1e-6  # float64 against float64: far below a unit in the last place, far above 2^-53


class Skipped(Exception):
    """This machine has no room for the case."""


def read_arguments(document, default_cases):
    parser = argparse.ArgumentParser(description=document, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library", metavar="LIBDECODE_SO")
    parser.add_argument("--gpu", action="store_true", help="the kernels instead of the reference")
    parser.add_argument("--bundle", action="append", default=[], metavar="PATH", help="a bundle beside the installed ones")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cases", type=int, default=default_cases)
    parser.add_argument("--only", default="", help="run the cases whose number and name, like '#42 q_bf16', hold this text")
    parser.add_argument("--seconds", type=float, default=math.inf, help="after which no further case begins")
    return parser.parse_args()


def seeded_cases(arguments, make_case):
    """make_case(number) for as many numbers as were asked for. What a case draws, and its data, follow from seed and number."""
    for number in range(arguments.cases):
        random.seed(arguments.seed * 1_000_003 + number)
        torch.manual_seed(arguments.seed * 1_000_003 + number)
        yield make_case(number)


def run_all(arguments, cases, run, kinds=lambda _case, _kernel: ["all"]):
    """run(case) returns the errors of out and of lse in half units beyond the tolerance, those of out over its rms (largest, rms), and
    the kernel. kinds(case, kernel): of what the worst errors are told. Ends the program: with 1 if a case fails or none ran."""
    check_e4m3()
    check_e5m2()
    passed = failed = 0
    worst, counts, kernels = {}, collections.Counter(), set()
    refused, skipped = collections.Counter(), collections.Counter()
    start = time.monotonic()
    for number, case in enumerate(cases):
        label = f"#{number} {case.name()}"
        if arguments.only not in label:
            continue
        if time.monotonic() - start > arguments.seconds:
            print(f"ended by time before case {number}")
            break
        try:
            *errors, kernel = run(case)
        except Skipped as reason:
            skipped[str(reason)] += 1
            continue
        except libdecode.LibdecodeError as error:
            if not arguments.gpu or type(error) not in NO_KERNEL:
                print(f"{label}: {case}")
                raise
            refused[str(error)] += 1
            continue
        out_error, lse_error, largest, rms = errors
        good = out_error <= 1 + ROUNDING_SLACK and lse_error <= 1 + ROUNDING_SLACK
        passed, failed = passed + good, failed + (not good)
        kernels.add(kernel)
        for kind in kinds(case, kernel):
            worst[kind] = [max(pair) for pair in zip(worst.get(kind, [0.0] * 4), errors)]
            counts[kind] += 1
        print(f"{'ok    ' if good else 'FAILED'} {label:<90} {kernel} out: {largest:.3g} largest, {rms:.3g} rms, "
              f"{out_error:.4f} half units; lse: {lse_error:.4f} half units")
    for kind, (out_error, lse_error, largest, rms) in sorted(worst.items()):
        print(f"{kind}, {counts[kind]} cases, the worst: error over the rms of out {largest:.3g} largest, {rms:.3g} rms; beyond the tolerance "
              f"{out_error:.6f} half units, lse {lse_error:.6f}")
    for what, counted in (("not run", refused), ("skipped", skipped)):
        for reason, count in counted.most_common():
            print(f"{what}, {count} times: {reason}")
    print(f"{passed} passed, {failed} failed, {sum(refused.values())} refused, {sum(skipped.values())} skipped, {len(kernels)} kernels "
          f"(PyTorch {torch.__version__}, seed {arguments.seed}, {time.monotonic() - start:.0f} s)")
    sys.exit(1 if failed or not passed else 0)
