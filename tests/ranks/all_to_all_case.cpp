// Random all-to-alls: rows scattered over blocks that differ on both sides, pairs and whole ranks
// without rows, two parts of different types that travel together.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "rank_cases.h"

namespace tandem::ranks {
namespace {

constexpr int kCols = 5;
constexpr float kUntouched = -1;

std::int64_t rows_between(int trial, int from, int to) {
  if (trial % 4 == 1 && from == 0) return 0;  // a rank that sends nothing
  if (trial % 4 == 2 && to == 0) return 0;    // a rank that receives nothing
  if (trial == 3) return 0;                   // nobody has rows
  const auto pair = static_cast<std::uint64_t>((trial * 16 + from) * 16 + to);
  if (whole(1, pair, 4) == 0) return 0;
  return whole(2, pair, trial == 5 ? 3000 : 20);
}

// The value of column c of row k from one rank to another: small whole numbers, exact in fp32.
float value(int from, int to, std::int64_t k, int c) {
  return static_cast<float>(((from * 8 + to) * 4096 + k) * kCols + c);
}

struct Layout {
  std::vector<std::vector<RowBlock>> blocks;  // per peer
  std::int64_t rows = 0;                      // of the whole view, gaps included
};

// Cuts every peer's rows at random, lays the blocks out in random order with gaps between them.
Layout random_layout(const std::vector<std::int64_t>& rows_of, std::uint64_t seed) {
  struct Piece {
    std::size_t peer, order;
    std::int64_t rows;
    std::int64_t place;
  };
  std::vector<Piece> pieces;
  std::uint64_t draw = 0;
  for (std::size_t peer = 0; peer < rows_of.size(); ++peer) {
    std::int64_t left = rows_of[peer];
    for (std::size_t order = 0; left > 0; ++order) {
      const std::int64_t rows = 1 + whole(seed, draw++, left);
      pieces.push_back({peer, order, rows, whole(seed, draw++, 1000)});
      left -= rows;
    }
  }
  std::stable_sort(pieces.begin(), pieces.end(),
                   [](const Piece& a, const Piece& b) { return a.place < b.place; });
  Layout layout;
  layout.blocks.resize(rows_of.size());
  for (std::size_t peer = 0; peer < rows_of.size(); ++peer) {
    for (const Piece& piece : pieces) {
      if (piece.peer == peer && piece.order + 1 > layout.blocks[peer].size()) {
        layout.blocks[peer].resize(piece.order + 1);
      }
    }
  }
  for (const Piece& piece : pieces) {
    layout.rows += whole(seed, draw++, 2);  // sometimes a row that belongs to nobody
    layout.blocks[piece.peer][piece.order] = {layout.rows, piece.rows};
    layout.rows += piece.rows;
  }
  layout.rows += 1;
  layout.blocks[0].push_back({layout.rows, 0});  // an empty block is legal anywhere
  return layout;
}

template <class Body>
void for_each_row(const std::vector<RowBlock>& blocks, Body&& body) {
  std::int64_t k = 0;
  for (const RowBlock& block : blocks) {
    for (std::int64_t r = 0; r < block.rows; ++r) body(block.begin + r, k++);
  }
}

void run_trial(Comm& comm, Lane& lane, int trial, Digest& digest) {
  const int me = comm.rank();
  std::vector<std::int64_t> out_rows, in_rows;
  for (int p = 0; p < comm.size(); ++p) {
    out_rows.push_back(rows_between(trial, me, p));
    in_rows.push_back(rows_between(trial, p, me));
  }
  const auto seed = static_cast<std::uint64_t>(100 + trial * 16 + me);
  const Layout out = random_layout(out_rows, seed);
  const Layout in = random_layout(in_rows, seed + 7777);
  const auto cells = [](const Layout& l) { return static_cast<std::size_t>(l.rows * kCols); };
  std::vector<float> from(cells(out), kUntouched), to(cells(in), kUntouched);
  std::vector<std::uint16_t> from16(static_cast<std::size_t>(out.rows), 0);
  std::vector<std::uint16_t> to16(static_cast<std::size_t>(in.rows), 0);
  for (int p = 0; p < comm.size(); ++p) {
    for_each_row(out.blocks[static_cast<std::size_t>(p)], [&](std::int64_t row, std::int64_t k) {
      for (int c = 0; c < kCols; ++c) {
        from[static_cast<std::size_t>(row * kCols + c)] = value(me, p, k, c);
      }
      from16[static_cast<std::size_t>(row)] = static_cast<std::uint16_t>(k * 7 + me + 1);
    });
  }
  AllToAll plan;
  plan.parts.push_back(
      {{from.data(), DType::kF32, out.rows, kCols}, {to.data(), DType::kF32, in.rows, kCols}});
  plan.parts.push_back(
      {{from16.data(), DType::kBF16, out.rows, 1}, {to16.data(), DType::kBF16, in.rows, 1}});
  plan.send = out.blocks;
  plan.recv = in.blocks;
  comm.all_to_all(*lane.stream, std::move(plan));
  lane.stream->sync();

  std::vector<float> expected(cells(in), kUntouched);
  std::vector<std::uint16_t> expected16(to16.size(), 0);
  for (int p = 0; p < comm.size(); ++p) {
    for_each_row(in.blocks[static_cast<std::size_t>(p)], [&](std::int64_t row, std::int64_t k) {
      for (int c = 0; c < kCols; ++c) {
        expected[static_cast<std::size_t>(row * kCols + c)] = value(p, me, k, c);
      }
      expected16[static_cast<std::size_t>(row)] = static_cast<std::uint16_t>(k * 7 + p + 1);
    });
  }
  expect(to == expected, fmt::format("trial {}: rows of part 0 and the gaps between them", trial));
  expect(to16 == expected16, fmt::format("trial {}: rows of part 1", trial));
  digest.add(to.data(), to.size() * sizeof(float));
}

}  // namespace

std::uint64_t all_to_all_case(World& world) {
  Lane lane("ep");
  const auto comm = world.make_comm(everyone(world), "ep");
  Digest digest;
  abort_on_error(world, [&] {
    for (int trial = 0; trial < 12; ++trial) run_trial(*comm, lane, trial, digest);
  });
  return digest.value();
}

}  // namespace tandem::ranks
