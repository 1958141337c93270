# SPDX-License-Identifier: Apache-2.0
"""What the tests need on a GPU played by the processor (tests/command/host_gpu.h): bundles, a context, tensors "on the
device"."""

import ctypes
import os
import pathlib
import subprocess
import tempfile

import numpy as np

from libdecode import typed
from numpy_attention import Cache, attention, random_bits, values

LENS = [5, 70, 33, 16, 0]
ROUNDING_OF_P = 5e-3  # of kernels, in units of V's size

folder = tempfile.TemporaryDirectory()
subprocess.run([os.environ["LIBDECODE_WRITE_BUNDLES"], folder.name], check=True)
BUNDLES = pathlib.Path(folder.name)
FORMATS = BUNDLES / "formats"  # a kernel of every format for sm_90

# Read when the default context is opened.
os.environ.update(LIBDECODE_BUNDLE_PATH=str(FORMATS), LIBDECODE_BUNDLE_ONLY="1")

libcuda = ctypes.CDLL("libcuda.so.1")


def make_current():
    """The primary context of the one GPU becomes that of the calling thread."""
    context = ctypes.c_void_p()
    assert libcuda.cuInit(0) == 0
    assert libcuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
    assert libcuda.cuCtxSetCurrent(context) == 0


class Stream:
    """A stream, whose launches can be recorded into a graph instead of being run."""

    def __init__(self):
        handle = ctypes.c_void_p()
        assert libcuda.cuStreamCreate(ctypes.byref(handle), 0) == 0
        self.handle = handle.value

    def begin(self):
        assert libcuda.cuStreamBeginCapture_v2(ctypes.c_void_p(self.handle), 0) == 0

    def end(self):
        """Returns what replays the graph."""
        graph, instance = ctypes.c_void_p(), ctypes.c_void_p()
        assert libcuda.cuStreamEndCapture(ctypes.c_void_p(self.handle), ctypes.byref(graph)) == 0
        assert libcuda.cuGraphInstantiateWithFlags(ctypes.byref(instance), graph, ctypes.c_uint64(0)) == 0
        return lambda: libcuda.cuGraphLaunch(instance, ctypes.c_void_p(self.handle))


class OnDevice:
    """A numpy array that says it lies on a GPU."""

    def __init__(self, array):
        self.array = array

    @property
    def __cuda_array_interface__(self):
        return dict(self.array.__array_interface__)


class Batch:
    """A cache of LENS and a query, on the host and "on the device"."""

    def __init__(self, dtype="bf16", query_dtype="bf16", **shape):
        self.cache = Cache(dtype, LENS, **shape)
        self.bits = random_bits(self.cache.generator, query_dtype, (len(LENS), 8, 64))
        self.query_dtype, self.dtype = query_dtype, dtype
        self.out = np.zeros((len(LENS), 8, 64), np.uint16)

    def arguments(self):
        """Of the decode call, but max_seq_len."""
        on = lambda bits, dtype: typed(OnDevice(bits), dtype)
        return (on(self.bits, self.query_dtype), (on(self.cache.k_bits, self.dtype), on(self.cache.v_bits, self.dtype)), None,
                OnDevice(self.cache.tables), OnDevice(self.cache.seq_lens))

    def check(self, case, **options):
        expected, lse = attention(values(self.bits, self.query_dtype), self.cache.k, self.cache.v, self.cache.tables, LENS,
                                  [1] * len(LENS), **{"scale": 0.125, **options})
        np.testing.assert_allclose(values(self.out, "bf16"), expected, rtol=2.0**-7, atol=ROUNDING_OF_P)
        return lse
