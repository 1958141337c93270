/* SPDX-License-Identifier: Apache-2.0 */
/*
 * split_schedule.cuh: who computes what. Balanced for requests of any mix of lengths, decided on the device from seq_lens.
 *
 * A unit is (request, row pass, KV head): what one softmax runs over; a pass is as many rows (query token and head) as a kernel
 * computes at a time. Its visible tokens are counted in boxes (what one copy brings). All boxes of all units, laid end to end, are
 * cut into equal contiguous ranges, one per worker; the part of a unit inside a range is a piece. A worker is a CTA, or a cluster,
 * whose CTAs then share every piece.
 * A unit without visible tokens counts as one box, so that exactly one worker owns it and writes its empty result.
 * Where the KV heads of a request lie side by side, workers come in groups: the ranges are those of one head, and the workers of a
 * group do the same range for a head each. What they read at a time is one stretch of memory, which comes faster than pieces do.
 *
 * Where a piece takes its time whatever its length (MLA: its queries, its results), units have margins: so many boxes that count and do not
 * exist, on both sides of each. Who has more of the beginnings and ends of units then has fewer boxes, and a cut within a margin moves
 * to the end of the unit: it leaves nobody a piece that is hardly worth it.
 *
 * So where a unit is cut depends on the units beside it, and the last bits of its result, too. With SCHEDULE_FIXED_CHUNKS they do not:
 * a unit is cut into chunks, by what it has of boxes and by nothing else, and a worker computes the chunks that end in its range,
 * each as a piece of its own.
 *
 * The producer warps and the announcer warp walk the schedule, each for itself (families/gqa_decode.cu). What is here computes integers
 * alone, and runs on the processor, too (tests/kernels/).
 *
 * Nothing can be copied before the first piece is known, so the way there is short: lanes work side by side, two sequences
 * each, and a vote of the lanes or a multiplication by a reciprocal stands where a division would take longer.
 */
#pragma once

#include <cstdint>

#include "abi.h"
#include "pipeline/sequence_window.cuh"

namespace pipeline {

__device__ __noinline__ uint32_t divide(uint32_t dividend, uint32_t divisor) { return dividend / divisor; }

/* Where workers keep what each part of a unit came to, among the records of the parameter block. */
struct UnitRecords {
    uint32_t first, second, step; /* of part 0, of part 1, and from there to each next one */

    __device__ __forceinline__ uint32_t of(uint32_t part) const { return part == 0 ? first : second + (part - 1) * step; }
};

/* Who shares the unit of a piece, and where they leave their parts: of find_parts. */
struct UnitParts {
    uint32_t num_workers;
    uint32_t own, count; /* which of the unit's parts the piece is, and how many there are, in order */
    bool ends_share;     /* this worker has no further part of the unit */
    UnitRecords records; /* of the parts, where there are several */
};

/* The part of a unit that falls to one worker. */
struct Piece {
    int request, kv_head, row_pass;
    int first_token, end_token;      /* visible tokens of the whole unit; empty: equal */
    int first_box, end_box;          /* this CTA's boxes of the piece; empty: equal */
    uint32_t unit_start, unit_boxes; /* flat boxes of the whole unit, without margins, at least 1 */
    UnitParts parts;
    bool is_last;     /* of this worker; not known of chunks */
    bool end_of_work; /* not a piece: there are no more */
};

__device__ __noinline__ uint32_t multiply_divide(uint32_t a, uint32_t b, uint32_t divisor) {
    return static_cast<uint32_t>((static_cast<uint64_t>(a) * b - 1) / divisor);
}

/*
 * All boxes cut into ranges, whose lengths differ by one box at most: worker w begins at floor(w * total / workers). So where the
 * workers are a multiple of units of one length, every unit begins where a worker does, whatever remains of the division.
 */
struct WorkSplit {
    libdecode_divisor workers;
    uint32_t quotient_boxes, remaining_boxes; /* total = workers * quotient_boxes + remaining_boxes */

    /* First flat box of a worker; of the one after the last: the total. */
    __device__ __forceinline__ uint32_t start(uint32_t worker) const {
        return worker * quotient_boxes + quotient(worker * remaining_boxes, workers);
    }

