/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_schedule.cpp: the schedule of the kernels and what it says of a unit's rows, run on the processor for random batches and
 * compared with the definitions in libdecode.h, token by token: every box of every unit falls to one worker, all who share a unit
 * say so, however many boxes there are, and each row sees what its query token sees. With fixed chunks a request is cut alike in every
 * batch, and each chunk has a record that no other chunk has at the same time.
 */
#include "played/device.cuh"

#include <cstdio>
#include <cstdlib>
#include <map>
#include <tuple>

#include "abi.h"
#include "drawn.cuh"
#include "pipeline/describe_rows.cuh"
#include "pipeline/split_schedule.cuh"
#include "tile/unit_rows.cuh"

namespace {

using Rows = tile::UnitRows<row_tile>;

/* A batch, and the parameter block that describes it. */
struct Batch {
    int num_kv_heads, group_size, page_size, window_left, stride, offset, head_shift, workers_of_a_head;
    bool lengths_by_head, has_chunks, is_mla;
    std::vector<int32_t> seq_lens, cum_seq_lens_q, query_positions;
    std::vector<uint16_t> draft_mask;
    schedule_params params;

    int q_len() const { return params.q_len; }
    int margin() const { return (params.rare & SCHEDULE_UNIT_MARGINS) != 0 ? static_cast<int>(params.unit_margin_boxes) : 0; }
    int halves() const { return (q_len() + 31) / 32 * 2; }
    int first_query_token(int request) const { return cum_seq_lens_q.empty() ? request * q_len() : cum_seq_lens_q[request]; }
    int query_tokens(int request) const {
        return cum_seq_lens_q.empty() ? q_len() : cum_seq_lens_q[request + 1] - cum_seq_lens_q[request];
    }
    int tokens(int request, int kv_head) const {
        const int length = seq_lens[lengths_by_head ? request * num_kv_heads + kv_head : request];
        return length < 0 ? 0 : length > params.max_tokens ? params.max_tokens : length;
    }
    int passes(int request) const {
        const int rows = query_tokens(request) * group_size;
        return rows == 0 ? 1 : (rows + row_tile - 1) / row_tile;
    }

