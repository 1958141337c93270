# SPDX-License-Identifier: Apache-2.0
"""What the tests need of PyTorch on the GPU that the processor plays: a module that has what is asked of PyTorch, with tensors "on
the device"."""

import types
import unittest
from unittest import mock

import numpy as np

import played_gpu
from libdecode import driver
from libdecode import workspace as workspaces
from played_gpu import Batch, Stream


class PlayedTorch(unittest.TestCase):
    """`self.torch` is PyTorch, `self.stream` its current stream, `self.made` what it has allocated."""

    def setUp(self):
        played_gpu.make_current()
        workspaces.pool.__init__()
        driver.torch_quick.cache_clear()
        self.addCleanup(driver.torch_quick.cache_clear)
        case = self
        self.stream, self.capturing, self.made, self.current = Stream(), False, [], 0

        class Tensor:
            """On the device "cuda:0"."""

            def __init__(self, array, dtype, ordinal=0):
                self.array, self.dtype, self.shape = array, dtype, array.shape
                self.device = types.SimpleNamespace(type="cuda", index=ordinal)

            def data_ptr(self):
                return self.array.ctypes.data if self.array.size > 0 else 0

            def stride(self):
                return tuple(stride // self.array.itemsize for stride in self.array.strides)

            def storage_offset(self):
                return 0

            def as_strided(self, shape, strides, first):
                steps = [stride * self.array.itemsize for stride in strides]
                return Tensor(np.lib.stride_tricks.as_strided(self.array.reshape(-1)[first:], shape, steps), self.dtype)

            def contiguous(self):
                case.made.append((self.dtype, "a copy"))
                return Tensor(np.ascontiguousarray(self.array), self.dtype)

            def is_contiguous(self):
                return self.array.flags.c_contiguous

        def empty(shape, dtype, device):
            case.assertFalse(case.capturing and dtype == "torch.uint8", "a workspace was allocated in a capture")
            case.made.append((dtype, device))
            return Tensor(np.zeros(shape, carriers[dtype]), dtype)

        def empty_strided(shape, strides, dtype, device):
            made = empty(shape, dtype, device)
            case.assertEqual(made.stride(), strides)
            return made

        def tensor(elements, dtype, device):
            case.made.append((dtype, device))
            return Tensor(np.array(elements, carriers[dtype]), dtype)

        def set_device(ordinal):
            case.current = ordinal
            played_gpu.make_current()

        self.Tensor = Tensor
        carriers = {"torch.bfloat16": np.uint16, "torch.float16": np.float16, "torch.float32": np.float32, "torch.uint8": np.uint8}
        names = {name: f"torch.{name}" for name in ("bfloat16", "float16", "float8_e4m3fn", "uint8", "float32")}
        self.torch = types.SimpleNamespace(
            Tensor=Tensor, dtype=type("dtype", (), {}), device=lambda kind, ordinal: (kind, ordinal), **names,
            empty=empty, empty_strided=empty_strided, tensor=tensor,
            _C=types.SimpleNamespace(_cuda_getCurrentRawStream=lambda ordinal: case.stream.handle),
            cuda=types.SimpleNamespace(is_available=lambda: True, current_device=lambda: case.current, set_device=set_device,
                                       is_current_stream_capturing=lambda: case.capturing))
        patch = mock.patch.dict("sys.modules", {"torch": self.torch})
        patch.start()
        self.addCleanup(patch.stop)
        self.batch = Batch()

    def arguments(self, ordinal=0):
        cache = self.batch.cache
        on = lambda array, dtype: self.Tensor(array, f"torch.{dtype}", ordinal)
        return (on(self.batch.bits, "bfloat16"), (on(cache.k_bits, "bfloat16"), on(cache.v_bits, "bfloat16")), None,
                on(cache.tables, "int32"), on(cache.seq_lens, "int32"), 70, 0.125)