    /* The worker that owns a flat box. */
    __device__ __forceinline__ uint32_t worker_of(uint32_t box) const {
        return multiply_divide(box + 1, workers.value, workers.value * quotient_boxes + remaining_boxes);
    }
};

/* With so many boxes for each, or more. */
__device__ __noinline__ WorkSplit with_fewer_workers(uint32_t total, uint32_t min_boxes) {
    WorkSplit split;
    split.workers.value = max(total / min_boxes, 1u);
    split.workers.reciprocal = UINT32_MAX / split.workers.value;
    split.quotient_boxes = total / split.workers.value;
    split.remaining_boxes = total - split.quotient_boxes * split.workers.value;
    return split;
}

/* Of the boxes of a unit, counted from its first. */
struct Chunk {
    uint32_t number, count; /* of those of the unit */
    uint32_t first_box, end_box;
};

/* How a unit of so many boxes is cut: chunks whose lengths differ by one box at most. */
struct ChunkCut {
    uint32_t count, quotient_boxes, remaining_boxes;

    __device__ __forceinline__ ChunkCut(uint32_t boxes, uint32_t min_chunk_boxes, uint32_t max_chunks) {
        count = min((boxes - 1) / min_chunk_boxes + 1, max_chunks);
        quotient_boxes = boxes / count;
        remaining_boxes = boxes - count * quotient_boxes;
    }

    /* First box of a chunk; of the one after the last: all boxes. As WorkSplit cuts: so many workers for every unit get a chunk each. */
    __device__ __forceinline__ uint32_t start(uint32_t chunk) const {
        return chunk * quotient_boxes + chunk * remaining_boxes / count;
    }
};

/* The chunk that a box lies in. */
__device__ __noinline__ Chunk chunk_of(uint32_t box, uint32_t boxes, uint32_t min_chunk_boxes, uint32_t max_chunks) {
    const ChunkCut cut(boxes, min_chunk_boxes, max_chunks);
    uint32_t number = min(box / cut.quotient_boxes, cut.count - 1); /* right, or too large where chunks have a box more */
    while (cut.start(number) > box)
        --number;
    return {number, cut.count, cut.start(number), cut.start(number + 1)};
}

/* Who computes the chunks of a unit. */
struct ChunkWorkers {
    uint32_t first, count;
    uint32_t of_next; /* of the chunk behind the one that was asked about; UINT32_MAX: it is the last */
};

/* Lane i looks at chunk i. */
__device__ __noinline__ ChunkWorkers chunk_workers(WorkSplit split, uint32_t unit_start, uint32_t boxes, uint32_t min_chunk_boxes,
                                                   uint32_t max_chunks, uint32_t chunk) {
    const uint32_t lane = threadIdx.x & 31;
    const ChunkCut cut(boxes, min_chunk_boxes, max_chunks);
    const uint32_t worker = split.worker_of(unit_start + cut.start(min(lane, cut.count - 1) + 1) - 1);
    const uint32_t before = __shfl_up_sync(0xffffffffu, worker, 1), next = __shfl_sync(0xffffffffu, worker, (chunk + 1) & 31);
    ChunkWorkers workers;
    workers.count = __popc(__ballot_sync(0xffffffffu, lane == 0 || (lane < cut.count && worker != before)));
    workers.first = __shfl_sync(0xffffffffu, worker, 0);
    workers.of_next = chunk + 1 < cut.count ? next : UINT32_MAX;
    return workers;
}

template <int cluster_size>
__device__ __forceinline__ bool has_fixed_chunks(const schedule_params &params) {
    return cluster_size == 1 && (params.rare & SCHEDULE_FIXED_CHUNKS) != 0;
}

/* Whether a SplitSchedule reads its copy of the sequences: for what is called rarely, or where there are more than a window has. */
__device__ __forceinline__ bool needs_shared_sequences(const schedule_params &params) {
    return (params.rare & SCHEDULE_EXACT_RANGES) != 0 || params.sequences_per_request.value > 1 ||
           params.batch_size > window_sequences;
}

/* All lanes of a warp call every function together. `is_mla`: of rows that all heads share; `is_sparse`: sequences may be query tokens. */
template <int cluster_size, bool is_mla = false, bool is_sparse = false>
class SplitSchedule {
    static constexpr bool has_margins = is_mla;    /* SCHEDULE_UNIT_MARGINS may be set */
    static constexpr bool has_unit_each = !is_mla; /* one request has as many units as there are workers */

