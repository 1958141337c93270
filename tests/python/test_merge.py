# SPDX-License-Identifier: Apache-2.0
"""The calls that merge partial results, on the host and on the played GPU, against attention in numpy over all tokens."""

import unittest

import skip  # noqa: F401
import numpy as np

import libdecode
from libdecode import merge_state, merge_state_in_place, merge_states, typed, variable_length_merge_states
from numpy_attention import values
from played_gpu import BUNDLES, OnDevice, Stream, make_current

TOKENS, HEADS, HEAD_DIM = 5, 3, 16
generator = np.random.default_rng(3)


def random_states(count, dtype=np.float32):
    """[tokens, states, heads, head_dim] and [tokens, states, heads]."""
    v = generator.normal(size=(TOKENS, count, HEADS, HEAD_DIM)).astype(dtype)
    return v, generator.normal(0, 3, size=(TOKENS, count, HEADS)).astype("f4")


def merged(v, s):
    """What they merge to, over axis 1."""
    weights = np.exp2(s.astype(float) - s.max(axis=1, keepdims=True))
    total = weights.sum(axis=1)
    return (weights[..., None] * v).sum(axis=1) / total[..., None], np.log2(total) + s.max(axis=1)


class MergeTest(unittest.TestCase):
    def assert_merged(self, got, v, s, allowed=1e-6):
        expected, expected_lse = merged(v, s)
        np.testing.assert_allclose(got[0], expected, rtol=allowed, atol=allowed)
        np.testing.assert_allclose(got[1], expected_lse, rtol=1e-6, atol=1e-5)

    def test_states_of_every_dtype(self):
        for dtype, allowed in ((np.float32, 1e-6), (np.float16, 1e-3)):
            v, s = random_states(4, dtype)
            got = merge_states(v, s)
            self.assertEqual((got[0].dtype, got[0].shape, got[1].shape), (dtype, (TOKENS, HEADS, HEAD_DIM), (TOKENS, HEADS)))
            self.assert_merged(got, v, s, allowed)
        v, s = random_states(2)
        bits = (v.view("u4") >> 16).astype("u2")
        out, _ = merge_states(typed(bits, "bf16"), s)
        np.testing.assert_allclose(values(out, "bf16"), merged(values(bits, "bf16"), s)[0], rtol=2**-7, atol=2**-9)

    def test_states_that_lie_outside_or_between(self):
        v, s = random_states(4)
        gathered = np.ascontiguousarray(v.transpose(1, 0, 2, 3)).transpose(1, 0, 2, 3)  # as from several GPUs
        self.assert_merged(merge_states(gathered, s), v, s)
        self.assert_merged(merge_states(v[:, ::2], s[:, ::2]), v[:, ::2], s[:, ::2])

    def test_two_tensors_anywhere(self):
        v, s = random_states(2)
        parts = [np.ascontiguousarray(part) for part in (v[:, 0], s[:, 0], v[:, 1], s[:, 1])]
        self.assert_merged(merge_state(*parts), v, s)
        self.assert_merged(merge_state(*parts[2:], *parts[:2]), v, s)
        mask = np.array([1, 0, 1, 1, 0], dtype=bool)
        kept = [part.copy() for part in parts]
        merge_state_in_place(*parts, mask)
        expected, expected_lse = merged(v, s)
        np.testing.assert_allclose(parts[0][mask], expected[mask], rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(parts[1][mask], expected_lse[mask], rtol=1e-6)
        for part, before in zip(parts[:2], kept[:2]):
            np.testing.assert_array_equal(part[~mask], before[~mask])
        for part, before in zip(parts[2:], kept[2:]):
            np.testing.assert_array_equal(part, before)

    def test_tokens_with_as_many_states_as_they_have(self):
        v, s = random_states(1)
        indptr = np.array([0, 2, 2, 5], dtype="i4")
        out, lse = variable_length_merge_states(v[:, 0], s[:, 0], indptr)
        for token, (first, last) in enumerate(zip(indptr, indptr[1:])):
            if first == last:
                self.assertTrue((out[token] == 0).all() and np.isneginf(lse[token]).all())
                continue
            expected, expected_lse = merged(v[None, first:last, 0], s[None, first:last, 0])
            np.testing.assert_allclose(out[token], expected[0], rtol=1e-6, atol=1e-6)
            np.testing.assert_allclose(lse[token], expected_lse[0], rtol=1e-6)

    def test_what_is_wrong_is_named(self):
        v, s = random_states(2)
        for call, word in (
            (lambda: merge_states(v[0], s[0]), "v has shape"), (lambda: merge_states(v, s[:, :1]), "s has shape"),
            (lambda: merge_states(v.astype("f8"), s), "v is f64"), (lambda: merge_states(v, s.astype("f2")), "s is fp16"),
            (lambda: merge_states(v[..., ::2], s), "last axis"), (lambda: merge_states(v[..., :12], s), "head_dim is 12"),
            (lambda: merge_state(v[:, 0], s[:, 0], v[:, 1].astype("f2"), s[:, 1]), "v_b is fp16"),
            (lambda: merge_state(v[:, 0], s[:, 0], v[:, 1], s[:, 1].copy()), "s_b is f32"),
            (lambda: variable_length_merge_states(v[:, 0], s[:, 0], np.zeros(0, "i4")), "indptr"),
            (lambda: variable_length_merge_states(v[:, 0], s[:, 0], np.array([-1, 1], "i4")), "indptr begins with -1: it must be 0 or more"),
            (lambda: variable_length_merge_states(v[:, 0], s[:, 0], np.array([0, 2, 1], "i4")), "indptr has 1 behind 2 at 2"),
            (lambda: variable_length_merge_states(v[:, 0], s[:, 0], np.array([0, 2000000], "i4")), "indptr ends with 2000000: it must be at most the 5 states of v"),
        ):
            with self.subTest(word):
                with self.assertRaises(libdecode.InvalidArgumentError) as caught:
                    call()
                self.assertIn(word, str(caught.exception))

    def test_on_a_gpu_it_is_one_launch_which_can_be_captured(self):
        make_current()
        stream = Stream()
        parts = [np.ascontiguousarray(part) for part in (lambda v, s: (v[:, 0], s[:, 0], v[:, 1], s[:, 1]))(*random_states(2))]
        on_device = [OnDevice(part) for part in parts]
        v, s = np.stack(parts[::2], axis=1), np.stack(parts[1::2], axis=1)
        with libdecode.open([BUNDLES], bundles_only=True, ignore_environment=True) as context:
            merge_state_in_place(*on_device, stream=stream.handle, context=context)
            self.assert_merged(parts[:2], v, s)
            v, s = np.stack(parts[::2], axis=1), np.stack(parts[1::2], axis=1)
            stream.begin()
            merge_state_in_place(*on_device, stream=stream.handle, context=context)
            replay = stream.end()
            np.testing.assert_array_equal(parts[0], v[:, 0])  # not yet
            self.assertEqual(replay(), 0)
            self.assert_merged(parts[:2], v, s)


unittest.main()
