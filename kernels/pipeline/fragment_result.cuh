/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fragment_result.cuh: what becomes of a piece's result that lies in registers as mma left it, all of a CTA's in a FragmentSlice: the levels of
 * partial.cuh from there on, and the store. CTAs of a cluster exchange their columns first, and who comes last to a unit that several
 * workers share stores it; CTAs alone leave parts, of which those that have time store slices.
 */
#pragma once

#include <algorithm>
#include <cstdint>

#include "pipeline/fragment_exchange.cuh"
#include "pipeline/fragment_fold.cuh"
#include "pipeline/fragment_slice_fold.cuh"

namespace pipeline {

/*
 * How a kernel's pieces end, to which it adds prepare_store<ahead>(params, announced, result, place, has_first_rows): a FragmentStore of what
 * `result` has of the unit's columns, `ahead` as there. `Whole`: what a CTA has; `Own_`: what it folds and stores of that, in a cluster. Parts
 * of clusters: `parts_together_` are on their way at a time; with `keeps_part_` who comes last has its part in registers, without leaving it
 * first: half of what the end of a long part takes is to leave it, to read and to clear it. Parts that several workers end with at a time,
 * short ones, are there sooner if each is left before it is counted.
 */
template <class Format, class Whole, class Own_, int cluster_size, int parts_together_, bool keeps_part_>
struct FragmentEnding {
    using Own = Own_;
    using SliceFold = FragmentSliceFold<Format, Whole, std::min(Whole::pairs, 4)>;
    static constexpr int parts_together = parts_together_;
    static constexpr bool keeps_part = keeps_part_;
    /* Of a contract. */
    static constexpr uint32_t record_bytes = cluster_size == 1 ? sizeof(SliceCounts) : sizeof(typename FragmentFold<Own>::Record);
    static constexpr uint32_t scratch_bytes = sizeof(typename SliceFold::Part); /* of every cluster size as much */
};

/*
 * What a CTA alone has of a piece: stored, or left for the workers that share the unit, which store slices of it. `Ending`: the kernel's. `work`: in shared memory, with next_slice of SliceDealer. meet(): all threads of Whole.
 */
template <class Ending, class Params, class Memory, class Announced, class Whole, class Place, class Meet>
__device__ __forceinline__ void deal_fragments(const Params &params, Memory &work, const Announced &announced, const Whole &whole,
                                               const Place &place, Meet meet) {
    if (announced.piece.parts.count == 1) {
        Ending::template prepare_store<false>(params, announced, whole, place, true).run(whole);
        return;
    }
    Ending::SliceFold::run(params.records, params.scratch, work.next_slice, announced.piece, whole, meet,
                           [&](const typename Ending::SliceFold::Slice &slice, uint32_t number) {
                               Ending::template prepare_store<false>(params, announced, slice, place, number == 0).run(slice);
                           });
}

/*
 * The same of a cluster, whose CTAs have columns of their own, Ending::Own: who comes last stores it. `work` has the exchange, of whose threads
 * all meet in named barrier `barrier_id`.
 */
template <class Ending, int barrier_id, class Params, class Memory, class Announced, class Whole, class Place>
__device__ __forceinline__ void hand_over_fragments(const Params &params, Memory &work, const Announced &announced,
                                                    const Whole &whole, const Place &place, int rank) {
    using Own = typename Ending::Own;
    const Piece &piece = announced.piece;
    Own own(announced.rows.live_rows, rank * Own::pairs);
    const auto store = work.exchange.template run<barrier_id>(whole, own, rank, announced.number, piece.is_last, [&] {
        return Ending::template prepare_store<true>(params, announced, own, place, true);
    });
    const bool is_part = piece.parts.count > 1;
    FragmentFold<Own> fold(params.records, piece);
    if (is_part && Ending::keeps_part) {
        if (!fold.template take_others_if_last<Ending::parts_together>(own, fold.count(own.thread))) {
            fold.leave(own);
            return;
        }
    } else if (is_part) {
        fold.leave(own);
        if (!fold.template take_if_last<Ending::parts_together>(own, fold.count(own.thread)))
            return;
    }
    store.run(own);
    if (is_part && Ending::keeps_part)
        fold.clear_others(own);
    else if (is_part)
        fold.clear(own);
}

} // namespace pipeline
