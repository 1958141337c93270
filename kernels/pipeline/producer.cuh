/* SPDX-License-Identifier: Apache-2.0 */
/*
 * producer.cuh: the warps that fill the ring with the tiles of one tensor, K or V: the boxes of all their worker's pieces, one after
 * the other, so that short units keep the memory queue full. Copies are issued one per lane. Warps take turns at the tiles, or, where a tile
 * takes many copies, bring a part of each. A warp takes some 1,200 clocks for a tile of four boxes of FP8, of which 64 tokens come in 950: there
 * several take turns, each at both tensors.
 *
 * More copies at a time than memory needs to be busy make the first ones, which consumers wait for, come later: short pieces take longer.
 * Beside a kernel ahead that is to be waited for anyway it costs nothing. So a ring may have stages that are filled for a final history
 * and for long pieces alone, and producer warps for a final history alone.
 */
#pragma once

#include <cstdint>

#include "abi.h"
#include "pipeline/kv_ring.cuh"
#include "pipeline/page_stream.cuh"
#include "pipeline/skip_votes.cuh"
#include "ptx/async_copy.cuh"
#include "ptx/memory.cuh"
#include "tile/constants.cuh"
#include "tile/kv_format.cuh"

namespace pipeline {

/* NVFP4 scales of a tensor that come along with its boxes, where they can. */
struct ScaleBlocks {
    const row_source *source = nullptr;
    bool exist = false;
    uint32_t num_pages = 0;
};

/* `usual_stages`: that are filled for all other pieces. `of_both`: a warp brings K and V of its tiles. */
template <class Format, class Ring, int tile_tokens, int warps, int cluster_size, class Votes,
          int usual_stages = Ring::num_stages, bool of_both = false>
class Producer {
  public:
    static constexpr int scale_arrivals = 32; /* on the barrier of a tile whose scales come along: every lane's */
    static constexpr int long_piece_tokens = 8 * Ring::num_stages * tile_tokens; /* of one CTA */
    static constexpr bool has_parts = requires { Ring::parts; };

    /*
     * Whether the warps of a tensor share every tile: where it is sixteen boxes, as a warp takes 50 clocks and more to send for each. Sharing
     * tiles of eight boxes gained nothing. Where tiles come in parts the first warp is alone with them otherwise: with several boxes they take
     * a copy for each box and line.
     */
    static __device__ __forceinline__ bool shares_tiles(const schedule_params &params) {
        constexpr int many_boxes = 16;
        if constexpr (has_parts)
            return warps > 1 && params.box_tokens < tile_tokens;
        return warps > 1 && usual_stages == Ring::num_stages && tile_tokens / tile::fragment_tokens >= many_boxes &&
               params.box_tokens * many_boxes <= tile_tokens;
    }

    /* `map`: the tensor's, or K's; then `v_map` is V's. `warp`: of those that share it. */
    __device__ __forceinline__ Producer(const schedule_params &params, const void *map, const ScaleBlocks &scales,
                                        float skip_factor, Tensor tensor, uint32_t warp, Ring ring, Votes &votes,
                                        const void *v_map = nullptr)
        : params_(params), map_(map), v_map_(v_map), scales_(scales.source), has_scale_blocks_(scales.exist),
          scale_page_stride_(Format::scale_bytes > 0 ? scales.source->page_stride : 0), num_pages_(scales.num_pages),
          box_shift_(__ffs(params.box_tokens) - 1), copies_shift_(__ffs(params.copies_per_box) - 1), tensor_(tensor), warp_(warp),
          box_bytes_(params.box_tokens * Format::row_bytes), ring_(ring),
          waits_for_votes_(Votes::exist && tensor == tensor_v && skip_factor > 0.f),
          reads_ahead_(usual_stages == Ring::num_stages || is_history_final(params)), shares_tiles_(shares_tiles(params)),
          votes_(votes) {}

    template <class Schedule>
    __device__ __forceinline__ void run(Schedule &schedule, int lane) {
        run(schedule, lane, [](const Piece &, uint32_t, Ring &) {});
    }

