/* SPDX-License-Identifier: Apache-2.0 */
/*
 * warpgroup_result.cuh: levels 1 and 2 of partial.cuh for two warpgroups that each have all columns of 64 rows in their registers. Of 64 rows each has
 * them of tiles of its own: both are added up, so that each has half of the columns then (fold_teams). Of 128 rows each has 64. In a cluster the columns
 * go to the CTAs that own them (accumulator_exchange.cuh).
 */
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "pipeline/accumulator_exchange.cuh"
#include "pipeline/accumulator_fold.cuh"
#include "pipeline/partial.cuh"
#include "ptx/cluster.cuh"
#include "ptx/scalar.cuh"
#include "tile/row_warpgroup.cuh"

namespace pipeline {

template <int head_dim, int row_tile, int cluster_size>
struct WarpgroupResult {
    static constexpr bool has_cluster = cluster_size > 1;
    static constexpr int groups = 2, threads = groups * tile::group_threads;
    static constexpr int row_groups = row_tile / tile::group_rows; /* that have other rows */
    static constexpr int teams = groups / row_groups;              /* that have other tiles */

    /* What a warpgroup hands over, so many columns at a time. */
    static constexpr int group_columns = head_dim / teams, square_columns = std::min(group_columns, 64);
    static constexpr int squares = group_columns / square_columns;
    /*
     * What is added up, so many columns at a time, of each warpgroup's; and of these parts those that a CTA of a cluster owns, side by side. Where there
     * are not enough, it owns one of one team's, or none.
     */
    static constexpr int part_columns = 16, group_parts = group_columns / part_columns;
    static constexpr bool own_of_every_team = cluster_size <= group_parts;
    static constexpr int own_parts = own_of_every_team ? group_parts / cluster_size : 1;
    static constexpr int owners = own_of_every_team ? cluster_size : std::min(teams * group_parts, cluster_size);
    static_assert(own_parts * owners == (own_of_every_team ? 1 : teams) * group_parts, "an owner for every part");

    using Slice = AccumulatorSlice<threads, square_columns, false>;
    using PartSlice = AccumulatorSlice<threads, part_columns, false>;
    using ClusterExchange =
        AccumulatorExchange<PartSlice, own_parts, cluster_size, row_tile, own_of_every_team ? groups : row_groups>;
    using Output = tile::RowOutput<head_dim>;

    /* A result on its way out, 64 columns of a warpgroup's rows at a time. */
    using Lines = uint8_t[groups][tile::group_rows * 128];

    /*
     * What warpgroups with tiles of their own hand each other of the same rows: as much as there is room for at a time; in a cluster all of it, as the
     * tiles are lent.
     */
    struct TeamExchange {
        static constexpr int vector_bytes = threads * Slice::width * sizeof(float);
        static constexpr int vectors =
            has_cluster ? Slice::per_thread : std::min<int>(Slice::per_thread, sizeof(Lines) / vector_bytes);
        static constexpr int rounds = Slice::per_thread / vectors;
        static_assert(rounds * vectors == Slice::per_thread, "whole rounds");
        float output[groups][vectors][tile::group_threads][Slice::width];
    };

    /* In a cluster, in the place of the tiles, at a piece's end. */
    struct LentTiles {
        typename ClusterExchange::Message messages[cluster_size];
        TeamExchange teams;
    };

    /* Lies in shared memory. */
    struct Memory {
        union {
            alignas(1024) Lines lines;
            std::conditional_t<has_cluster, uint8_t, TeamExchange> teams; /* before that */
        };
        float statistics[groups][tile::group_rows][2]; /* likewise, of each row: reference and sum */
    };

    /*
     * The calling CTA's. The exchange, of which there is nothing in a single CTA, is no member of Memory: nested there and empty it made nvcc 13.0 place
     * what follows 17 KiB behind where offsetof says.
     */
    struct Shared {
        Memory &memory;
        ClusterExchange &cluster;
        LentTiles &lent;
    };

