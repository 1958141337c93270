/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reduction.cuh: from the partial results of many warps to one, in one launch and always in the same order, so that equal
 * inputs give equal bits. Three levels, each optional but the first:
 *
 *     warps of a CTA          through shared memory
 *     CTAs of a cluster       every thread pushes its columns into the CTA that owns them (DSMEM); CTA i folds slice i
 *     workers                 partial records in global memory; the last to arrive folds them in the order of the workers
 *
 * A partial is (unnormalised output, maximum m, sum l) per row; partials fold as  m = max m_i,  w_i = 2^(m_i - m),
 * l = sum w_i l_i,  output = sum w_i output_i.
 * After the first level a thread holds some vectors of columns of the rows: Slice says which.
 */
#pragma once

#include <cstddef>
#include <cstdint>

#include "abi.h"
#include "pipeline/split_schedule.cuh"
#include "ptx/cluster.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/memory.cuh"
#include "tile/attention.cuh"

namespace pipeline {

/* Where a vector of a partial's output lies, and maximum and sum of its row. */
struct Partial {
    const float *output, *statistics;
};

/*
 * How `rows` x `columns` results are dealt out to `threads`: vectors of `width` columns, thread t gets t, t + threads, ...
 * Only the first `live_rows` rows are query heads; nothing is done for the others.
 */
template <int rows, int columns, int threads>
struct Slice {
    static constexpr int width = rows * columns >= threads * 4 ? 4 : rows * columns >= threads * 2 ? 2 : 1;
    static constexpr int vectors_per_row = columns / width;
    static constexpr int vectors = rows * vectors_per_row;
    static constexpr int per_thread = (vectors + threads - 1) / threads;

    float value[per_thread][width] = {};
    float maximum[per_thread] = {}; /* of the vector's row */
    float sum[per_thread] = {};

    const uint32_t thread = ptx::thread_index_here(), live_rows;

    explicit __device__ __forceinline__ Slice(int live_rows) : live_rows(live_rows) {}
    __device__ __forceinline__ uint32_t vector(int i) const { return thread + i * threads; }
    __device__ __forceinline__ bool live(int i) const { return vector(i) < live_rows * vectors_per_row; }
    __device__ __forceinline__ uint32_t row(int i) const { return vector(i) / vectors_per_row; }
    __device__ __forceinline__ uint32_t column(int i) const { return vector(i) % vectors_per_row * width; }

    __device__ __forceinline__ void clear() {
#pragma unroll
        for (int i = 0; i < per_thread; ++i) {
            maximum[i] = -INFINITY;
            sum[i] = 0.f;
#pragma unroll
            for (int j = 0; j < width; ++j)
                value[i][j] = 0.f;
        }
    }

    /* From `parts` partials at once; partial_at(row, column, part) is where the vector there lies in one of them. */
    template <int parts, class PartialAt>
    __device__ __forceinline__ void fold_all(PartialAt partial_at) {
#pragma unroll
        for (int i = 0; i < per_thread; ++i) {
            if (!live(i))
                continue;
            const uint32_t r = row(i), c = column(i);
            float largest = partial_at(r, c, 0).statistics[0];
#pragma unroll
            for (int part = 1; part < parts; ++part)
                largest = fmaxf(largest, partial_at(r, c, part).statistics[0]);
            const float reference = tile::finite_reference(largest);
            maximum[i] = largest;
            sum[i] = 0.f;
#pragma unroll
            for (int j = 0; j < width; ++j)
                value[i][j] = 0.f;
#pragma unroll
            for (int part = 0; part < parts; ++part) {
                const Partial partial = partial_at(r, c, part);
                const float weight = ptx::exp2_approx(partial.statistics[0] - reference);
                sum[i] += weight * partial.statistics[1];
#pragma unroll
                for (int j = 0; j < width; ++j)
                    value[i][j] += weight * partial.output[j];
            }
        }
    }

