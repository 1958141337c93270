/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fragment_exchange.cuh: level 2 of partial.cuh, as cluster_exchange.cuh, for results that lie in registers as mma left them
 * (FragmentSlice): every thread hands the pairs that another CTA of the cluster owns to the thread of its place there, and folds its own.
 */
#pragma once

#include <cstddef>
#include <cstdint>

#include "pipeline/cluster_rounds.cuh"
#include "pipeline/fragment_slice.cuh"
#include "ptx/cluster.cuh"
#include "ptx/memory.cuh"

namespace pipeline {

/*
 * Lies in shared memory. `Whole`: what a thread has of its CTA's result; `Own`: the pairs of it that the CTA owns. A round is one piece.
 */
template <class Whole, class Own, int cluster_size>
struct FragmentExchange {
    static constexpr int rows = Own::rows, threads = Own::threads;
    static_assert(Whole::pairs == Own::pairs * cluster_size && cluster_size <= threads / 32);
    struct Message {
        float output[Own::word_vectors][threads][Own::word_width];
        float statistics[rows][2]; /* reference and sum */
        float units[threads / 32]; /* of every warp's halves, if they have any */
    };
    static constexpr uint32_t sent_bytes = cluster_size * (sizeof(Message) - (Own::has_units ? 0 : sizeof(Message::units)));
    alignas(16) Message receive[cluster_size];
    ClusterRounds<cluster_size> rounds;

    __device__ __forceinline__ void initialise() { rounds.initialise(); }

    /*
     * Sends every pair to the CTA that owns it, and folds those that arrive here into `own`. What is its own a thread leaves for itself:
     * what CTAs send each other is most of the time that this takes, some 13 bytes a clock. Returns what `meanwhile` returns, which is called
     * while they are on their way.
     */
    template <int barrier_id, class Meanwhile>
    __device__ __forceinline__ auto run(const Whole &whole, Own &own, uint32_t rank, uint32_t round, bool is_last_round,
                                        Meanwhile meanwhile) {
        rounds.begin(round, sent_bytes - sizeof receive[0].output, whole.thread);
        send(whole, rank);
        const auto prepared = meanwhile();
        rounds.wait_received(round);
        fold(own);
        rounds.template end<barrier_id, threads>(rank, is_last_round, whole.thread);
        return prepared;
    }

  private:
    __device__ __forceinline__ void send(const Whole &whole, uint32_t rank) {
        const uint32_t warp = whole.thread / 32, lane = whole.thread % 32, row = whole.statistics_row();
        const typename Whole::Scale scale = whole.scale();
        const uint32_t message = ptx::shared_address(receive[rank].output[0][whole.thread]);
        const uint32_t barrier = ptx::shared_address(&rounds.received);
#pragma unroll
        for (uint32_t owner = 0; owner < cluster_size; ++owner) {
            const uint32_t there = ptx::map_shared_rank(message, owner), its_barrier = ptx::map_shared_rank(barrier, owner);
#pragma unroll
            for (int i = 0; i < Own::word_vectors; ++i) {
                float words[Own::word_width];
#pragma unroll
                for (int j = 0; j < Own::word_width; ++j)
                    words[j] = whole.halves(scale, owner * Own::pairs + i * Own::word_width + j);
                if (owner != rank)
                    ptx::store_async(there + i * sizeof receive[0].output[0], words, its_barrier);
                else
                    keep(receive[rank].output[i][whole.thread], words);
            }
        }
        if (Whole::has_units && lane < cluster_size)
            ptx::store_async(ptx::map_shared_rank(ptx::shared_address(&receive[rank].units[warp]), lane), {scale.unit},
                             ptx::map_shared_rank(barrier, lane));
        if (warp < cluster_size && lane < rows)
            ptx::store_async(ptx::map_shared_rank(ptx::shared_address(receive[rank].statistics[row]), warp),
                             {whole.reference[0], whole.sum[0]}, ptx::map_shared_rank(barrier, warp));
    }

    static __device__ __forceinline__ void keep(float (&to)[Own::word_width], const float (&words)[Own::word_width]) {
#pragma unroll
        for (int j = 0; j < Own::word_width; ++j)
            to[j] = words[j];
    }

    __device__ __forceinline__ void fold(Own &own) const {
        const uint32_t row = own.statistics_row();
        float largest = receive[0].statistics[row][0];
#pragma unroll
        for (int k = 1; k < cluster_size; ++k)
            largest = fmaxf(largest, receive[k].statistics[row][0]);
        const float common = tile::finite_reference(largest);
        own.clear();
        own.reference[0] = largest;
        own.unit = 0.f;
#pragma unroll
        for (int k = 0; k < cluster_size; ++k) {
            /* A mean of means is no larger than they are; over the power of two in its sum, not the sum, it may be twice that. */
            if constexpr (Own::has_units)
                own.unit = fmaxf(own.unit, 2 * receive[k].units[own.thread / 32]);
            const float weight = ptx::exp2_approx(receive[k].statistics[row][0] - common);
            own.sum[0] += weight * receive[k].statistics[row][1];
            float weights[Own::thread_rows];
            own.spread(weight * Own::unit_of(receive[k].statistics[row][1], receive[k].units[own.thread / 32]), weights);
#pragma unroll
            for (int pair = 0; pair < Own::pairs; ++pair)
                own.add(pair, receive[k].output[pair / Own::word_width][own.thread][pair % Own::word_width], weights);
        }
    }
};

/* A cluster of one CTA has nothing to exchange. */
template <class Whole, class Own>
struct FragmentExchange<Whole, Own, 1> {
    __device__ __forceinline__ void initialise() {}
};

} // namespace pipeline