    /* Where a consumer warp stands: its warpgroup, which tiles and rows that takes, and its place among the four. */
    struct Place {
        int group, warp;

        explicit __device__ __forceinline__ Place(int thread)
            : group(thread / tile::group_threads), warp(thread % tile::group_threads / 32) {}
        __device__ __forceinline__ int team() const { return group / row_groups; }
        __device__ __forceinline__ int first_row_of_group() const { return group % row_groups * tile::group_rows; }
    };

    static __device__ __forceinline__ uint32_t cluster_rank() { return has_cluster ? ptx::cluster_rank() : 0u; }

    /* Of the parts of a warpgroup's columns, those that a CTA of the cluster owns: from that number on; and whether it owns any of this warpgroup's. */
    static __device__ __forceinline__ int first_part_of(uint32_t rank) {
        return static_cast<int>(rank) * own_parts % group_parts;
    }
    static __device__ __forceinline__ bool owns_columns_of(uint32_t rank, const Place &place) {
        return own_of_every_team || static_cast<int>(rank) / group_parts == place.team();
    }

    /* A square of the warpgroup's columns. */
    static __device__ __forceinline__ void take_square(Slice &result, const Output &output, int square) {
        result.take(output.value, 0);
#pragma unroll
        for (int i = 1; i < head_dim / square_columns; ++i) {
            if (i == square)
                result.take(output.value, i * (square_columns / 8));
        }
    }

    /*
     * Of either warpgroup's tiles together, half of the columns: result's statistics, which are this one's, become those of both. Products are rounded
     * before they are added, so that it does not matter which of the two had which tiles.
     */
    template <class Meet>
    static __device__ __forceinline__ void fold_teams(const Shared &shared, Slice &result, const Output &output,
                                                      const Place &place, int lane, Meet meet) {
        const int other = 1 - place.group, thread = place.warp * 32 + lane, row = place.warp * 16 + lane / 4;
        TeamExchange &exchange = has_cluster ? shared.lent.teams : reinterpret_cast<TeamExchange &>(shared.memory.teams);
        open(shared.cluster, result, meet); /* and all lines of the unit before have left */
#pragma unroll
        for (int i = 0; i < Slice::statistics; ++i) {
            if (lane % 4 == 0)
                *reinterpret_cast<float2 *>(shared.memory.statistics[place.group][row + i * 8]) =
                    make_float2(result.reference[i], result.sum[i]);
        }
        Slice sent(0);
        take_square(sent, output, other);
        take_square(result, output, place.group);
        float own_weight[Slice::statistics], other_weight[Slice::statistics];
#pragma unroll
        for (int round = 0; round < TeamExchange::rounds; ++round) {
            constexpr int vectors = TeamExchange::vectors;
#pragma unroll
            for (int i = 0; i < vectors; ++i) {
                const float(&vector)[Slice::width] = sent.value[round * vectors + i];
                *reinterpret_cast<float4 *>(exchange.output[other][i][thread]) =
                    make_float4(vector[0], vector[1], vector[2], vector[3]);
            }
            meet();
#pragma unroll
            for (int i = 0; round == 0 && i < Slice::statistics; ++i) {
                const float2 statistics = *reinterpret_cast<const float2 *>(shared.memory.statistics[other][row + i * 8]);
                const float largest = fmaxf(result.reference[i], statistics.x), common = tile::finite_reference(largest);
                own_weight[i] = ptx::exp2_approx(result.reference[i] - common);
                other_weight[i] = ptx::exp2_approx(statistics.x - common);
                result.reference[i] = largest;
                result.sum[i] = __fadd_rn(__fmul_rn(result.sum[i], own_weight[i]), __fmul_rn(statistics.y, other_weight[i]));
            }
#pragma unroll
            for (int i = 0; i < vectors; ++i) {
                const float4 vector = *reinterpret_cast<const float4 *>(exchange.output[place.group][i][thread]);
                const float of_other[Slice::width] = {vector.x, vector.y, vector.z, vector.w};
                float(&own)[Slice::width] = result.value[round * vectors + i];
#pragma unroll
                for (int j = 0; j < Slice::width; ++j)
                    own[j] = __fadd_rn(__fmul_rn(own[j], own_weight[i % 2]), __fmul_rn(of_other[j], other_weight[i % 2]));
            }
            if (!has_cluster)
                meet(); /* what was exchanged has been read */
        }
    }