  public:
    /* `shared_sequences`: those of the parameter block, in shared memory, complete before count() if it needs them. */
    __device__ __forceinline__ SplitSchedule(const schedule_params &params, const Sequences &shared_sequences, uint32_t worker,
                                             uint32_t rank)
        : params_(params), sequences_(params), shared_sequences_(shared_sequences), worker_(worker >> params.head_shift),
          head_of_group_(worker & ((1u << params.head_shift) - 1)), rank_(rank), lane_(threadIdx.x & 31),
          box_shift_(__ffs(params.box_tokens) - 1), heads_(params.heads_per_worker.value),
          margin_(has_margins && rarely((params.rare & SCHEDULE_UNIT_MARGINS) != 0) ? params.unit_margin_boxes : 0u),
          is_one_request_(cluster_size > 1 && (params.rare & SCHEDULE_ONE_REQUEST) != 0) {}

    /* Issues the loads of the first lengths, which count() waits for. */
    __device__ __forceinline__ void issue_length_loads() {
        if (is_one_request_) {
            lengths_[0] = params_.seq_lens != nullptr ? *params_.seq_lens : params_.max_tokens;
            lengths_[1] = 0;
            return;
        }
#pragma unroll
        for (int i = 0; i < 2; ++i) { /* of those that have one each; other lengths are loaded when they are counted */
            const int request = first_sequence() + i;
            lengths_[i] = request < params_.batch_size ? params_.max_tokens : 0;
            if (request < params_.batch_size && params_.seq_lens != nullptr)
                lengths_[i] = params_.seq_lens[request * params_.seq_lens_request_stride];
        }
    }

    /*
     * Counts all work, and finds the first piece. Called before the warps part, each to what it does with pieces: then all of them wait for
     * the same instructions to be fetched.
     */
    __device__ __forceinline__ void begin() {
        count();
        first_ = next_piece();
        has_first_ = true;
    }

    /* In place of begin(), where warps have no registers to part with a piece. */
    __device__ __forceinline__ void count() {
        has_first_ = false;
        if (is_one_request_ && begin_one_request())
            return;
        const uint32_t lane_boxes = count_work();
        position_ = end_ = 0;
        if (worker_ < split_.workers.value)
            find_first_piece(lane_boxes);
    }

    /* The next piece of this worker, in order; after the last, end_of_work. Whoever is handed a schedule finds it begun, or counted. */
    __device__ __forceinline__ Piece next() {
        if (!has_first_)
            return next_piece();
        has_first_ = false;
        return first_;
    }

    /*
     * Who shares the unit of this worker's piece, and where they leave their parts: lane i looks at the i-th worker before this one, and at
     * the (32 - i)-th after it, of whom the nearest that does not begin within the unit ends the count: those behind the last worker are
     * none, and of nearly 2^31 boxes for few workers their beginnings exceed 32 bits. A worker shares two units at most, the last of its
     * range with those behind it, the first with those before. So of a unit's workers the first uses the second of its two records, the
     * others the first of theirs.
     */
    __device__ __forceinline__ void find_parts(Piece &piece) const {
        if (rarely(has_fixed_chunks<cluster_size>(params_))) {
            find_chunks(piece);
            return;
        }
        const uint32_t unit_end = piece.unit_start + piece.unit_boxes;
        const uint32_t before =
            __popc(__ballot_sync(0xffffffffu, split_.start(worker_ - min(lane_, worker_)) > piece.unit_start));
        const uint32_t after = __clz(__ballot_sync(0xffffffffu, split_.start(worker_ + 32 - lane_) >= unit_end));
        uint32_t first_worker = worker_ - before;
        piece.parts.num_workers = before + 1 + after;
        if (rarely(piece.parts.num_workers > 32)) { /* perhaps more than lanes see */
            first_worker = split_.worker_of(piece.unit_start);
            piece.parts.num_workers = split_.worker_of(unit_end - 1) - first_worker + 1;
        }
        piece.parts.own = worker_ - first_worker;
        piece.parts.count = piece.parts.num_workers;
        piece.parts.ends_share = true;
        const uint32_t step = 2 * cluster_size << params_.head_shift;
        const uint32_t first = (of_group(first_worker) * cluster_size + rank_) * 2 + 1;
        piece.parts.records = {first, first + step - 1, step};
    }

