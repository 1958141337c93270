/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_sparse_schedule.cpp: the schedule of sparse attention, run on the processor for random batches: every query token of every
 * request has the columns that it uses, as libdecode.h has it, once.
 */
#include "played/device.cuh"

#include <cstdio>
#include <cstdlib>
#include <map>
#include <tuple>
#include <vector>

#include "abi.h"
#include "drawn.cuh"
#include "pipeline/split_schedule.cuh"

namespace {

/* What each query token of each request uses of its row of ids. */
struct QueryTokenBatch {
    int heads, head_shift, workers_of_a_head;
    std::vector<int32_t> seq_lens, cum_seq_lens_q, top_k_lens;
    schedule_params params;

    /* As libdecode.h has it. */
    int columns(int request, int token) const {
        const int first = cum_seq_lens_q.empty() ? request * params.q_len : cum_seq_lens_q[static_cast<size_t>(request)];
        const int count = cum_seq_lens_q.empty() ? params.q_len : cum_seq_lens_q[static_cast<size_t>(request) + 1] - first;
        if (token >= count)
            return 0;
        const int length = seq_lens[static_cast<size_t>(request)];
        const int tokens = length < 0 ? 0 : length > params.max_tokens ? params.max_tokens : length;
        const int used = top_k_lens.empty() ? tokens - count + token + 1 : top_k_lens[static_cast<size_t>(first + token)];
        return used < 0 ? 0 : used > params.top_k ? params.top_k : used;
    }
};

QueryTokenBatch drawn_query_tokens() {
    QueryTokenBatch batch = {};
    const int requests = drawn_requests();
    schedule_params &params = batch.params;
    params.q_len = 1 + below(5);
    batch.heads = 1 << below(3);
    while (batch.heads % (2 << batch.head_shift) == 0 && below(2) == 0)
        batch.head_shift++;
    batch.workers_of_a_head = 1 + below(most_workers >> batch.head_shift);
    for (int request = 0; request < requests; request++)
        batch.seq_lens.push_back(drawn_length(params.q_len));
    if (below(3) == 0) {
        batch.cum_seq_lens_q.push_back(0);
        for (int request = 0; request < requests; request++)
            batch.cum_seq_lens_q.push_back(batch.cum_seq_lens_q.back() + below(params.q_len + 1));
    }
    const bool has_lens = below(3) == 0;
    for (int token = 0; has_lens && token < requests * params.q_len; token++)
        batch.top_k_lens.push_back(below(400) - 20);
    params.rare = SCHEDULE_EXACT_RANGES;
    params.seq_lens_request_stride = 1;
    params.batch_size = requests;
    params.heads_per_sequence = batch.heads;
    params.sequences_per_request = divisor(params.q_len);
    params.heads_per_worker = divisor(batch.heads >> batch.head_shift);
    params.num_workers = divisor(batch.workers_of_a_head);
    params.min_boxes_per_worker = static_cast<uint32_t>(1 + below(8));
    params.box_tokens = 16;
    params.row_passes = 1 + below(3);
    params.max_tokens = 640;
    params.window_reach = INT32_MAX;
    params.head_shift = batch.head_shift;
    params.group_size = divisor(row_tile * params.row_passes);
    params.position_stride = divisor(1);
    params.row_tile = row_tile;
    params.top_k = 1 + below(300);
    return batch;
}

/* All pieces of all workers in order: of every head of every query token, in every pass, the columns that it uses, once. */
void check_query_tokens(const QueryTokenBatch &batch) {
    const pipeline::Sequences sequences(batch.params);
    std::map<std::tuple<int, int, int>, int> next_box; /* of request, token and head, pass */
    for (int worker = 0; worker < batch.workers_of_a_head << batch.head_shift; worker++) {
        played::run_grid(1, 1, played::lanes, 0, 1, [&] {
            pipeline::SparseSchedule<1> schedule(batch.params, sequences, static_cast<uint32_t>(worker), 0);
            schedule.issue_length_loads();
            schedule.begin();
            for (pipeline::Piece piece = schedule.next(); !piece.end_of_work; piece = schedule.next()) {
                if (played::lane() != 0)
                    continue;
                const int columns = batch.columns(piece.request, piece.kv_head / batch.heads);
                REQUIRE(piece.request < batch.params.batch_size && piece.kv_head < batch.params.q_len * batch.heads);
                REQUIRE(piece.row_pass < batch.params.row_passes);
                REQUIRE(piece.first_token == 0 && piece.end_token == columns);
                int &next = next_box.emplace(std::make_tuple(piece.request, piece.kv_head, piece.row_pass), 0).first->second;
                REQUIRE(piece.first_box == next && piece.end_box <= (columns + 15) / 16);
                REQUIRE(piece.end_box > next || columns == 0);
                next = piece.end_box;
            }
        });
    }
    REQUIRE(next_box.size() ==
            static_cast<size_t>(batch.params.batch_size * batch.params.q_len * batch.heads * batch.params.row_passes));
    for (const auto &[unit, boxes] : next_box)
        REQUIRE(boxes == (batch.columns(std::get<0>(unit), std::get<1>(unit) / batch.heads) + 15) / 16);
}

} // namespace

int main(int argc, char **argv) {
    const int batches = argc > 1 ? std::atoi(argv[1]) : 60;
    for (batch_number = 0; batch_number < batches; batch_number++) {
        generator.seed(static_cast<unsigned>(batch_number));
        QueryTokenBatch batch = drawn_query_tokens();
        batch.params.seq_lens = batch.seq_lens.data();
        batch.params.cum_seq_lens_q = batch.cum_seq_lens_q.empty() ? nullptr : batch.cum_seq_lens_q.data();
        batch.params.top_k_lens = batch.top_k_lens.empty() ? nullptr : batch.top_k_lens.data();
        check_query_tokens(batch);
    }
    std::printf("%d batches\n", batches);
    return 0;
}