    /* before_piece(piece, its number, ring) is called ahead of the copies of each, and may fill stages. */
    template <class Schedule, class BeforePiece>
    __device__ __forceinline__ void run(Schedule &schedule, int lane, BeforePiece before_piece) {
        if (!reads_ahead_ && warp_ > 0)
            return;
        PageStream<Schedule, tile_tokens, of_both> stream(params_, schedule,
                                                          tensor_ == tensor_v ? params_.page_table_v_offset : 0);
        const int boxes_per_tile = tile_tokens >> (__ffs(params_.box_tokens) - 1);
        PageBatch batch = stream.next();
        for (uint32_t number = 0; !batch.piece.end_of_work;) {
            if (batch.first_box == batch.piece.first_box)
                before_piece(batch.piece, number++, ring_);
            if (rarely(batch.has_newest))
                ptx::wait_for_preceding_kernel();
            /*
             * Where the next page ids are sent for: they hold up the copies that follow, since a warp that waits for any page id
             * waits for all. So once the ring is full, or else after the last tile of the batch.
             */
            const int last_tile = (max(batch.num_boxes, 1) - 1) & -boxes_per_tile;
            const int prefetch_at_box = min((Ring::num_stages - 1) * boxes_per_tile, last_tile);
            PageBatch upcoming;
            int box = 0;
            do {
                const int boxes = min(boxes_per_tile, batch.num_boxes - box);
                if (boxes > 0) {
                    if constexpr (has_parts)
                        load_parts(batch, box, boxes, lane);
                    else if (!reads_ahead_ || shares_tiles_ || is_its_turn())
                        load_tile(batch, box, boxes, lane);
                    ring_.advance();
                    turn_ = has_whole_rounds || turn_ + 1 == warps ? 0 : turn_ + 1;
                }
                if (box == prefetch_at_box)
                    upcoming = stream.next();
                box += boxes_per_tile;
            } while (box < batch.num_boxes);
            batch = upcoming;
        }
    }

  private:
    /*
     * `boxes` boxes of a batch, at most a tile of them, from its box `first` on into the ring: lane i copies box first + i, or of it a
     * line, where rows are copied line by line. Where K and V are one tensor there is one KV head, whatever the schedule makes of it.
     */
    __device__ __forceinline__ void load_tile(const PageBatch &batch, int first, int boxes, int lane) {
        if constexpr (of_both) {
            static_assert(usual_stages == Ring::num_stages && !Votes::exist && Format::scale_bytes == 0, "all stages, always");
            load_tile(batch, tensor_k, map_, batch.page, first, boxes, lane);
            load_tile(batch, tensor_v, v_map_, batch.v_page, first, boxes, lane);
        } else {
            load_tile(batch, tensor_, map_, batch.page, first, boxes, lane);
        }
    }
    __device__ __forceinline__ void load_tile(const PageBatch &batch, Tensor tensor, const void *map, int page_of_lane, int first,
                                              int boxes, int lane) {
        int begin = 0, end = boxes; /* of the boxes, what this warp brings */
        if (shares_tiles_) {
            begin = boxes * static_cast<int>(warp_) / warps;
            end = boxes * static_cast<int>(warp_ + 1) / warps;
        }
        const int of_warp = lane >> copies_shift_, line = lane - (of_warp << copies_shift_), of_tile = begin + of_warp;
        const int box = batch.first_box + first, source = (first + of_tile) & 31;
        const uint32_t barrier = ring_.full_barrier(tensor);
        wait_empty(batch.piece, tensor);
        if (rarely(waits_for_votes_) && !votes_.wait(ring_.stage(), ring_.phase())) {
            boxes = 0;
            end = begin;
        }
        const int page = __shfl_sync(tile::full_warp, page_of_lane, source);
        if (of_tile < end) {
            const int token_in_page = ((box + of_tile) * params_.box_tokens) & (params_.page_size.value - 1);
            const uint32_t line_bytes = params_.box_tokens * Format::Rows::line_bytes;
            ptx::copy_tensor_5d(ring_.tile(tensor) + of_tile * box_bytes_ + line * line_bytes, map,
                                line * (Format::Rows::line_bytes / Format::copied_element_bytes), token_in_page, 0,
                                Ring::num_tensors == 1 ? 0 : batch.piece.kv_head, page, barrier);
        }
        if constexpr (Format::scale_bytes > 0) {
            if (has_scale_blocks_ && (!shares_tiles_ || is_its_turn()))
                load_scales(batch, first, boxes, lane);
        }
        /*
         * After the copies, which so go out earlier. Until this arrival the barrier stays open, whatever has come; its count of
         * bytes may be below zero meanwhile (PTX ISA 9.7.13.15, contents of the mbarrier object).
         */
        if (lane == 0)
            ptx::mbarrier_arrive_expect_tx(barrier, (end - begin) * box_bytes_);
        __syncwarp();
    }