    __device__ __forceinline__ const Sequences &sequences() const { return sequences_; }

  private:
    static __device__ __forceinline__ Piece end_of_work() {
        Piece piece = {};
        piece.end_of_work = true;
        return piece;
    }

    __device__ __forceinline__ Piece next_piece() {
        Piece piece = {};
        if (position_ == end_)
            return end_of_work();
        if (is_one_request_) {
            take_piece_of_request(piece);
            return piece;
        }

        uint32_t offset, boxes;
        for (;;) {
            boxes = find_unit(piece, offset);
            if (!has_margins || !rarely(offset >= margin_ + boxes))
                break;
            go_to(position_ + boxes + 2 * margin_ - offset); /* the range begins in the margin behind this unit */
            if (position_ == end_)
                return end_of_work();
        }
        uint32_t first = offset - min(offset, margin_), end = offset + (end_ - position_);
        end = min(boxes, end - min(end, margin_));
        if (has_margins && rarely(end == 0)) { /* it ends in the one ahead of it */
            position_ = end_;
            return end_of_work();
        }
        piece.unit_start = position_ - offset + margin_;
        piece.unit_boxes = boxes;
        if (rarely(has_fixed_chunks<cluster_size>(params_))) {
            const Chunk chunk = chunk_of(first, boxes, params_.min_chunk_boxes, params_.max_chunks);
            if (piece.unit_start + chunk.end_box > end_) {
                position_ = end_;
                return end_of_work();
            }
            first = chunk.first_box;
            end = chunk.end_box;
            piece.parts.own = chunk.number;
            piece.parts.count = chunk.count;
        }
        take_boxes(piece, first, end);
        return piece;
    }

    /*
     * The unit at the position, to the piece; of its boxes the number, and how far from the beginning of the margin ahead of them the
     * position lies.
     */
    __device__ __forceinline__ uint32_t find_unit(Piece &piece, uint32_t &ret_offset) {
        uint32_t here;
        while (rarely((here = __ballot_sync(0xffffffffu, position_ - window_start_ < window_.inclusive)) == 0)) {
            window_start_ += __shfl_sync(0xffffffffu, window_.inclusive, 31);
            window_first_ += window_sequences;
            window_ = are_plain(sequences_)
                          ? window_of<PlainLengths>(shared_sequences_, window_first_, heads_, box_shift_, 2 * margin_)
                          : window_at<is_sparse>(shared_sequences_, window_first_, heads_, box_shift_, 2 * margin_);
        }
        const SequencePair &pair = window_.pair;
        const int source = __ffs(here) - 1;
        const uint32_t pair_start = window_start_ + __shfl_sync(0xffffffffu, window_.inclusive - pair.flat_boxes(), source);
        const uint32_t first_flat = __shfl_sync(0xffffffffu, pair.boxes[0] * pair.units[0], source);
        const bool is_second = position_ - pair_start >= first_flat;
        const int sequence = window_first_ + source * 2 + is_second;
        const uint32_t offset = position_ - pair_start - (is_second ? first_flat : 0u);
        const uint32_t boxes = __shfl_sync(0xffffffffu, is_second ? pair.boxes[1] : pair.boxes[0], source);
        piece.first_token = __shfl_sync(0xffffffffu, is_second ? pair.range[1].first : pair.range[0].first, source);
        piece.end_token = __shfl_sync(0xffffffffu, is_second ? pair.range[1].end : pair.range[0].end, source);

        /* offset / boxes: lane i says whether unit i begins at or before the position. */
        int unit = __popc(__ballot_sync(0xffffffffu, lane_ * boxes <= offset)) - 1;
        if (rarely(heads_ * params_.row_passes > 32))
            unit = divide(offset, boxes);
        piece.row_pass = quotient(unit, params_.heads_per_worker);
        const int head_in_sequence = unit - piece.row_pass * heads_;
        piece.request = sequences_.request_of(sequence);
        piece.kv_head =
            sequences_.first_head_of(sequence, piece.request) + (head_in_sequence << params_.head_shift) + head_of_group_;
        ret_offset = offset - unit * boxes;
        return boxes - 2 * margin_;
    }