    /* Adds another partial of vector i. */
    __device__ __forceinline__ void fold(int i, const float (&other_value)[width], float other_maximum, float other_sum) {
        const float largest = fmaxf(maximum[i], other_maximum);
        const float reference = tile::finite_reference(largest);
        const float weight = ptx::exp2_approx(maximum[i] - reference), other_weight = ptx::exp2_approx(other_maximum - reference);
        maximum[i] = largest;
        sum[i] = sum[i] * weight + other_sum * other_weight;
#pragma unroll
        for (int j = 0; j < width; ++j)
            value[i][j] = value[i][j] * weight + other_value[j] * other_weight;
    }
};

/* Level 1: the partials of the warps that share rows: head_dim columns of output, then the row's maximum and sum. */
template <int head_dim, int rows, int token_groups>
struct WarpPartials {
    static constexpr int pitch = head_dim + 4; /* 4 more: the lanes of a fragment then fall into different banks */
    float row[token_groups][rows][pitch];

    template <int row_tiles>
    __device__ __forceinline__ void store(const tile::OutputFragment<head_dim / 16, row_tiles> &fragment,
                                          const tile::OnlineSoftmax<row_tiles> &softmax, int token_group, int first_row,
                                          int lane) {
        float(*const partial)[pitch] = &row[token_group][first_row + (lane & 3) * 2];
#pragma unroll
        for (int n = 0; n < row_tiles; ++n) {
#pragma unroll
            for (int odd = 0; odd < 2; ++odd) {
                const float total = softmax.row_sum(n, odd); /* on its way while the output is stored */
                float *const to = partial[n * 8 + odd] + (lane >> 2);
#pragma unroll
                for (int i = 0; i < head_dim / 16; ++i) {
                    to[i * 16] = fragment.value[i][n][odd];
                    to[i * 16 + 8] = fragment.value[i][n][odd + 2];
                }
                if (lane < 4) {
                    partial[n * 8 + odd][head_dim] = softmax.reference[n][odd];
                    partial[n * 8 + odd][head_dim + 1] = total;
                }
            }
        }
    }

    template <int threads>
    __device__ __forceinline__ void fold(Slice<rows, head_dim, threads> &result) const {
        result.template fold_all<token_groups>([&](uint32_t r, uint32_t column, int group) {
            return Partial{&row[group][r][column], &row[group][r][head_dim]};
        });
    }
};

/*
 * Level 2, once the barriers of all CTAs of the cluster are initialised: one record per (sending CTA, slice): output, then
 * maximum and sum of the rows. A round is one piece. Two barriers keep rounds apart, both completed by the bytes of stores from
 * the CTAs: `received` when all slices are in, `consumed` when all CTAs have said that they have folded what was sent to them.
 */
template <int head_dim, int rows, int cluster_size>
struct ClusterExchange {
    static constexpr int columns = head_dim / cluster_size;
    struct Record {
        float output[rows][columns];
        float statistics[rows][2];
    };
    alignas(16) Record receive[cluster_size];
    float says_consumed[cluster_size]; /* their values mean nothing */
    alignas(8) uint64_t received;
    alignas(8) uint64_t consumed;

    __device__ __forceinline__ void initialise() {
        ptx::mbarrier_init(ptx::shared_address(&received), 1);
        ptx::mbarrier_init(ptx::shared_address(&consumed), 1);
    }

    /*
     * Sends every column of the CTA's result to the CTA that owns it and folds the slices that arrive here. After the last
     * round nothing more is on its way to this CTA, so it may end.
     */
    template <int barrier_id, int threads>
    __device__ __forceinline__ void run(const Slice<rows, head_dim, threads> &own, Slice<rows, columns, threads> &result,
                                        int rank, uint32_t round, bool is_last_round) {
        if (round > 0)
            wait(&consumed, round - 1);
        if (threadIdx.x == 0) {
            const uint32_t bytes = cluster_size * own.live_rows * (columns + 2) * sizeof(float);
            ptx::mbarrier_arrive_expect_tx(ptx::shared_address(&received), bytes);
            ptx::mbarrier_arrive_expect_tx(ptx::shared_address(&consumed), sizeof(says_consumed));
        }
        push(own, rank);
        wait(&received, round);
        fold(result);
        if (is_last_round)
            return;
        ptx::named_barrier<barrier_id, threads>();
        if (threadIdx.x < cluster_size)
            ptx::store_async(ptx::map_shared_rank(ptx::shared_address(&says_consumed[rank]), threadIdx.x), {0.f},
                             ptx::map_shared_rank(ptx::shared_address(&consumed), threadIdx.x));
    }

