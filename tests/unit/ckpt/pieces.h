// A small model's state, dealt to ranks in random layouts; every value follows from the tensor's
// name, the element and a version, so what was loaded can be told from what was saved.
#pragma once

#include <algorithm>
#include <barrier>
#include <random>
#include <thread>

#include "../base/temp_folder.h"
#include "tandem/base/error.h"
#include "tandem/base/rng.h"
#include "tandem/ckpt/checkpoint.h"
#include "tandem/comm/shared_error.h"

namespace tandem {

inline const std::vector<std::pair<std::string, std::int64_t>> kTensors = {
    {"embedding", 50}, {"layers.0.experts.gate_up", 96}, {"layers.0.norm", 7}, {"head", 1}};

inline float value_of(const std::string& name, std::int64_t element, int part,
                      std::int64_t version) {
  return philox_uniform(static_cast<std::uint64_t>(version), stream_id(name.c_str()),
                        static_cast<std::uint64_t>(element * 3 + part));
}

// One rank's pieces with their memory.
class Pieces {
 public:
  Pieces() = default;
  Pieces(Pieces&&) = default;  // spans stay valid: the inner vectors keep their memory
  void add(const std::string& name, std::int64_t size, std::int64_t begin, std::int64_t count) {
    const auto n = static_cast<std::size_t>(count);
    memory_.emplace_back(3 * n, -1.0F);
    const std::span<float> all(memory_.back());
    list.push_back({name, size, begin, all.first(n), all.subspan(n, n), all.last(n)});
  }

  void fill(std::int64_t version) {
    for_each([&](float& at, float value) { at = value; }, version);
  }

  [[nodiscard]] bool holds(std::int64_t version) {
    bool equal = true;
    for_each([&](const float& at, float value) { equal = equal && at == value; }, version);
    return equal;
  }

  std::vector<StatePiece> list;

 private:
  template <class Visit>
  void for_each(const Visit& visit, std::int64_t version) {
    for (const StatePiece& piece : list) {
      for (std::size_t i = 0; i < piece.master.size(); ++i) {
        const std::int64_t element = piece.begin + static_cast<std::int64_t>(i);
        visit(piece.master[i], value_of(piece.name, element, 0, version));
        visit(piece.m[i], value_of(piece.name, element, 1, version));
        visit(piece.v[i], value_of(piece.name, element, 2, version));
      }
    }
  }

  std::vector<std::vector<float>> memory_;
};

// Every tensor cut at random places, the parts dealt to random ranks: some get none of a tensor,
// some several parts of it, and an expert tensor may lie in the middle of a rank only.
inline std::vector<Pieces> layout(std::size_t ranks, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<Pieces> all(ranks);
  for (const auto& [name, size] : kTensors) {
    for (std::int64_t begin = 0; begin < size;) {
      const auto most = static_cast<unsigned>(size - begin);
      const std::int64_t count = 1 + random() % std::min(most, 20U);
      all[random() % ranks].add(name, size, begin, count);
      begin += count;
    }
    all[random() % ranks].add(name, size, size / 2, 0);
  }
  return all;
}

inline Pieces whole() {
  return std::move(layout(1, 0).front());
}

inline CheckpointInfo info_of(std::int64_t step) {
  return {step, step * 8, 0xFFFFFFFFFFFFFFFFULL, "{\"model\":{\"name\":\"\\u00e4\\n\"}}"};
}

// Saves from one thread per rank, the exceptions' texts by rank.
inline std::vector<std::string> save_ranks(const std::string& dir, std::int64_t step,
                                           std::vector<Pieces>& ranks, int keep,
                                           const std::function<SaveHook(int)>& hook_of) {
  const auto size = static_cast<int>(ranks.size());
  std::barrier meet(size);
  std::vector<std::string> slots(ranks.size()), errors(ranks.size());
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      const auto self = static_cast<std::size_t>(rank);
      CheckpointPeers peers{rank, size, [&] { meet.arrive_and_wait(); },
                            [&](const std::string& mine) {
                              slots[self] = mine;
                              // hazard: every slot is written before any is read
                              meet.arrive_and_wait();
                              std::vector<std::string> all = slots;
                              // hazard: every slot is read before any is written again
                              meet.arrive_and_wait();
                              return all;
                            }};
      try {
        ranks[self].fill(step);
        save_checkpoint(dir, info_of(step), ranks[self].list, keep, peers, hook_of(rank));
      } catch (const SharedError& error) {
        errors[self] = error.what();
      } catch (const Error& error) {
        errors[self] = std::string("not shared: ") + error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}

inline void save(const std::string& dir, std::int64_t step, std::int64_t version, int keep = 2,
                 const SaveHook& hook = {}) {
  Pieces pieces = whole();
  pieces.fill(version);
  save_checkpoint(dir, info_of(step), pieces.list, keep, {}, hook);
}

inline bool loads(const std::string& path, std::int64_t version) {
  Pieces pieces = whole();
  load_checkpoint(path, pieces.list);
  return pieces.holds(version);
}

inline std::vector<std::string> entries(const std::string& dir) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(dir)) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

using Names = std::vector<std::string>;

inline const SaveHook& no_hook(int) {
  static const SaveHook none;
  return none;
}

}  // namespace tandem