    /* From a unit to the next one. What a range has of the margin ahead of a unit is no piece. */
    __device__ __forceinline__ void go_to(uint32_t position) {
        position_ = min(position, end_);
        if (end_ - position_ <= margin_)
            position_ = end_;
    }

    /* The boxes of a unit from `first` on up to `end` are the piece, of which this CTA gets its share. */
    __device__ __forceinline__ void take_boxes(Piece &piece, uint32_t first, uint32_t end) {
        /* The one box of an empty unit does not exist. */
        const uint32_t live = piece.end_token > piece.first_token ? end - first : 0;
        const int first_box = (piece.first_token >> box_shift_) + first;
        piece.first_box = first_box + live * rank_ / cluster_size;
        piece.end_box = first_box + live * (rank_ + 1) / cluster_size;
        position_ = piece.unit_start + end;
        if (has_margins && end == piece.unit_boxes)
            go_to(position_ + margin_);
        piece.is_last = position_ == end_;
    }

    /*
     * One request: what each cluster computes is known without counting, which would take longer than the length takes to come. Of units for
     * each it is not where they have too few boxes: fewer workers take part.
     */
    __device__ __forceinline__ bool begin_one_request() {
        TokenRange &range = window_.pair.range[0];
        range = sequences_.common_range(sequences_.tokens_of(lengths_[0]));
        const uint32_t boxes = max(range.num_boxes(box_shift_), 1u);
        if constexpr (has_unit_each) {
            is_one_request_ = boxes >= params_.min_boxes_per_worker;
            if (!is_one_request_)
                return false;
            split_ = {params_.num_workers, boxes, 0};
            position_ = worker_ * boxes;
            end_ = position_ + (worker_ < split_.workers.value ? boxes : 0u);
        } else {
            cut_work(boxes * heads_ * params_.row_passes);
            position_ = split_.start(worker_);
            end_ = worker_ < split_.workers.value ? split_.start(worker_ + 1) : position_;
        }
        return true;
    }

    /* The piece at the position, where there is one request. */
    __device__ __forceinline__ void take_piece_of_request(Piece &piece) {
        const TokenRange &range = window_.pair.range[0];
        piece.first_token = range.first;
        piece.end_token = range.end;
        if constexpr (has_unit_each) {
            piece.kv_head = (worker_ << params_.head_shift) + head_of_group_;
            piece.unit_start = position_;
            piece.unit_boxes = end_ - position_;
            take_boxes(piece, 0, piece.unit_boxes);
        } else {
            const uint32_t boxes = max(range.num_boxes(box_shift_), 1u);
            const uint32_t unit = __popc(__ballot_sync(0xffffffffu, lane_ * boxes <= position_)) - 1; /* of 32 at most */
            const uint32_t offset = position_ - unit * boxes;
            piece.row_pass = quotient(unit, params_.heads_per_worker);
            piece.kv_head = ((unit - piece.row_pass * heads_) << params_.head_shift) + head_of_group_;
            piece.unit_start = unit * boxes;
            piece.unit_boxes = boxes;
            take_boxes(piece, offset, min(boxes, offset + (end_ - position_)));
        }
    }

    /* Among all workers. */
    __device__ __forceinline__ uint32_t of_group(uint32_t worker) const {
        return (worker << params_.head_shift) + head_of_group_;
    }

    /*
     * Every chunk of a unit has a record of its own, whoever computes it, and they lie with the unit's first worker. Units that it shares
     * and units that it has to itself have places of their own there: others may leave records of the last of its units while it is
     * still at one before.
     */
    __device__ __forceinline__ void find_chunks(Piece &piece) const {
        const ChunkWorkers workers = chunk_workers(split_, piece.unit_start, piece.unit_boxes, params_.min_chunk_boxes,
                                                   params_.max_chunks, piece.parts.own);
        piece.parts.num_workers = workers.count;
        piece.parts.ends_share = workers.of_next != worker_;
        const uint32_t first = (of_group(workers.first) * 2 + (workers.count > 1)) * params_.max_chunks;
        piece.parts.records = {first, first + 1, 1};
    }