  private:
    static __device__ __forceinline__ void wait(uint64_t *barrier, uint32_t round) {
        while (!ptx::mbarrier_try_wait_cluster(ptx::shared_address(barrier), round & 1u)) {
        }
    }

    template <int threads>
    __device__ __forceinline__ void push(const Slice<rows, head_dim, threads> &own, int rank) {
        using S = Slice<rows, head_dim, threads>;
        const uint32_t own_received = ptx::shared_address(&received), own_record = ptx::shared_address(&receive[rank]);
#pragma unroll
        for (int i = 0; i < S::per_thread; ++i) {
            if (!own.live(i))
                continue;
            const uint32_t owner = own.column(i) / columns;
            const uint32_t record = ptx::map_shared_rank(own_record, owner), barrier = ptx::map_shared_rank(own_received, owner);
            ptx::store_async(record + (own.row(i) * columns + own.column(i) % columns) * 4, own.value[i], barrier);
            if (own.column(i) % columns == 0)
                ptx::store_async(record + offsetof(Record, statistics) + own.row(i) * 8, {own.maximum[i], own.sum[i]}, barrier);
        }
    }

    template <int threads>
    __device__ __forceinline__ void fold(Slice<rows, columns, threads> &result) const {
        result.template fold_all<cluster_size>([&](uint32_t row, uint32_t column, int part) {
            return Partial{&receive[part].output[row][column], receive[part].statistics[row]};
        });
    }
};

/* A cluster of one CTA has nothing to exchange. */
template <int head_dim, int rows>
struct ClusterExchange<head_dim, rows, 1> {
    __device__ __forceinline__ void initialise() {}
    template <int barrier_id, int threads>
    __device__ __forceinline__ void run(const Slice<rows, head_dim, threads> &own, Slice<rows, head_dim, threads> &result, int,
                                        uint32_t, bool) {
        for (int i = 0; i < own.per_thread; ++i) {
            for (int j = 0; j < own.width; ++j)
                result.value[i][j] = own.value[i][j];
            result.maximum[i] = own.maximum[i];
            result.sum[i] = own.sum[i];
        }
    }
};

/*
 * Level 3. A worker has at most two pieces of units that it shares: the last of its range, if the unit goes on (slot 1 of its
 * records), and the first, if the unit began before (slot 0). So of a unit's workers the first uses slot 1, the others slot 0,
 * and the first one's record counts who has come. Every warp does so for itself: whole rows are its own.
 *
 * Nothing orders a record before its worker is counted, which would cost a round trip to memory. Instead the last to be
 * counted knows that all records are on their way, and reads until they have come: no word of a record is zero, and all are
 * zero before. It clears them for the next launch.
 */
template <int rows, int columns>
struct alignas(16) WorkerRecord {
    float output[rows][columns];
    float statistics[rows][2]; /* maximum and sum */
    uint32_t arrivals[8];      /* of every warp */

    /* Zero with a sign: the same number, but not a cleared word. */
    static __device__ __forceinline__ float marked(float value) { return value == 0.f ? -0.f : value; }

    /* Where vector i of a thread lies, and the statistics of its row. */
    template <class S>
    __device__ __forceinline__ float *words(const S &result, int i) {
        return output[0] + result.vector(i) * S::width;
    }
    template <class S>
    __device__ __forceinline__ float *statistics_of(const S &result, int i) {
        return statistics[result.row(i)];
    }

    template <class S>
    __device__ __forceinline__ void store(const S &result) {
#pragma unroll
        for (int i = 0; i < S::per_thread; ++i) {
            if (!result.live(i))
                continue;
            float value[S::width];
#pragma unroll
            for (int j = 0; j < S::width; ++j)
                value[j] = marked(result.value[i][j]);
            ptx::store_relaxed(words(result, i), value);
            if (result.column(i) == 0)
                ptx::store_relaxed(statistics_of(result, i), {marked(result.maximum[i]), marked(result.sum[i])});
        }
    }