    static constexpr bool has_whole_rounds = Ring::num_stages % warps == 0; /* a warp's tiles have the same stages in each */
    __device__ __forceinline__ bool is_its_turn() const { return (has_whole_rounds ? ring_.stage() % warps : turn_) == warp_; }

    /*
     * Until the tile's place is free; or, with usual_stages, a later one of the same team, which reads its tiles in order: this tile's
     * place is free then, too.
     */
    __device__ __forceinline__ void wait_empty(const Piece &piece, Tensor tensor) const {
        if constexpr (usual_stages == Ring::num_stages) {
            ring_.wait_empty(tensor);
        } else {
            Ring place = ring_;
            if (!reads_ahead_ && (piece.end_box - piece.first_box) << box_shift_ < long_piece_tokens)
                place.advance(Ring::num_stages - usual_stages);
            place.wait_empty(tensor);
        }
    }

    /*
     * The same, part by part (part_ring.cuh): every line of a tile on its own, its boxes one behind the other. Of warps that share it each brings
     * every second copy of a part, say, and the first one announces the bytes of all. The others arrive, too, even with nothing to bring: one
     * that tiles pass by would not know any more which phase its barriers are in.
     */
    __device__ __forceinline__ void load_parts(const PageBatch &batch, int first, int boxes, int lane) {
        const uint32_t line_bytes = params_.box_tokens * Format::Rows::line_bytes, tile = ring_.tile(ring_.stage());
        const int box_shift = __ffs(tile_tokens) - __ffs(params_.box_tokens);           /* log2 of the boxes of a tile */
        const int copy = shares_tiles_ ? lane * warps + static_cast<int>(warp_) : lane; /* of a part */
        const int of_tile = copy & ((1 << box_shift) - 1), line_of_part = copy >> box_shift;
        const int token_in_page = ((batch.first_box + first + of_tile) * params_.box_tokens) & (params_.page_size.value - 1);
        const int page = __shfl_sync(tile::full_warp, batch.page, (first + of_tile) & 31);
#pragma unroll
        for (int part = 0; part < Ring::parts; ++part) {
            const int line = Ring::first_line(ring_.stage(), part) + line_of_part;
            const uint32_t barrier = ring_.full_barrier(part);
            ring_.wait_empty(part);
            if (of_tile < boxes && line_of_part < Ring::lines_of(part))
                ptx::stream_tensor_5d(tile + line * Ring::line_bytes + of_tile * line_bytes, map_, 0, token_in_page, line, 0,
                                      page, barrier);
            if (lane == 0 && warp_ == 0) /* as in load_tile */
                ptx::mbarrier_arrive_expect_tx(barrier, boxes * line_bytes * Ring::lines_of(part));
            else if (lane == 0)
                ptx::mbarrier_arrive(barrier);
        }
        __syncwarp();
    }

    /* The scales of the same boxes, 16 bytes a lane. A page that does not exist has scales of zero. */
    __device__ __forceinline__ void load_scales(const PageBatch &batch, int first, int boxes, int lane) {
        constexpr int chunk_tokens = 16 / Format::scale_bytes;
        const uint8_t *const of_head = scales_->rows + batch.piece.kv_head * scales_->head_stride;
        const uint32_t destination = ring_.tile(tensor_) + tile_tokens * Format::row_bytes + lane * 16;
#pragma unroll
        for (int chunk = 0; chunk < tile_tokens / chunk_tokens; chunk += 32) {
            const int token = (chunk + lane) * chunk_tokens, of_tile = token >> box_shift_;
            const uint32_t page = __shfl_sync(tile::full_warp, batch.page, (first + of_tile) & 31);
            const bool exists = page < num_pages_;
            const int token_in_page = ((batch.first_box + first) * params_.box_tokens + token) & (params_.page_size.value - 1);
            if (of_tile < boxes)
                ptx::copy_async<16>(destination + chunk * 16,
                                    of_head + (exists ? page : 0u) * scale_page_stride_ + token_in_page * Format::scale_bytes,
                                    exists);
        }
        ptx::mbarrier_arrive_after_copies(ring_.full_barrier(tensor_));
    }

    const schedule_params &params_;
    const void *const map_, *const v_map_;
    const row_source *const scales_;
    const bool has_scale_blocks_;
    const uint64_t scale_page_stride_;
    const uint32_t num_pages_;
    const int box_shift_, copies_shift_;
    const Tensor tensor_;
    const uint32_t warp_;
    const int box_bytes_;
    Ring ring_;
    uint32_t turn_ = 0;
    const bool waits_for_votes_, reads_ahead_, shares_tiles_;
    Votes &votes_;
};

} // namespace pipeline