    /* As libdecode.h has it. */
    bool sees(int request, int kv_head, int query, int token) const {
        const int own = tokens(request, kv_head) - query_tokens(request) + query;
        const int first_draft = tokens(request, kv_head) - query_tokens(request);
        const int64_t position = static_cast<int64_t>(token) * stride + offset;
        int64_t query_position = static_cast<int64_t>(own) * stride + offset;
        if (!query_positions.empty())
            query_position = static_cast<int64_t>(query_positions[request]) + query;
        else if (own < 0)
            return false;
        if (window_left >= 0 && position < query_position - window_left)
            return false;
        if (!draft_mask.empty() && token >= first_draft) {
            const int draft = token - first_draft;
            return (draft_mask[(first_query_token(request) + query) * halves() + draft / 16] >> draft % 16 & 1) != 0;
        }
        return position <= query_position;
    }
};

void draw_query_tokens(Batch &batch, int requests) {
    batch.params.q_len = below(3) == 0 ? 1 : 1 + below(below(4) == 0 ? 64 : 12);
    if (below(2) == 0) {
        batch.cum_seq_lens_q.push_back(0);
        for (int request = 0; request < requests; request++)
            batch.cum_seq_lens_q.push_back(batch.cum_seq_lens_q.back() + below(batch.q_len() + 1));
    }
    const int all = batch.first_query_token(requests - 1) + batch.query_tokens(requests - 1);
    const bool has_mask = below(3) == 0, has_positions = below(4) == 0;
    for (int half = 0; has_mask && half < all * batch.halves(); half++)
        batch.draft_mask.push_back(static_cast<uint16_t>(generator() & generator())); /* a quarter of the bits: some see little */
    for (int request = 0; has_positions && request < requests; request++)
        batch.query_positions.push_back(below(2000) - 100);
}

Batch drawn_batch() {
    static const int windows[] = {-1, -1, 0, 1, 5, 40, 300};
    Batch batch = {};
    const int requests = drawn_requests();
    batch.num_kv_heads = 1 << below(3);
    batch.group_size = 1 + below(12);
    batch.page_size = 16 << below(3);
    batch.window_left = windows[below(7)];
    batch.stride = below(3) == 0 ? 3 : 1;
    batch.offset = below(3) == 0 ? 2 : 0;
    batch.lengths_by_head = below(4) == 0;
    draw_query_tokens(batch, requests);
    for (int sequence = 0; sequence < requests * (batch.lengths_by_head ? batch.num_kv_heads : 1); sequence++)
        batch.seq_lens.push_back(drawn_length(batch.q_len()));
    const int heads_per_sequence = batch.lengths_by_head ? 1 : batch.num_kv_heads;
    while (heads_per_sequence % (2 << batch.head_shift) == 0 && below(3) != 0)
        batch.head_shift++;
    batch.workers_of_a_head = 1 + below(most_workers >> batch.head_shift);

    schedule_params &params = batch.params;
    const int64_t reach = batch.window_left < 0 ? INT32_MAX : batch.window_left / batch.stride + params.q_len - 1;
    params.row_passes = (params.q_len * batch.group_size + row_tile - 1) / row_tile;
    if (!batch.query_positions.empty() || !batch.cum_seq_lens_q.empty())
        params.rare |= SCHEDULE_EXACT_RANGES;
    params.seq_lens_request_stride = batch.lengths_by_head ? batch.num_kv_heads : 1;
    params.seq_lens_head_stride = batch.lengths_by_head ? 1 : 0;
    params.batch_size = requests;
    params.heads_per_sequence = heads_per_sequence;
    params.sequences_per_request = divisor(batch.num_kv_heads / heads_per_sequence);
    params.heads_per_worker = divisor(heads_per_sequence >> batch.head_shift);
    params.num_workers = divisor(batch.workers_of_a_head);
    params.min_boxes_per_worker = static_cast<uint32_t>(1 + below(8));
    params.page_size = divisor(batch.page_size);
    params.box_tokens = 16;
    params.max_tokens = 640;
    params.window_reach = static_cast<int32_t>(reach);
    params.head_shift = batch.head_shift;
    params.group_size = divisor(batch.group_size);
    params.position_stride = divisor(batch.stride);
    params.window_left = batch.window_left;
    params.position_offset = batch.offset;
    params.row_tile = row_tile;
    batch.has_chunks = below(2) == 0;
    if (batch.has_chunks)
        params.rare |= SCHEDULE_FIXED_CHUNKS;
    else if (below(2) == 0)
        params.rare |= SCHEDULE_UNIT_MARGINS;
    params.unit_margin_boxes = static_cast<uint32_t>(1 + below(below(2) == 0 ? 3 : 30));
    params.min_chunk_boxes = static_cast<uint32_t>(1 + below(below(2) == 0 ? 3 : 12));
    params.max_chunks = static_cast<uint32_t>(1 + below(below(2) == 0 ? KERNEL_MAX_CHUNKS : 5));
    return batch;
}

/* Requests of a batch in another order, some of them not at all and some twice, for other numbers of workers. */
Batch drawn_neighbourhood(const Batch &of, std::vector<int> &ret_requests) {
    Batch batch = of;
    const int requests = 1 + below(below(3) == 0 ? 1 : 8), tables = of.lengths_by_head ? of.num_kv_heads : 1;
    batch.seq_lens.clear();
    batch.query_positions.clear();
    batch.draft_mask.clear();
    batch.cum_seq_lens_q.clear();
    if (!of.cum_seq_lens_q.empty())
        batch.cum_seq_lens_q.push_back(0);
    for (int i = 0; i < requests; i++) {
        const int request = below(of.params.batch_size), tokens = of.query_tokens(request);
        ret_requests.push_back(request);
        for (int table = 0; table < tables; table++)
            batch.seq_lens.push_back(of.seq_lens[static_cast<size_t>(request * tables + table)]);
        if (!of.query_positions.empty())
            batch.query_positions.push_back(of.query_positions[static_cast<size_t>(request)]);
        if (!of.cum_seq_lens_q.empty())
            batch.cum_seq_lens_q.push_back(batch.cum_seq_lens_q.back() + tokens);
        for (int word = 0; !of.draft_mask.empty() && word < tokens * of.halves(); word++)
            batch.draft_mask.push_back(of.draft_mask[static_cast<size_t>(of.first_query_token(request) * of.halves() + word)]);
    }
    batch.params.batch_size = requests;
    batch.head_shift = below(of.head_shift + 1);
    batch.workers_of_a_head = 1 + below(most_workers >> batch.head_shift);
    batch.params.head_shift = batch.head_shift;
    batch.params.heads_per_worker = divisor(batch.params.heads_per_sequence >> batch.head_shift);
    batch.params.num_workers = divisor(batch.workers_of_a_head);
    batch.params.min_boxes_per_worker = static_cast<uint32_t>(1 + below(8));
    return batch;
}

/* Into the block, once the batch stays where it is. */
void point_to_arrays(Batch &batch) {
    batch.params.seq_lens = batch.seq_lens.data();
    batch.params.cum_seq_lens_q = batch.cum_seq_lens_q.empty() ? nullptr : batch.cum_seq_lens_q.data();
    batch.params.query_positions = batch.query_positions.empty() ? nullptr : batch.query_positions.data();
    batch.params.draft_mask = batch.draft_mask.empty() ? nullptr : batch.draft_mask.data();
}

struct Announced {
    int worker;
    pipeline::Piece piece;
    Rows rows;
};

/* What the announcer warp of a worker says, one CTA of a cluster of `cluster_size`. */
template <int cluster_size, bool is_mla>
std::vector<Announced> pieces_of(const Batch &batch, int worker, int rank) {
    const pipeline::Sequences sequences(batch.params);
    std::vector<Announced> all;
    Rows rows = {};
    played::run_grid(1, 1, played::lanes, 0, 1, [&] {
        const unsigned lane = played::lane();
        pipeline::SplitSchedule<cluster_size, is_mla> schedule(batch.params, sequences, static_cast<uint32_t>(worker),
                                                               static_cast<uint32_t>(rank));
        schedule.issue_length_loads();
        schedule.begin();
        for (;;) {
            pipeline::Piece piece = schedule.next();
            if (piece.end_of_work) {
                if (!schedule.next().end_of_work && lane == 0) /* as often as it is asked */
                    all.clear();
                return;
            }
            schedule.find_parts(piece);
            const pipeline::QueryTokens query(schedule.sequences(), piece.request);
            if (lane == 0)
                pipeline::name_rows(batch.params, query, piece, rows);
            __syncwarp();
            if (!pipeline::are_rows_alike(batch.params))
                pipeline::describe_rows<true>(batch.params, query_params{}, schedule.sequences(), query, piece, rows,
                                              static_cast<int>(lane));
            __syncwarp();
            if (lane == 0)
                all.push_back({worker, piece, rows});
            __syncwarp();
        }
    });
    return all;
}

template <int cluster_size>
std::vector<Announced> pieces_of(const Batch &batch, int worker, int rank) {
    return batch.margin() > 0 || worker % 2 == 0 ? pieces_of<cluster_size, true>(batch, worker, rank)
                                                 : pieces_of<cluster_size, false>(batch, worker, rank);
}

/* What consumers make of it: the bits of a warp's 32 tokens, and whether they look at bits at all. */
bool row_sees(const Rows &rows, int row, int token) {
    const int first = token / 32 * 32;
    const tile::WarpTokens<row_tile, 32> tokens{rows, rows.are_alike, first, rows.end_token, rows.common};
    if (tokens.all_visible())
        return true;
    return tokens.any_visible() && (tokens.seen_by(row) >> (token - first) & 1) != 0;
}

void check_rows(const Batch &batch, const Announced &announced) {
    const pipeline::Piece &piece = announced.piece;
    const int live_rows = batch.query_tokens(piece.request) * batch.group_size - piece.row_pass * row_tile;
    REQUIRE(announced.rows.live_rows == (live_rows < 0 ? 0 : live_rows > row_tile ? row_tile : live_rows));
    REQUIRE(announced.rows.first_query_token == batch.first_query_token(piece.request));
    for (int token = piece.first_box * 16; token < piece.end_box * 16; token++) {
        const bool exists = token < batch.tokens(piece.request, piece.kv_head);
        bool any = false;
        for (int row = 0; row < announced.rows.live_rows; row++) {
            const int query = (piece.row_pass * row_tile + row) / batch.group_size;
            const bool sees = exists && batch.sees(piece.request, piece.kv_head, query, token);
            any = any || sees;
            REQUIRE(row_sees(announced.rows, row, token) == sees);
        }
        const int first = token / 32 * 32;
        const tile::WarpTokens<row_tile, 32> tokens{announced.rows, announced.rows.are_alike, first, announced.rows.end_token,
                                                    announced.rows.common};
        if (!tokens.all_visible()) /* V's rows are cleared where no row sees them */
            REQUIRE((tokens.seen_by_any() >> (token - first) & 1) == any);
    }
}

using Unit = std::tuple<int, int, int>; /* request, KV head, pass */

/* Who shares the unit, as every piece of it says. */
void check_workers(const Batch &batch, const std::vector<const Announced *> &pieces) {
    uint32_t num_workers = 1;
    for (size_t i = 1; i < pieces.size(); i++) {
        const int step = pieces[i]->worker - pieces[i - 1]->worker;
        REQUIRE(step >= 0 && step % (1 << batch.head_shift) == 0);
        REQUIRE(batch.has_chunks || step == 1 << batch.head_shift);
        num_workers += step > 0;
    }
    for (size_t i = 0; i < pieces.size(); i++) {
        const pipeline::Piece &piece = pieces[i]->piece;
        REQUIRE(piece.parts.own == i);
        REQUIRE(piece.parts.count == pieces.size());
        REQUIRE(piece.parts.num_workers == num_workers);
        for (uint32_t part = 0; part < piece.parts.count; part++)
            REQUIRE(piece.parts.records.of(part) == pieces[0]->piece.parts.records.of(part));
        REQUIRE(piece.parts.ends_share == (i + 1 == pieces.size() || pieces[i + 1]->worker != pieces[i]->worker));
    }
}

/* Chunks as long as each other, but for one box: so many as the unit's own boxes ask for. */
void check_chunks(const Batch &batch, const std::vector<const Announced *> &pieces) {
    const int64_t boxes = pieces[0]->piece.unit_boxes, min_boxes = batch.params.min_chunk_boxes;
    const int64_t wanted = (boxes + min_boxes - 1) / min_boxes, most = batch.params.max_chunks;
    const int64_t count = wanted < most ? wanted : most;
    REQUIRE(static_cast<int64_t>(pieces.size()) == count);
    for (int64_t i = 0; i < count && pieces[0]->piece.end_token > pieces[0]->piece.first_token; i++) {
        const pipeline::Piece &piece = pieces[static_cast<size_t>(i)]->piece;
        REQUIRE(piece.first_box == pieces[0]->piece.first_box + i * boxes / count);
        REQUIRE(piece.end_box == pieces[0]->piece.first_box + (i + 1) * boxes / count);
    }
}

/* All pieces of a unit, of workers in order: together its boxes, from the first that a query token of the request sees to the last. */
void check_unit(const Batch &batch, const Unit &unit, const std::vector<const Announced *> &pieces) {
    const auto [request, kv_head, pass] = unit;
    REQUIRE(pass < batch.passes(request));
    int next_box = pieces[0]->piece.first_box;
    check_workers(batch, pieces);
    if (batch.has_chunks)
        check_chunks(batch, pieces);
    for (size_t i = 0; i < pieces.size(); i++) {
        const pipeline::Piece &piece = pieces[i]->piece;
        REQUIRE(piece.first_box == next_box);
        next_box = piece.end_box;
        check_rows(batch, *pieces[i]);
    }
    for (int token = 0; token < batch.tokens(request, kv_head); token++) {
        for (int query = 0; query < batch.query_tokens(request); query++)
            REQUIRE(!batch.sees(request, kv_head, query, token) ||
                    (token >= pieces[0]->piece.first_box * 16 && token < next_box * 16));
    }
}

/* Margins between the pieces of a worker count as its boxes do: none has more than its range. */
void check_shares(const Batch &batch, const std::vector<std::vector<Announced>> &by_worker, int64_t total) {
    const int64_t workers = batch.workers_of_a_head, share = (total + workers - 1) / workers;
    if (total / workers < batch.params.min_boxes_per_worker)
        return; /* fewer workers have it all */
    for (const std::vector<Announced> &pieces : by_worker) {
        int64_t boxes = 0;
        for (const Announced &announced : pieces)
            boxes += announced.piece.end_box - announced.piece.first_box;
        REQUIRE(pieces.empty() || boxes + 2 * batch.margin() * (static_cast<int64_t>(pieces.size()) - 1) <= share);
    }
}

/*
 * Records of units that workers share are no other unit's. Those of a unit that a worker has to itself may be its next one's, but no
 * other worker's: so such units must not mix.
 */
template <int cluster_size>
void check_records(const Batch &batch, const std::vector<std::vector<Announced>> &by_worker) {
    std::map<uint32_t, std::pair<int, Unit>> owners; /* of a record: its worker, -1 where workers share; the unit */
    const uint32_t of_a_cta = 2 * (batch.has_chunks ? batch.params.max_chunks : 1);
    for (const std::vector<Announced> &pieces : by_worker) {
        uint32_t next_part = 0;
        for (const Announced &announced : pieces) {
            const pipeline::Piece &piece = announced.piece;
            const Unit unit = {piece.request, piece.kv_head, piece.row_pass};
            const bool is_shared = piece.parts.num_workers > 1;
            for (uint32_t part = 0; piece.parts.count > 1 && part < piece.parts.count; part++) {
                const uint32_t record = piece.parts.records.of(part);
                REQUIRE(record < by_worker.size() * cluster_size * of_a_cta);
                const auto &owner = owners.emplace(record, std::make_pair(is_shared ? -1 : announced.worker, unit)).first->second;
                REQUIRE(owner.first == (is_shared ? -1 : announced.worker));
                REQUIRE(!is_shared || owner.second == unit);
            }
            REQUIRE(is_shared ? next_part == 0 : piece.parts.own == next_part);
            next_part = is_shared || piece.parts.ends_share ? 0 : next_part + 1;
            REQUIRE(is_shared || piece.parts.ends_share == (piece.parts.own + 1 == piece.parts.count));
        }
        REQUIRE(next_part == 0);
    }
}

using Cuts = std::map<Unit, std::vector<std::pair<int, int>>>; /* of every unit: the boxes of its chunks, in order */

template <int cluster_size>
Cuts check_batch(const Batch &batch) {
    std::map<Unit, std::vector<const Announced *>> units;
    std::vector<std::vector<Announced>> by_worker;
    for (int worker = 0; worker < batch.workers_of_a_head << batch.head_shift; worker++) {
        by_worker.push_back(pieces_of<cluster_size>(batch, worker, 0));
        for (int rank = 1; rank < cluster_size; rank++) { /* the ranks of a cluster lie one behind the other */
            const std::vector<Announced> others = pieces_of<cluster_size>(batch, worker, rank);
            REQUIRE(others.size() == by_worker.back().size());
            for (size_t i = 0; i < others.size(); i++) {
                REQUIRE(others[i].piece.first_box == by_worker.back()[i].piece.end_box);
                check_rows(batch, others[i]);
                by_worker.back()[i].piece.end_box = others[i].piece.end_box;
                by_worker.back()[i].rows = others[i].rows;
            }
        }
    }
    for (const std::vector<Announced> &pieces : by_worker) {
        for (size_t i = 0; i < pieces.size(); i++) {
            REQUIRE(batch.has_chunks || pieces[i].piece.is_last == (i + 1 == pieces.size()));
            units[{pieces[i].piece.request, pieces[i].piece.kv_head, pieces[i].piece.row_pass}].push_back(&pieces[i]);
        }
    }
    size_t expected = 0;
    for (int request = 0; request < batch.params.batch_size; request++)
        expected += static_cast<size_t>(batch.passes(request) * batch.num_kv_heads);
    REQUIRE(units.size() == expected);
    if (cluster_size > 1)
        return {};
    Cuts cuts;
    for (const auto &[unit, pieces] : units) {
        check_unit(batch, unit, pieces);
        for (const Announced *announced : pieces)
            cuts[unit].push_back({announced->piece.first_box, announced->piece.end_box});
    }
    check_records<cluster_size>(batch, by_worker);
    int64_t total = 0; /* of one head of every group */
    for (const auto &[unit, pieces] : units)
        total += pieces[0]->piece.unit_boxes + 2 * batch.margin();
    if (!batch.has_chunks)
        check_shares(batch, by_worker, total >> batch.head_shift);
    return cuts;
}

/* The same requests among others, at other places, with other numbers of workers. */
void check_neighbourhood(const Batch &batch, const Cuts &cuts) {
    std::vector<int> requests;
    Batch other = drawn_neighbourhood(batch, requests);
    point_to_arrays(other);
    for (const auto &[unit, chunks] : check_batch<1>(other)) {
        const auto [request, kv_head, pass] = unit;
        REQUIRE(cuts.at({requests[static_cast<size_t>(request)], kv_head, pass}) == chunks);
    }
}

/* One request. Of every other one there are as many units as workers; the others are of MLA. */
Batch drawn_request() {
    Batch batch = drawn_batch();
    batch.has_chunks = batch.lengths_by_head = false;
    batch.seq_lens = {drawn_length(1)};
    batch.cum_seq_lens_q.clear();
    batch.query_positions.clear();
    batch.draft_mask.clear();
    const int heads = batch.num_kv_heads >> batch.head_shift;
    const bool has_unit_each = below(2) == 0;
    batch.workers_of_a_head = has_unit_each ? heads : 1 + below(most_workers >> batch.head_shift);
    schedule_params &params = batch.params;
    params.q_len = params.batch_size = 1;
    params.row_passes = has_unit_each ? 1 : 1 + below(32 / heads);
    params.seq_lens_request_stride = 1;
    params.seq_lens_head_stride = 0;
    params.window_reach = batch.window_left < 0 ? INT32_MAX : batch.window_left / batch.stride;
    params.group_size = divisor(1 + below(row_tile));
    params.heads_per_sequence = batch.num_kv_heads;
    params.sequences_per_request = divisor(1);
    params.heads_per_worker = divisor(heads);
    params.num_workers = divisor(batch.workers_of_a_head);
    params.rare = SCHEDULE_ONE_REQUEST;
    batch.is_mla = !has_unit_each;
    return batch;
}

/* What clusters know without counting is what single CTAs count. */
void check_request(const Batch &batch) {
    for (int worker = 0; worker < (batch.workers_of_a_head << batch.head_shift) + 1; worker++) {
        const auto of_rank = [&](int rank) {
            return batch.is_mla ? pieces_of<2, true>(batch, worker, rank) : pieces_of<2, false>(batch, worker, rank);
        };
        const auto counted = pieces_of<1>(batch, worker, 0), first = of_rank(0), last = of_rank(1);
        REQUIRE(first.size() == counted.size() && last.size() == counted.size());
        for (size_t i = 0; i < counted.size(); i++) {
            const pipeline::Piece &piece = counted[i].piece, &of_first = first[i].piece, &of_last = last[i].piece;
            REQUIRE(of_first.request == piece.request && of_first.kv_head == piece.kv_head);
            REQUIRE(of_first.row_pass == piece.row_pass && of_first.is_last == piece.is_last);
            REQUIRE(of_first.first_token == piece.first_token && of_first.end_token == piece.end_token);
            REQUIRE(of_first.unit_start == piece.unit_start && of_first.unit_boxes == piece.unit_boxes);
            REQUIRE(of_first.parts.num_workers == piece.parts.num_workers && of_first.parts.count == piece.parts.count);
            REQUIRE(of_first.first_box == piece.first_box && of_first.end_box == of_last.first_box);
            REQUIRE(of_last.end_box == piece.end_box);
        }
    }
}

/* As many boxes as are served, 2^31 but for 4096: units of 2^31 - 4096 tokens, each a request or, of clusters, all of one. */
Batch largest_batch(int workers, bool is_one_request) {
    constexpr int units = 16, tokens = INT32_MAX - 4095;
    Batch batch = {};
    schedule_params &params = batch.params;
    batch.workers_of_a_head = workers;
    batch.num_kv_heads = params.heads_per_sequence = is_one_request ? units : 1;
    batch.seq_lens.assign(static_cast<size_t>(units / batch.num_kv_heads), tokens);
    params.batch_size = units / batch.num_kv_heads;
    params.row_passes = params.q_len = params.seq_lens_request_stride = params.min_boxes_per_worker = 1;
    params.rare = is_one_request ? SCHEDULE_ONE_REQUEST : 0;
    params.sequences_per_request = params.group_size = params.position_stride = divisor(1);
    params.heads_per_worker = divisor(batch.num_kv_heads);
    params.num_workers = divisor(workers);
    params.page_size = divisor(16);
    params.box_tokens = 16;
    params.max_tokens = tokens;
    params.window_reach = INT32_MAX;
    params.window_left = -1;
    params.row_tile = row_tile;
    return batch;
}

/* Nobody is said to share a unit who has no piece of it. */
template <int cluster_size>
void check_largest(int workers, bool is_one_request) {
    Batch batch = largest_batch(workers, is_one_request);
    point_to_arrays(batch);
    std::vector<std::vector<Announced>> by_worker;
    std::map<Unit, std::vector<const Announced *>> units;
    for (int worker = 0; worker < workers; worker++)
        by_worker.push_back(pieces_of<cluster_size, false>(batch, worker, 0));
    for (const std::vector<Announced> &pieces : by_worker)
        for (const Announced &announced : pieces)
            units[{announced.piece.request, announced.piece.kv_head, announced.piece.row_pass}].push_back(&announced);
    REQUIRE(units.size() == 16);
    for (const auto &[unit, pieces] : units)
        check_workers(batch, pieces);
}

} // namespace

int main(int argc, char **argv) {
    const int batches = argc > 1 ? std::atoi(argv[1]) : 60;
    for (batch_number = 0; batch_number < batches; batch_number++) {
        generator.seed(static_cast<unsigned>(batch_number));
        Batch batch = drawn_batch();
        point_to_arrays(batch);
        if (batch_number % 4 == 3) {
            batch.has_chunks = false; /* which clusters do not have */
            check_batch<2>(batch);
            continue;
        }
        const Cuts cuts = check_batch<1>(batch);
        for (int other = 0; batch.has_chunks && other < 3; other++)
            check_neighbourhood(batch, cuts);
    }
    for (; batch_number < batches * 2; batch_number++) {
        generator.seed(static_cast<unsigned>(batch_number));
        Batch request = drawn_request();
        point_to_arrays(request);
        check_request(request);
    }
    for (int workers = 1; workers <= 32; workers++)
        check_largest<1>(workers, false);
    check_largest<1>(550, false); /* of whom 34 and 35 share a unit: more than a warp has lanes */
    check_largest<8>(16, true);
    std::printf("%d batches, as many requests\n", batches);
    return 0;
}