    __device__ __forceinline__ bool has_windows() const { return sequences_.count > window_sequences; }
    /* That a lane counts: a pair, or so many pairs, one behind the other. */
    __device__ __forceinline__ int sequences_per_lane() const {
        return (sequences_.count + window_sequences - 1) / window_sequences * 2;
    }
    __device__ __forceinline__ int first_sequence() const { return lane_ * sequences_per_lane(); }

    /* So many boxes, divided among the workers. */
    __device__ __forceinline__ void cut_work(uint32_t total) {
        split_.workers = params_.num_workers;
        split_.quotient_boxes = quotient(total, params_.num_workers);
        if (rarely(split_.quotient_boxes < params_.min_boxes_per_worker))
            split_ = with_fewer_workers(total, params_.min_boxes_per_worker);
        else
            split_.remaining_boxes = total - split_.quotient_boxes * split_.workers.value;
    }

    /* Counts all boxes and divides them. The flat boxes of the sequences that this lane counts. */
    __device__ __forceinline__ uint32_t count_work() {
        uint32_t lane_boxes;
        if (rarely(needs_shared_sequences(params_))) {
            lane_boxes = count_rarely();
        } else {
            window_.pair = SequencePair(sequences_, lane_ * 2, lengths_, heads_, box_shift_, 2 * margin_, true);
            lane_boxes = window_.pair.flat_boxes();
        }
        const uint32_t total = __reduce_add_sync(0xffffffffu, lane_boxes);
        window_.inclusive = sequences_.count <= 2 ? total : inclusive_scan(lane_boxes);
        cut_work(total);
        return lane_boxes;
    }

    __device__ __forceinline__ uint32_t count_rarely() {
        if (!has_windows()) {
            window_ = window_at<is_sparse>(shared_sequences_, 0, heads_, box_shift_, 2 * margin_);
            return window_.pair.flat_boxes();
        }
        const int first = first_sequence(), end = min(first + sequences_per_lane(), sequences_.count);
        return are_plain(sequences_)
                   ? count_boxes_of<PlainLengths>(shared_sequences_, first, end, heads_, box_shift_, 2 * margin_)
                   : count_boxes<is_sparse>(shared_sequences_, first, end, heads_, box_shift_, 2 * margin_);
    }

    /* Where this worker's range begins and ends, and the window of sequences around its beginning, or the one ahead of it. */
    __device__ __forceinline__ void find_first_piece(uint32_t lane_boxes) {
        position_ = split_.start(worker_);
        end_ = split_.start(worker_ + 1);
        window_first_ = 0;
        window_start_ = 0;
        if (rarely(has_windows())) {
            const WindowPlace place = lane_around(position_, window_.inclusive, lane_boxes, sequences_per_lane());
            window_first_ = place.first_sequence - window_sequences;
            window_start_ = place.first_box;
            window_.inclusive = 0;
        }
    }

    const schedule_params &params_;
    const Sequences sequences_, &shared_sequences_;
    const uint32_t worker_; /* of those that do the same heads; params_.num_workers of them */
    const uint32_t head_of_group_, rank_, lane_;
    const int box_shift_;
    const int heads_;       /* of a sequence, that one worker of a group computes */
    const uint32_t margin_; /* boxes that count on each side of a unit's */
    bool is_one_request_;   /* as SCHEDULE_ONE_REQUEST says, and where units are for each, there is enough to do */
    int lengths_[2];        /* on their way to count() */
    WorkSplit split_;
    Piece first_;
    bool has_first_;          /* that next() still has to give */
    uint32_t position_, end_; /* flat boxes still to do, margins among them */
    int window_first_;        /* sequence */
    uint32_t window_start_;   /* flat box of its first unit */
    SequenceWindow window_;
};

/* Of sparse attention, whose units are query tokens. */
template <int cluster_size>
using SparseSchedule = SplitSchedule<cluster_size, false, true>;

} // namespace pipeline