    template <class S>
    __device__ __forceinline__ void clear(const S &result) {
#pragma unroll
        for (int i = 0; i < S::per_thread; ++i) {
            if (!result.live(i))
                continue;
            const float zeros[S::width] = {};
            ptx::store_relaxed(words(result, i), zeros);
            if (result.column(i) == 0)
                ptx::store_relaxed(statistics_of(result, i), {0.f, 0.f});
        }
    }
};

/* One vector of a record and the statistics of its row. */
template <int width>
struct RecordWords {
    float output[width];
    float statistics[2];

    __device__ __forceinline__ void load(const float *output_words, const float *statistics_words) {
        ptx::load_relaxed(output, output_words);
        ptx::load_relaxed(statistics, statistics_words);
    }

    __device__ __forceinline__ bool have_come() const {
        bool all = __float_as_uint(statistics[0]) != 0u && __float_as_uint(statistics[1]) != 0u;
#pragma unroll
        for (int j = 0; j < width; ++j)
            all = all && __float_as_uint(output[j]) != 0u;
        return all;
    }
};

/* Some microseconds at most; launches that use one workspace at the same time would wait forever, and get an error instead. */
template <int width>
__device__ __noinline__ RecordWords<width> wait_for_words(const float *output_words, const float *statistics_words) {
    RecordWords<width> words;
    for (int tries = 0; tries < 1 << 22; ++tries) {
        words.load(output_words, statistics_words);
        if (words.have_come())
            return words;
    }
    __trap();
    return words;
}

/* The workers that share a piece's unit, as one rank of them sees their records. */
template <int cluster_size, class S, class Record>
class WorkerFold {
    static_assert(32 % S::vectors_per_row == 0, "a warp holds whole rows");

  public:
    __device__ __forceinline__ WorkerFold(void *records, const Piece &piece, uint32_t rank)
        : first_(static_cast<Record *>(records) + (piece.first_worker * cluster_size + rank) * 2ll + 1),
          parts_(piece.num_workers) {}

    /* Leaves this warp's part of the worker's result. Whether it came last; then `result` is the whole unit's. */
    __device__ __forceinline__ bool run(S &result, uint32_t part) {
        record(part)->store(result);
        __syncwarp();
        uint32_t *const arrivals = &first_->arrivals[result.thread / 32];
        uint32_t before = 0;
        if (result.thread % 32 == 0)
            before = ptx::atomic_add(arrivals, 1u);

        constexpr int at_most = 48 / (S::per_thread * (S::width + 2)), together = at_most < 4 ? at_most : 4; /* registers allow */
#pragma unroll 1
        for (int first = 0; first < parts_; first += together) {
            RecordWords<S::width> words[together][S::per_thread] = {};
#pragma unroll
            for (int k = 0; k < together; ++k) {
#pragma unroll
                for (int i = 0; i < S::per_thread; ++i) {
                    if (first + k >= parts_ || !result.live(i))
                        continue;
                    words[k][i].load(record(first + k)->words(result, i), record(first + k)->statistics_of(result, i));
                }
            }
            if (first == 0) { /* the count has been on its way together with them */
                if (__shfl_sync(tile::full_warp, before, 0) != parts_ - 1)
                    return false;
                if (result.thread % 32 == 0)
                    *arrivals = 0u;
                result.clear();
            }
#pragma unroll
            for (int k = 0; k < together; ++k) {
#pragma unroll
                for (int i = 0; i < S::per_thread; ++i) {
                    if (first + k >= parts_ || !result.live(i))
                        continue;
                    if (rarely(!words[k][i].have_come()))
                        words[k][i] = wait_for_words<S::width>(record(first + k)->words(result, i),
                                                               record(first + k)->statistics_of(result, i));
                    result.fold(i, words[k][i].output, words[k][i].statistics[0], words[k][i].statistics[1]);
                }
            }
        }
        return true;
    }

    /* Clears the records, after all lanes have read the statistics of their rows. */
    __device__ __forceinline__ void clear(const S &result) {
        __syncwarp();
#pragma unroll 1
        for (int part = 0; part < parts_; ++part)
            record(part)->clear(result);
    }

  private:
    __device__ __forceinline__ Record *record(int part) const { return first_ + part * (2 * cluster_size) - (part == 0 ? 0 : 1); }

    Record *const first_;
    const int parts_;
};

} // namespace pipeline