    /*
     * What this CTA has of a piece goes to the CTAs of the cluster that own it, and what they have of its own parts comes: of 64 rows `result`, folded; of 128
     * its statistics and `output`. A round is a piece.
     */
    template <class Meet>
    static __device__ __forceinline__ void exchange_parts(const Shared &shared, const Slice &result, const Output &output,
                                                          const Place &place, int lane, uint32_t round, Meet meet) {
        const uint32_t rank = cluster_rank();
        if (teams == 1)
            open(shared.cluster, result, meet);
        PartSlice columns(result.live_rows);
        take_statistics(columns, result);
        shared.cluster.wait_ready(round);
#pragma unroll 1
        for (uint32_t turn = 1; turn < cluster_size; ++turn) {
            const uint32_t owner = rank ^ turn;
            if (owner >= owners)
                continue;
            if (lane % 4 == 0 && (teams == 1 || place.group == 0))
                shared.cluster.send_statistics(columns, shared.lent.messages, rank, owner);
            if (!owns_columns_of(owner, place))
                continue;
#pragma unroll 1
            for (int number = 0; number < own_parts; ++number) {
                take_any_part(columns, result, output, first_part_of(owner) + number);
                shared.cluster.send(columns, shared.lent.messages, number, rank, owner);
            }
        }
        shared.cluster.wait_received(round);
    }

    /* Of the part of that number, among those that this CTA owns, what all CTAs of the cluster have. */
    static __device__ __forceinline__ void take_own_part(PartSlice &columns, const Shared &shared, const Slice &result,
                                                         const Output &output, int number) {
        take_any_part(columns, result, output, first_part_of(cluster_rank()) + number);
        take_statistics(columns, result);
        shared.cluster.fold(columns, shared.lent.messages, number, cluster_rank());
    }

  private:
    /* Nobody multiplies any more: the other CTAs may send. */
    template <class Meet>
    static __device__ __forceinline__ void open(ClusterExchange &cluster, const Slice &result, Meet meet) {
        meet();
        cluster.open(PartSlice(result.live_rows), cluster_rank() < owners);
    }

    static __device__ __forceinline__ void take_part(PartSlice &columns, const Slice &result, const Output &output, int part) {
        if (teams == 1)
            columns.take(output.value, part * (part_columns / 8));
#pragma unroll
        for (int i = 0; teams == 2 && i < PartSlice::per_thread; ++i) {
#pragma unroll
            for (int j = 0; j < PartSlice::width; ++j)
                columns.value[i][j] = result.value[part * PartSlice::per_thread + i][j];
        }
    }
    /* A part whose number the compiler does not know: registers have no index. */
    static __device__ __forceinline__ void take_any_part(PartSlice &columns, const Slice &result, const Output &output,
                                                         int part) {
        take_part(columns, result, output, 0);
#pragma unroll
        for (int i = 1; i < group_parts; ++i) {
            if (i == part)
                take_part(columns, result, output, i);
        }
    }
    static __device__ __forceinline__ void take_statistics(PartSlice &columns, const Slice &result) {
#pragma unroll
        for (int i = 0; i < PartSlice::statistics; ++i) {
            columns.reference[i] = result.reference[i];
            columns.sum[i] = result.sum[i];
        }
    }
};

} // namespace pipeline
