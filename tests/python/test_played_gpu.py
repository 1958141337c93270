# SPDX-License-Identifier: Apache-2.0
"""Contexts, plans and FlashInfer's calls on a GPU played by the processor: what is chosen, launched, captured, and refused."""

import gc
import threading
import types
import unittest
from unittest import mock

import skip  # noqa: F401
import numpy as np

import libdecode
import played_gpu
from libdecode import abi, driver, typed
from libdecode import workspace as workspaces
from libdecode.call import Call
from numpy_attention import interleaved, pack_mask, random_bits, values
from played_gpu import FORMATS, LENS, Batch, OnDevice, Stream
from played_torch import PlayedTorch


def problem(**fields):
    return libdecode.Problem(**{"query_dtype": "bf16", "batch_size": 16, "num_qo_heads": 64, "num_kv_heads": 8, "head_dim": 128,
                                "page_size": 16, "max_seq_len": 32768, **fields})


class ContextTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.context = libdecode.open([played_gpu.BUNDLES], bundles_only=True, ignore_environment=True)
        cls.addClassCleanup(cls.context.close)

    def test_kernels_and_bundles(self):
        kernels = {kernel.name: kernel for kernel in self.context.kernels()}
        kernel = kernels["gqa_decode_kvbf16_d128_r8_p16_c1_o0_sm90"]
        self.assertEqual((kernel.kv_dtype, kernel.head_dim, kernel.row_tile, kernel.cluster_size, kernel.gpus, kernel.query_dtypes),
                         ("bf16", 128, 8, 1, ("sm_90",), ("bf16",)))
        self.assertIn("sinks", kernel.features)
        self.assertEqual(len(kernel.image_sha256), 64)
        self.assertEqual(list(kernels), sorted(kernels))
        bundles = {bundle.path: bundle for bundle in self.context.bundles()}
        bundle = bundles[str(played_gpu.BUNDLES / "libdecode-sm120.bundle")]
        self.assertEqual(bundle.gpus, ("sm_120", "sm_121"))
        self.assertEqual(sum(bundle.num_kernels for bundle in bundles.values()), len(kernels))
        self.context.verify()

    def test_explain_needs_no_gpu_and_names_the_choice(self):
        for gpu, target in (("sm_90", "sm90"), ("sm_121", "sm120"), (libdecode.device_preset("sm_100"), "sm100")):
            said = self.context.explain(problem(), gpu)
            self.assertIsNone(said.error)
            self.assertRegex(said.chosen, rf"^gqa_decode_kvbf16_d128_r8_p16_c\d_o0_{target}$")
            self.assertEqual([verdict.kernel for verdict in said.verdicts if verdict.chosen], [said.chosen])
            self.assertGreater(len(said.verdicts), 100)
            plan = libdecode.Plan(problem(), device=gpu, context=self.context)
            self.assertEqual(plan.info.kernel, said.chosen)
            self.assertGreater(plan.info.workers, 0)
            self.assertEqual(plan.info.workspace_bytes, plan.workspace_bytes)

    def test_explain_of_what_no_kernel_does(self):
        said = self.context.explain(problem(q_len=2000), "sm_90")
        self.assertIsNone(said.chosen)
        self.assertIsInstance(said.error, libdecode.UnsupportedError)
        self.assertIsInstance(said.error, NotImplementedError)
        with self.assertRaises(NotImplementedError):
            libdecode.Plan(problem(q_len=2000), device="sm_90", context=self.context)
        with self.assertRaisesRegex(ValueError, "num_kv_heads is 7"):
            self.context.explain(problem(num_kv_heads=7), "sm_90")
        with self.assertRaisesRegex(ValueError, "sm_89"):
            self.context.explain(problem(), "sm_89")

    def test_policy_and_log(self):
        heard = []
        kernel = "gqa_decode_kvbf16_d128_r8_p16_c4_o0_sm90"
        with libdecode.open([played_gpu.BUNDLES], bundles_only=True, ignore_environment=True, kernel_policy=f"force={kernel}",
                            log_level="info", log=lambda level, message: heard.append((level, message))) as context:
            self.assertEqual(context.explain(problem(), "sm_90").chosen, kernel)
            libdecode.Plan(problem(), device="sm_90", context=context)
        self.assertEqual([level for level, _ in heard], ["info"])
        self.assertIn(kernel, heard[0][1])

    def test_options_that_are_wrong(self):
        for words, error, options in (("forse", libdecode.OverrideError, {"kernel_policy": "forse=*"}),
                                      ("log_level is 'loud'", ValueError, {"log_level": "loud"}),
                                      ("/nowhere.bundle", libdecode.BundleNotFoundError, {"bundle_paths": "/nowhere.bundle"}),
                                      ("root_hashes has 'abc'", ValueError, {"root_hashes": ["abc"]})):
            with self.assertRaisesRegex(error, words):
                libdecode.open(**{"bundle_paths": [FORMATS], "ignore_environment": True, **options})

    def test_root_hashes(self):
        bundle, = libdecode.open([FORMATS], bundles_only=True).bundles()
        context = libdecode.open([FORMATS / "formats-sm90.bundle"], bundles_only=True, root_hashes=[bundle.root_hash])
        self.assertEqual(context.bundles()[0].root_hash, bundle.root_hash)
        with self.assertRaises(libdecode.BundleDamagedError):
            libdecode.open([FORMATS / "formats-sm90.bundle"], bundles_only=True, root_hashes=["00" * 32])

    def test_closed_context(self):
        context = libdecode.open([FORMATS], bundles_only=True)
        plan = libdecode.Plan(problem(), device="sm_90", context=context)
        context.close()
        context.close()
        self.assertIsNone(plan.handle)
        with self.assertRaisesRegex(ValueError, "the context is closed"):
            context.kernels()

    def test_device_of_the_current_context(self):
        played_gpu.make_current()
        self.assertEqual(self.context.device().compute_capability, 90)


