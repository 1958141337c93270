# SPDX-License-Identifier: Apache-2.0
"""The examples of packaging/python: the call runs, and the backends run against stubs of the engines' interfaces, on the host."""

import abc
import contextlib
import enum
import importlib.util
import inspect
import io
import os
import pathlib
import runpy
import sys
import types
import unittest
from unittest import mock

import skip  # noqa: F401
import numpy as np

try:
    import torch
except ImportError:
    print("no torch: not run")
    sys.exit(77)

from numpy_attention import attention

EXAMPLES = pathlib.Path(os.environ["SOURCE_ROOT"]) / "packaging/python/examples"


def load(name, **modules):
    """An example as a module, with these in the place of an engine's."""
    packages = {".".join(path.split(".")[:count]): types.ModuleType("package") for path in modules for count in range(1, path.count(".") + 1)}
    with mock.patch.dict(sys.modules, {**packages, **modules}):
        specification = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
        module = importlib.util.module_from_spec(specification)
        specification.loader.exec_module(module)
    return module


def same_parameters(case, ours, theirs, extra=()):
    """An engine that calls by its own names finds them, in its order."""
    names = [name for name in inspect.signature(ours).parameters if name not in extra]
    case.assertEqual(names, list(inspect.signature(theirs).parameters), ours.__qualname__)


# --------------------------------------------------------------------------------------------------------------------- vLLM


class VllmBackend(abc.ABC):
    @staticmethod
    @abc.abstractmethod
    def get_name(): ...
    @staticmethod
    @abc.abstractmethod
    def get_impl_cls(): ...
    @staticmethod
    @abc.abstractmethod
    def get_builder_cls(): ...
    @staticmethod
    def get_supported_kernel_block_sizes(kv_cache_spec=None): ...
    @classmethod
    def supports_sliding_window(cls):
        return False


class VllmBuilder(abc.ABC):
    @abc.abstractmethod
    def __init__(self, kv_cache_spec, layer_names, vllm_config, device): ...
    @abc.abstractmethod
    def build(self, common_prefix_len, common_attn_metadata, fast_build=False): ...


class VllmImpl(abc.ABC):
    @abc.abstractmethod
    def __init__(self, num_heads, head_size, scale, num_kv_heads=None, alibi_slopes=None, sliding_window=None, kv_cache_dtype="auto",
                 logits_soft_cap=None, attn_type="decoder", kv_sharing_target_layer_name=None): ...
    @abc.abstractmethod
    def forward(self, layer, query, key, value, kv_cache, attn_metadata, output, output_scale=None, output_block_scale=None): ...