class DecodeTest(unittest.TestCase):
    def setUp(self):
        played_gpu.make_current()
        workspaces.pool.__init__()

    def decode(self, batch, **options):
        return libdecode.trtllm_batch_decode_with_kv_cache(
            *batch.arguments(), 70, 0.125, **{"out": typed(OnDevice(batch.out), "bf16"), **options})

    def test_formats(self):
        for dtype, query_dtype in (("bf16", "bf16"), ("e4m3", "bf16"), ("e4m3", "e4m3"), ("e5m2", "bf16"), ("e5m2", "e4m3")):
            with self.subTest(kv=dtype, query=query_dtype):
                batch = Batch(dtype, query_dtype)
                lse, sinks = np.zeros((len(LENS), 8), np.float32), np.linspace(-1, 3, 8, dtype=np.float32)
                self.decode(batch, lse=OnDevice(lse), sinks=OnDevice(sinks), window_left=20, out_dtype="bf16")
                expected = batch.check(self, sinks=sinks, window=20)
                self.assertTrue(np.allclose(lse, expected, atol=1e-3))

    def test_nvfp4(self):
        for layout in ("linear", "v_interleave4"):
            batch = Batch("nvfp4", "bf16")
            v_scales = interleaved(batch.cache.v_scales) if layout == "v_interleave4" else batch.cache.v_scales
            self.decode(batch, kv_cache_sf=(OnDevice(batch.cache.k_scales), OnDevice(v_scales)), v_sf_layout=layout)
            batch.check(self)

    def test_interleaved_scales_in_nhd_that_are_not_pytorchs(self):
        batch = Batch("nvfp4", "bf16")
        k, v, k_sf, v_sf = (np.ascontiguousarray(array.swapaxes(1, 2)) for array in (
            batch.cache.k_bits, batch.cache.v_bits, batch.cache.k_scales, interleaved(batch.cache.v_scales)))
        query, _, *rest = batch.arguments()

        def decode(v_scales):
            libdecode.trtllm_batch_decode_with_kv_cache(
                query, (OnDevice(k), OnDevice(v)), *rest, 70, 0.125, out=typed(OnDevice(batch.out), "bf16"), kv_layout="NHD",
                v_sf_layout="v_interleave4", kv_cache_sf=(OnDevice(k_sf), OnDevice(v_scales)))

        with self.assertRaisesRegex(NotImplementedError, r"^kv_cache_sf\[1\] is a OnDevice of interleaved scales in NHD, which are copied"):
            decode(v_sf)
        decode(interleaved(batch.cache.v_scales).swapaxes(1, 2))
        batch.check(self)

    def test_scales_of_v_are_as_flashinfers_quantiser_makes_them_for_the_gpu(self):
        batch = Batch("nvfp4", "bf16")
        for capability, layout in ((90, abi.SF_LINEAR), (100, abi.SF_V_INTERLEAVE4), (103, abi.SF_V_INTERLEAVE4), (120, abi.SF_LINEAR)):
            with mock.patch.object(driver, "compute_capability", lambda _, capability=capability: capability), \
                    mock.patch.object(Call, "run", autospec=True) as run:
                self.decode(batch, kv_cache_sf=(OnDevice(batch.cache.k_scales), OnDevice(batch.cache.v_scales)))
                self.assertEqual(run.call_args.args[0].problem.v_sf_layout, layout, capability)

    def test_launch_is_programmatic_unless_that_is_off(self):
        for enable_pdl, flags in ((None, 1), (True, 1), (False, 0)):
            batch, calls = Batch(), []
            with mock.patch.object(Call, "_launch", lambda self, *_: calls.append(self.tensors.launch_flags)):
                self.decode(batch, enable_pdl=enable_pdl)
            self.assertEqual(calls, [flags])

    def test_devices_are_not_mixed(self):
        batch = Batch()
        with self.assertRaisesRegex(ValueError, "sinks is on cpu, query on cuda:0"):
            self.decode(batch, sinks=np.zeros(8, np.float32))
        with self.assertRaisesRegex(ValueError, "bmm1_scale is on cuda:0, query on cpu|all tensors of a call"):
            libdecode.trtllm_batch_decode_with_kv_cache(
                np.zeros((1, 8, 64), np.float16), (np.zeros((1, 2, 16, 64), np.float16),) * 2, None, np.zeros((1, 1), np.int32),
                np.zeros(1, np.int32), 1, OnDevice(np.ones(1, np.float32)))
        with self.assertRaisesRegex(ValueError, "out is None with query a OnDevice"):
            self.decode(batch, out=None)
        with self.assertRaisesRegex(ValueError, "seq_lens is on cpu, query on cuda:0"):
            arguments = batch.arguments()
            libdecode.trtllm_batch_decode_with_kv_cache(*arguments[:4], batch.cache.seq_lens, 70, out=typed(OnDevice(batch.out), "bf16"))
        uneven = np.array([0, 512, 1024, 2048, 1536])
        for words, offsets in (("batch_offsets_q is i32 on a GPU, where kernels read i64", OnDevice(uneven.astype(np.int32))),
                               ("batch_offsets_q is .0, 512, 1024, 2048, .... on the host.*give them on the GPU", uneven)):
            with self.assertRaisesRegex(NotImplementedError, words):
                libdecode.cudnn_batch_decode_with_kv_cache(
                    batch.arguments()[0], *batch.arguments()[1], 0.125, None, max_sequence_kv=70, actual_seq_lens_kv=batch.cache.seq_lens,
                    block_tables=OnDevice(batch.cache.tables), batch_offsets_q=offsets, out=typed(OnDevice(batch.out), "bf16"))

    def test_offsets_on_the_device_are_left_to_the_kernel(self):
        batch, calls = Batch(), []
        offsets = [OnDevice(np.arange(len(LENS) + 1)[::-1] * 512) for _ in range(4)]
        names = ("query_offsets", "out_offsets", "k_offsets", "v_offsets")
        with mock.patch.object(Call, "_launch", lambda self, *_: calls.append(self)):
            libdecode.cudnn_batch_decode_with_kv_cache(
                batch.arguments()[0], *batch.arguments()[1], 0.125, None, max_sequence_kv=70, actual_seq_lens_kv=OnDevice(batch.cache.seq_lens),
                block_tables=OnDevice(batch.cache.tables), out=typed(OnDevice(batch.out), "bf16"),
                **dict(zip(("batch_offsets_q", "batch_offsets_o", "batch_offsets_k", "batch_offsets_v"), offsets)))
        self.assertEqual([getattr(calls[0].tensors, name) for name in names], [one.array.ctypes.data for one in offsets])
        self.assertEqual(calls[0].problem.features, abi.FEATURE_QUERY_OFFSETS | abi.FEATURE_KV_OFFSETS)
        self.assertEqual(calls[0].problem.batch_size, len(LENS))

    def test_host_scale_beside_a_query_on_the_device_is_a_float(self):
        batch = Batch()
        self.decode(batch, bmm2_scale=np.array([2.0], np.float32))
        batch.check(self, v_scale=2.0)
        self.decode(batch, bmm2_scale=OnDevice(np.array([0.5], np.float32)))
        batch.check(self, v_scale=0.5)

    def test_what_no_kernel_does_is_not_implemented(self):
        batch = Batch()
        batch.bits = random_bits(batch.cache.generator, "bf16", (len(LENS) * 65, 8, 64))
        mask = pack_mask(np.ones((len(LENS) * 65, 65), bool))
        with self.assertRaises(NotImplementedError) as caught:
            self.decode(batch, q_len_per_req=65, mask=OnDevice(mask), out=typed(OnDevice(np.zeros((len(LENS) * 65, 8, 64), np.uint16)), "bf16"))
        self.assertIsInstance(caught.exception, libdecode.UnsupportedError)

    def test_slopes_of_alibi_without_pytorch(self):
        generator, out = np.random.default_rng(1), np.zeros((8, 64), np.uint16)
        query, k, v = (random_bits(generator, "bf16", shape) for shape in ((8, 64), (40, 2, 64), (40, 2, 64)))
        expected = np.zeros((8, 64), np.uint16)
        for wrap, result in ((lambda array: array, expected), (OnDevice, out)):
            libdecode.single_decode_with_kv_cache(*(typed(wrap(bits), "bf16") for bits in (query, k, v)), out=typed(wrap(result), "bf16"),
                                                  pos_encoding_mode="ALIBI")
        np.testing.assert_allclose(values(out, "bf16"), values(expected, "bf16"), rtol=2.0**-6, atol=5e-3)

    def test_cudnns_words(self):
        batch = Batch()
        arguments = batch.arguments()
        libdecode.cudnn_batch_decode_with_kv_cache(
            arguments[0], *arguments[1], 0.125, None, max_sequence_kv=70, actual_seq_lens_kv=arguments[4], block_tables=arguments[3],
            out=typed(OnDevice(batch.out), "bf16"))
        batch.check(self)

    def test_cudnns_lengths_on_the_host(self):
        batch, stream = Batch(), Stream()
        arguments = batch.arguments()

        def decode():
            batch.out[:] = 0
            libdecode.cudnn_batch_decode_with_kv_cache(
                arguments[0], *arguments[1], 0.125, None, max_sequence_kv=70, actual_seq_lens_kv=batch.cache.seq_lens.reshape(-1, 1, 1, 1),
                block_tables=arguments[3], out=typed(OnDevice(batch.out), "bf16"), stream=stream.handle)

        for _ in range(2):
            decode()
            batch.check(self)
        stream.begin()
        with self.assertRaisesRegex(ValueError, "tensors.seq_lens is .*on the host .*captured"):
            decode()
        stream.end()

    # ------------------------------------------------------------------------------------------------------- workspace

    def test_each_stream_and_all_captures_have_a_workspace(self):
        one, two, seen = Stream(), Stream(), {}
        library = libdecode.library()

        def decode(context, problem_pointer, tensors, stream):
            seen.setdefault(stream, []).append(tensors._obj.workspace)
            return real(context, problem_pointer, tensors, stream)

        real = library.decode
        with mock.patch.object(library, "decode", decode):
            for stream in (one, two, one):
                self.decode(Batch(), stream=stream.handle)
            one.begin()
            batch = Batch()
            self.decode(batch, stream=one.handle)
            self.assertFalse(batch.out.any())
            replay = one.end()
        self.assertEqual(replay(), 0)
        batch.check(self)
        first, again, captured = seen[one.handle]
        self.assertEqual(first, again)
        self.assertEqual(len({first, captured, seen[two.handle][0]}), 3)

    def test_the_stream_of_each_thread_is_another(self):
        keys = [workspaces._key(0, 2, False)]
        thread = threading.Thread(target=lambda: keys.append(workspaces._key(0, 2, False)))
        thread.start()
        thread.join()
        self.assertNotEqual(*keys)

    def test_capture_before_any_call_is_an_error_that_says_what_to_do(self):
        stream = Stream()
        stream.begin()
        with self.assertRaisesRegex(libdecode.ColdInCaptureError, "make this call once before capturing, or give workspace_buffer"):
            self.decode(Batch(), stream=stream.handle)
        workspace = libdecode.Workspace(1 << 20)
        batch = Batch()
        libdecode.trtllm_batch_decode_with_kv_cache(*batch.arguments()[:2], workspace, *batch.arguments()[3:], 70, 0.125,
                                                    out=typed(OnDevice(batch.out), "bf16"), stream=stream.handle)
        stream.end()()
        batch.check(self)

    def test_a_workspace_grows_and_the_outgrown_one_stays(self):
        with mock.patch.object(workspaces, "_SMALLEST_BYTES", 512):
            small = workspaces.pool.grow(workspaces.Place(0, False, 0, False), 1, libdecode.default_context())
        self.assertEqual(small.size_bytes // 512, 1)
        batch = Batch()
        self.decode(batch)
        batch.check(self)
        self.assertIn(small, workspaces.pool._outgrown)
        self.assertGreaterEqual(workspaces.pool.find(0, 0, False).size_bytes, 8 << 20)

    def test_a_tensor_for_a_workspace_is_not_touched(self):
        batch, foreign = Batch(), np.full(1 << 20, 77, np.uint8)
        arguments = batch.arguments()
        libdecode.trtllm_batch_decode_with_kv_cache(*arguments[:2], OnDevice(foreign), *arguments[3:], 70, 0.125,
                                                    out=typed(OnDevice(batch.out), "bf16"))
        batch.check(self)
        self.assertTrue((foreign == 77).all())

    def test_a_workspace_is_cleared_and_waited_for_outside_captures(self):
        stream, waited = Stream(), []
        with mock.patch.object(driver, "synchronize", waited.append):
            libdecode.Workspace(1000, stream=stream.handle)
        self.assertEqual(waited, [stream.handle])
        stream.begin()
        for options in ({"size_bytes": 1000}, {"buffer": OnDevice(np.zeros(1000, np.uint8))}):
            with self.assertRaisesRegex(libdecode.ColdInCaptureError, "a workspace of 1000 bytes would be made ready inside"):
                libdecode.Workspace(**options, stream=stream.handle)
        stream.end()

    def test_a_workspace_in_a_buffer_is_aligned_and_cleared(self):
        buffer = np.full(5000, 77, np.uint8)
        workspace = libdecode.Workspace(buffer=OnDevice(buffer[3:]))
        first = workspace.address - buffer.ctypes.data
        self.assertEqual(workspace.address % 256, 0)
        self.assertEqual(workspace.size_bytes, 5000 - first)
        self.assertTrue((buffer[:first] == 77).all() and (buffer[first:] == 0).all())
        batch = Batch()
        with self.assertRaises(libdecode.WorkspaceTooSmallError):
            libdecode.trtllm_batch_decode_with_kv_cache(*batch.arguments()[:2], workspace, *batch.arguments()[3:], 70, 0.125,
                                                        out=typed(OnDevice(batch.out), "bf16"))
        for words, options in (("either size_bytes or buffer", {}), ("either", {"size_bytes": 1, "buffer": OnDevice(buffer)}),
                               ("on the host", {"buffer": buffer}), ("100 bytes", {"buffer": OnDevice(buffer[:100])}),
                               ("contiguous", {"buffer": OnDevice(buffer[::2])})):
            with self.assertRaisesRegex(ValueError, words):
                libdecode.Workspace(**options)


class PlanTest(unittest.TestCase):
    def setUp(self):
        played_gpu.make_current()
        self.batch = Batch()
        self.problem = libdecode.Problem(
            query_dtype="bf16", batch_size=len(LENS), num_qo_heads=8, num_kv_heads=2, head_dim=64, page_size=16, max_seq_len=70,
            page_table_request_stride=self.batch.cache.tables.shape[1])

    def tensors(self, wrap=OnDevice):
        cache = self.batch.cache
        return [wrap(array) for array in (self.batch.bits, cache.k_bits, cache.v_bits, cache.tables, cache.seq_lens, self.batch.out)]

    def test_run_with_tensors_and_with_addresses(self):
        plan = libdecode.Plan(self.problem)
        self.assertRegex(plan.info.kernel, "^gqa_decode_kvbf16_d64_")
        for wrap in (OnDevice, lambda array: array.ctypes.data, lambda array: types.SimpleNamespace(data_ptr=lambda: array.ctypes.data)):
            self.batch.out[:] = 0
            plan.run(*self.tensors(wrap), bmm1_scale=0.125)
            self.batch.check(self)

    def test_options_of_a_run(self):
        self.problem.features = abi.FEATURE_LSE | abi.FEATURE_SINKS
        lse, sinks = np.zeros((len(LENS), 8), np.float32), np.linspace(-1, 3, 8, dtype=np.float32)
        plan = libdecode.Plan(self.problem)
        plan.run(*self.tensors(), bmm1_scale=0.125, lse=OnDevice(lse), sinks=OnDevice(sinks), programmatic=True, history_final=True)
        self.assertTrue(np.allclose(lse, self.batch.check(self, sinks=sinks), atol=1e-3))
        with self.assertRaisesRegex(ValueError, "tensors.sinks is NULL"):
            plan.run(*self.tensors(), lse=OnDevice(lse))
        with self.assertRaisesRegex(ValueError, "a scale is 0"):
            plan.run(*self.tensors(), bmm1_scale=0.0)
        with self.assertRaisesRegex(ValueError, "LIBDECODE_LAUNCH_HISTORY_FINAL says what a launch with"):
            plan.run(*self.tensors(), lse=OnDevice(lse), sinks=OnDevice(sinks), history_final=True)

    def test_every_pointer_reaches_its_field(self):
        plan, seen = libdecode.Plan(self.problem), []
        plan._launch = lambda handle, packed, stream: seen.append((abi.Tensors.from_buffer_copy(packed), stream)) and 0 or 0
        names = [name for name, kind in abi.Tensors._fields_ if kind is abi.c_void_p and name != "workspace"]
        given = {name: 1 + index for index, name in enumerate(names)}
        plan.run(**given, bmm1_scale=0.5, bmm2_scale=0.25, o_scale=2.0, out_sf_scale=4.0, out_sf_start_token=9, stream=5)
        (tensors, stream), = seen
        self.assertEqual({name: getattr(tensors, name) for name in names}, given)
        self.assertEqual((tensors.bmm1_scale, tensors.bmm2_scale, tensors.o_scale, tensors.out_sf_scale), (0.5, 0.25, 2.0, 4.0))
        self.assertEqual((tensors.out_sf_start_token, tensors.launch_flags, stream), (9, 0, 5))
        self.assertEqual((tensors.workspace, tensors.workspace_bytes), (plan.workspace.address, plan.workspace.size_bytes))

    def test_capture(self):
        # strict: that the kernel was not loaded before would be an error
        plan, stream = libdecode.Plan(self.problem, context=libdecode.open([FORMATS], bundles_only=True, strict=True)), Stream()
        stream.begin()
        plan.run(*self.tensors(), bmm1_scale=0.125, stream=stream.handle)
        replay = stream.end()
        self.assertFalse(self.batch.out.any())
        replay()
        self.batch.check(self)

    def test_shared_and_given_workspaces(self):
        shared = libdecode.Workspace(1 << 20)
        plan = libdecode.Plan(self.problem, workspace=shared)
        self.assertIs(plan.workspace, shared)
        plan.run(*self.tensors(), bmm1_scale=0.125)
        self.batch.check(self)
        with self.assertRaises(libdecode.WorkspaceTooSmallError):
            plan.run(*self.tensors(), workspace=libdecode.Workspace(300))

    def test_threads(self):
        # On the reference: the played GPU has one scratch for all threads.
        plan, failures = libdecode.Plan(self.problem, device="cpu"), []
        batches = [Batch() for _ in range(4)]
        for seed, batch in enumerate(batches):
            batch.bits = random_bits(np.random.default_rng(seed), "bf16", batch.bits.shape)

        def work(batch):
            cache = batch.cache
            try:
                for _ in range(20):
                    plan.run(batch.bits, cache.k_bits, cache.v_bits, cache.tables, cache.seq_lens, batch.out, bmm1_scale=0.125)
                    batch.check(self)
                    batch.out[:] = 0
            except BaseException as error:  # pylint: disable=broad-except
                failures.append(error)

        threads = [threading.Thread(target=work, args=(batch,)) for batch in batches]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(failures, [])

    def test_plans_go_with_their_last_user(self):
        context = libdecode.open([FORMATS], bundles_only=True)
        plan = libdecode.Plan(self.problem, context=context)
        self.assertEqual(len(context.plans), 1)
        del plan
        gc.collect()
        self.assertEqual(len(context.plans), 0)

    def test_reference(self):
        plan = libdecode.Plan(self.problem, device="cpu")
        plan.run(*self.tensors(lambda array: array), bmm1_scale=0.125)
        self.batch.check(self)
        with self.assertRaisesRegex(ValueError, "the reference has no kernel"):
            plan.info  # pylint: disable=pointless-statement
        with self.assertRaises(ValueError):
            libdecode.Plan(libdecode.Problem(query_dtype="bf16"), device="cpu").run(*self.tensors(lambda array: array))


class PlayedTorchTest(PlayedTorch):
    """The paths that ask PyTorch."""

    def test_result_is_allocated_and_the_current_stream_used(self):
        out, lse = libdecode.trtllm_batch_decode_with_kv_cache(*self.arguments(), return_lse=True)
        self.batch.out = out.array
        self.assertTrue(np.allclose(lse.array, self.batch.check(self), atol=1e-3))
        self.assertEqual(set(workspaces.pool._ready), {(0, self.stream.handle), (0, "captures")})

    def test_second_call_allocates_its_result_alone(self):
        libdecode.trtllm_batch_decode_with_kv_cache(*self.arguments())
        self.made.clear()
        libdecode.trtllm_batch_decode_with_kv_cache(*self.arguments())
        self.assertEqual([dtype for dtype, _ in self.made], ["torch.bfloat16"])
        self.made.clear()
        out = self.Tensor(self.batch.out, "torch.bfloat16")
        self.assertIs(libdecode.trtllm_batch_decode_with_kv_cache(*self.arguments(), out=out), out)
        self.assertEqual(self.made, [])

    def test_capture(self):
        libdecode.trtllm_batch_decode_with_kv_cache(*self.arguments())
        self.stream, self.capturing = Stream(), True
        self.stream.begin()
        out = libdecode.trtllm_batch_decode_with_kv_cache(*self.arguments())
        replay, self.capturing = self.stream.end(), False
        replay()
        self.batch.out = out.array
        self.batch.check(self)

    def test_capture_on_a_stream_that_is_named(self):
        libdecode.trtllm_batch_decode_with_kv_cache(*self.arguments())
        named, out = Stream(), self.Tensor(self.batch.out, "torch.bfloat16")
        self.made.clear()
        named.begin()
        libdecode.trtllm_batch_decode_with_kv_cache(*self.arguments(), out=out, stream=named.handle)
        named.end()()
        self.batch.check(self)
        self.assertEqual(self.made, [])

    def test_a_thread_without_a_context_gets_pytorchs(self):
        libdecode.trtllm_batch_decode_with_kv_cache(*self.arguments())
        plan = libdecode.Plan(libdecode.Problem(
            query_dtype="bf16", batch_size=len(LENS), num_qo_heads=8, num_kv_heads=2, head_dim=64, page_size=16, max_seq_len=70,
            page_table_request_stride=self.batch.cache.tables.shape[1]))
        query, (k, v), _, table, lens, *_ = self.arguments()
        for run in (lambda: libdecode.trtllm_batch_decode_with_kv_cache(*self.arguments(), out=self.Tensor(self.batch.out, "torch.bfloat16")),
                    lambda: plan.run(query, k, v, table, lens, self.Tensor(self.batch.out, "torch.bfloat16"), bmm1_scale=0.125)):
            played_gpu.libcuda.cuCtxSetCurrent(None)
            self.batch.out[:] = 0
            run()
            self.batch.check(self)

    def test_another_gpu_is_made_current_for_the_call(self):
        seen = []
        with mock.patch.object(Call, "_launch", lambda call, *arguments: seen.append((self.current, arguments[2].ordinal))):
            out = self.Tensor(self.batch.out, "torch.bfloat16", 3)
            libdecode.trtllm_batch_decode_with_kv_cache(*self.arguments(3), out=out)
        self.assertEqual((seen, self.current), ([(3, 3)], 0))

    def test_plan_runs_on_the_current_stream(self):
        plan, seen = libdecode.Plan(problem(head_dim=64, num_qo_heads=8)), []
        plan._launch = lambda handle, packed, stream: seen.append(stream) or 0
        plan.run(1, 2, 3, 4, 5, 6)
        plan.run(1, 2, 3, 4, 5, 6, stream=7)
        self.assertEqual(seen, [self.stream.handle, 7])


unittest.main()