def reshape_and_cache_flash(key, value, key_cache, value_cache, slot_mapping, kv_cache_dtype, _k_scale, _v_scale):
    """Stores rows into NHD pages."""
    block_size = key_cache.shape[1]
    for rows, cache in ((key, key_cache), (value, value_cache)):
        if kv_cache_dtype == "fp8":
            rows = rows.to(torch.float8_e4m3fn).view(torch.uint8)
        cache[slot_mapping // block_size, slot_mapping % block_size] = rows[: len(slot_mapping)]


class VllmTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        interface = types.SimpleNamespace(
            AttentionBackend=VllmBackend, AttentionImpl=VllmImpl, AttentionMetadataBuilder=VllmBuilder, AttentionMetadata=object,
            AttentionType=types.SimpleNamespace(DECODER="decoder"), MultipleOf=lambda base: base,
            AttentionCGSupport=enum.Enum("AttentionCGSupport", "ALWAYS NEVER"))
        custom_ops = types.SimpleNamespace(reshape_and_cache_flash=reshape_and_cache_flash)
        vllm = types.ModuleType("vllm")
        vllm._custom_ops = custom_ops
        cls.example = load("vllm_backend", **{"vllm": vllm, "vllm._custom_ops": custom_ops, "vllm.v1.attention.backend": interface})
        cls.backend = cls.example.LibdecodeBackend

    def test_it_has_the_interface(self):
        self.backend()  # nothing abstract is left
        self.assertEqual(self.backend.get_name(), "LIBDECODE")
        impl, builder = self.backend.get_impl_cls(), self.backend.get_builder_cls()
        same_parameters(self, impl.__init__, VllmImpl.__init__, extra=["sinks"])
        same_parameters(self, impl.forward, VllmImpl.forward)
        same_parameters(self, builder.build, VllmBuilder.build)
        same_parameters(self, builder.__init__, VllmBuilder.__init__)
        same_parameters(self, self.backend.get_supported_kernel_block_sizes, VllmBackend.get_supported_kernel_block_sizes)
        self.assertTrue(self.backend.supports_sliding_window())
        with self.assertRaisesRegex(NotImplementedError, "ALiBi"):
            impl(8, 64, 1.0, alibi_slopes=[1.0] * 8)

    def forward(self, kv_cache_dtype, q_lens, window=None, order=(0, 1, 2, 3)):
        """Fills a cache, whose axes memory has in that order, forwards the last tokens of two requests, and compares with numpy."""
        lens, heads, kv_heads, dim, scale = [40, 21], 8, 2, 64, 0.125
        torch.manual_seed(1)
        kinds = {"auto": torch.bfloat16, "fp8": torch.uint8}
        shape = 8, kv_heads, 16, 2 * dim  # a token's K and V side by side
        cache = torch.zeros([shape[axis] for axis in order], dtype=kinds[kv_cache_dtype]).permute(*np.argsort(order).tolist())
        history = torch.randn(2, 8, 16, kv_heads, dim).to(torch.bfloat16)
        values = history.to(torch.float8_e4m3fn) if kv_cache_dtype == "fp8" else history
        stored = values.view(torch.uint8) if kv_cache_dtype == "fp8" else values
        cache[..., :dim], cache[..., dim:] = stored.transpose(2, 3)
        table = torch.tensor([[3, 1, 4], [5, 7, 0]], dtype=torch.int32)
        cum = torch.tensor([0, *np.cumsum(q_lens)], dtype=torch.int32)
        tokens, padding = sum(q_lens), 3
        slots = torch.tensor([int(table[request, position // 16]) * 16 + position % 16 for request, (length, count) in
                              enumerate(zip(lens, q_lens)) for position in range(length - count, length)])
        query, key, value = (torch.randn(tokens + padding, count, dim).to(torch.bfloat16) for count in (heads, kv_heads, kv_heads))
        pools = values.clone()
        for pool, rows in zip(pools, (key, value)):
            pool.view(-1, kv_heads, dim)[slots] = rows[:tokens].to(pool.dtype)
        common = types.SimpleNamespace(
            num_actual_tokens=tokens, max_query_len=max(q_lens), max_seq_len=max(lens), query_start_loc=cum,
            seq_lens=torch.tensor(lens, dtype=torch.int32), block_table_tensor=table, slot_mapping=slots, causal=True)
        metadata = self.backend.get_builder_cls()(None, [], None, "cpu").build(0, common)
        impl = self.backend.get_impl_cls()(heads, dim, scale, kv_heads, sliding_window=window, kv_cache_dtype=kv_cache_dtype)
        layer = types.SimpleNamespace(_k_scale=None, _v_scale=None, _k_scale_float=0.5, _v_scale_float=2.0)
        output = torch.full((tokens + padding, heads * dim), 9.0, dtype=torch.bfloat16)
        impl.forward(layer, query, key, value, cache, metadata, output)
        k, v = (pool.double().numpy().transpose(0, 2, 1, 3) for pool in pools)
        expected, _ = attention(query[:tokens].double().numpy(), k, v, table.numpy(), lens, q_lens, scale=scale * 0.5, v_scale=2.0,
                                window=-1 if window is None else window - 1)
        np.testing.assert_allclose(output[:tokens].double().numpy().reshape(expected.shape), expected, rtol=2.0**-8, atol=1e-6)
        self.assertTrue((output[tokens:] == 9).all())

    def test_decode_steps(self):
        self.forward("auto", [1, 1])
        self.forward("fp8", [1, 1])
        self.forward("auto", [1, 1], window=8)
        for order in ((0, 2, 1, 3), (1, 0, 2, 3)):
            self.forward("auto", [1, 1], order=order)

    def test_steps_of_several_tokens(self):
        self.forward("auto", [3, 3])
        self.forward("fp8", [5, 1], window=8)

    def test_what_is_not_causal(self):
        with self.assertRaisesRegex(NotImplementedError, "causal"):
            self.backend.get_builder_cls()(None, [], None, "cpu").build(0, types.SimpleNamespace(causal=torch.tensor([True, False])))

    def test_limits_and_profiling(self):
        impl = self.backend.get_impl_cls()(8, 64, 1.0)
        output = torch.ones(2, 512)
        self.assertFalse(impl.forward(None, None, None, None, None, None, output).any())
        with self.assertRaisesRegex(NotImplementedError, "1025 new tokens"):
            impl.forward(None, None, None, None, None, types.SimpleNamespace(num_actual_tokens=1, max_query_len=1025), output)


# -------------------------------------------------------------------------------------------------------------------- SGLang


class SglangBackend(abc.ABC):
    def init_forward_metadata(self, forward_batch): ...
    def init_cuda_graph_state(self, max_bs, max_num_tokens): ...
    def init_forward_metadata_out_graph(self, forward_batch, in_capture=False): ...
    def init_forward_metadata_in_graph(self, forward_batch): ...
    def get_cuda_graph_seq_len_fill_value(self): ...
    def forward_decode(self, q, k, v, layer, forward_batch, save_kv_cache=True, **kwargs): ...
    def forward_extend(self, q, k, v, layer, forward_batch, save_kv_cache=True, **kwargs): ...


class SglangWriteLoc(types.SimpleNamespace):
    @classmethod
    def for_batch(cls, forward_batch):
        return cls(slots=forward_batch.out_cache_loc)


class SglangWindowPool: ...


class SglangTest(unittest.TestCase):
    def setUp(self):
        self.cls = load("sglang_backend", **{
            "sglang.srt.layers.attention.base_attn_backend": types.SimpleNamespace(AttentionBackend=SglangBackend),
            "sglang.srt.mem_cache.memory_pool": types.SimpleNamespace(KVWriteLoc=SglangWriteLoc),
            "sglang.srt.mem_cache.swa_memory_pool": types.SimpleNamespace(SWAKVPool=SglangWindowPool)}).LibdecodeAttnBackend
        torch.manual_seed(2)
        self.k, self.v = (torch.randn(200, 2, 64).to(torch.bfloat16) for _ in range(2))
        self.req_to_token = torch.zeros(6, 64, dtype=torch.int32)
        order = torch.randperm(200)
        self.req_to_token[4, :33], self.req_to_token[1, :12] = order[:33].int(), order[40:52].int()
        self.prefill = mock.Mock()
        pool = types.SimpleNamespace(get_key_buffer=lambda layer_id: self.k, get_value_buffer=lambda layer_id: self.v,
                                     set_kv_buffer=self.store)
        self.backend = self.cls(self.runner(pool), self.prefill)

    def runner(self, pool):
        return types.SimpleNamespace(
            device="cpu", model_config=types.SimpleNamespace(context_len=64), token_to_kv_pool=pool,
            req_to_token_pool=types.SimpleNamespace(req_to_token=self.req_to_token))

    def batch(self, is_decode=True):
        return types.SimpleNamespace(
            forward_mode=types.SimpleNamespace(is_decode=lambda: is_decode), seq_lens=torch.tensor([33, 12]),
            req_pool_indices=torch.tensor([4, 1]), batch_size=2, spec_info=None, out_cache_loc=torch.stack([self.req_to_token[4, 32], self.req_to_token[1, 11]]).long())

    def store(self, layer, place, k, v, k_scale, v_scale):
        self.assertEqual((k_scale, v_scale), (layer.k_scale, layer.v_scale))
        self.k[place.slots], self.v[place.slots] = k.view(-1, 2, 64), v.view(-1, 2, 64)

    def decode(self, batch, window=-1, sinks=None, scales=(None, None)):
        layer = types.SimpleNamespace(
            tp_q_head_num=8, head_dim=64, layer_id=0, scaling=0.125, sliding_window_size=window, logit_cap=0.0, k_scale=scales[0],
            v_scale=scales[1], k_scale_float=scales[0], v_scale_float=scales[1])
        given = {} if sinks is None else {"sinks": torch.from_numpy(sinks)}
        query, key, value = (torch.randn(2, count * 64).to(torch.bfloat16) for count in (8, 2, 2))
        out = self.backend.forward_decode(query, key, value, layer, batch, **given)
        k, v = (buffer.double().numpy()[:, :, None] for buffer in (self.k, self.v))
        expected, _ = attention(query.double().numpy().reshape(2, 8, 64), k, v, self.req_to_token.numpy()[[4, 1]], [33, 12], [1, 1],
                                scale=0.125 * (scales[0] or 1), v_scale=scales[1] or 1, window=window, sinks=sinks)
        np.testing.assert_allclose(out.double().numpy().reshape(2, 8, 64), expected, rtol=2.0**-8, atol=1e-6)

    def test_it_has_the_interface(self):
        for name, theirs in inspect.getmembers(SglangBackend, inspect.isfunction):
            self.assertIn(name, vars(self.cls))
            same_parameters(self, getattr(self.cls, name), theirs, extra=["sinks"])

    def test_decode(self):
        batch = self.batch()
        self.backend.init_forward_metadata(batch)
        self.decode(batch)
        self.decode(batch, window=5)
        self.decode(batch, scales=(0.5, 2.0))
        self.decode(batch, sinks=np.linspace(-1, 3, 8, dtype=np.float32))
        with self.assertRaisesRegex(NotImplementedError, "logit_cap 30.0, and k_rope"):
            self.backend.forward_decode(None, None, None, types.SimpleNamespace(logit_cap=30.0), batch, k_rope=1)

    def test_pools_of_windows_are_refused(self):
        with self.assertRaisesRegex(NotImplementedError, "sliding windows"):
            self.cls(self.runner(SglangWindowPool()), self.prefill)

    def test_graph_buffers(self):
        batch = self.batch()
        self.backend.init_cuda_graph_state(4, 4)
        other = self.batch()
        other.req_pool_indices, other.seq_lens = torch.tensor([0, 0]), torch.tensor([1, 1])
        self.backend.init_forward_metadata_out_graph(other, in_capture=True)
        captured = self.backend.page_table.data_ptr(), self.backend.seq_lens.data_ptr()
        self.backend.init_forward_metadata_in_graph(other)
        self.backend.init_forward_metadata_out_graph(batch)
        self.assertEqual((self.backend.page_table.data_ptr(), self.backend.seq_lens.data_ptr()), captured)
        self.decode(batch)
        with self.assertRaisesRegex(NotImplementedError, "only plain decode steps"):
            self.backend.init_forward_metadata_out_graph(self.batch(is_decode=False))

    def test_other_steps_are_the_other_backends(self):
        self.backend.init_forward_metadata(self.batch(is_decode=False))
        self.prefill.init_forward_metadata.assert_called_once()
        self.backend.forward_extend(1, 2, 3, 4, 5)
        self.prefill.forward_extend.assert_called_once_with(1, 2, 3, 4, 5, True)


class CallTest(unittest.TestCase):
    def test_flashinfers_call(self):
        said = io.StringIO()
        with contextlib.redirect_stdout(said), mock.patch.object(torch.cuda, "is_available", lambda: False):
            runpy.run_path(EXAMPLES / "flashinfer_call.py")
        self.assertTrue(said.getvalue().startswith("(2, 32, 128) torch.bfloat16 "), said.getvalue())


unittest.main()
