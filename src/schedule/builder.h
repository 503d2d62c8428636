// ProgramBuilder appends instructions to the program of one stage and numbers the slots at their
// first mention. It knows which slots an instruction touches, not when to issue it.
#pragma once

#include <vector>

#include "tandem/schedule/lower.h"

namespace tandem {

class ProgramBuilder {
 public:
  // `options` must outlive the builder.
  ProgramBuilder(const LowerOptions& options, int stage);

  void run(const Task& task, NodeKind node, Phase phase, int layer);
  void host_wait(const Task& task, int layer);
  // Only where sends() or receives() says so.
  void send(const Task& task);
  void receive(const Task& task);
  void grad_sync(int chunk);
  void opt_step();

  [[nodiscard]] int stage() const { return program_.stage; }
  [[nodiscard]] const ChunkPlan& plan(const Task& task) const;
  [[nodiscard]] bool moe(int layer) const { return moe_[static_cast<std::size_t>(layer)] != 0; }
  [[nodiscard]] bool sends(const Task& task) const;
  [[nodiscard]] bool receives(const Task& task) const;

  Program take() { return std::move(program_); }

 private:
  struct Key {
    SlotKind kind;
    int chunk, microbatch, layer;
  };
  Instr& append(Op op, Lane lane, Dir dir, int chunk, int microbatch, int layer);
  void use(Instr& instr, const Key& key, Access access);
  std::int32_t& number_of(const Key& key);
  [[nodiscard]] Key key_of(SlotKind kind, const Task& task, int layer) const;
  [[nodiscard]] Key layer_key(SlotKind kind, const Task& task, int layer) const;
  void use_gradients(Instr& instr, int chunk);
  [[nodiscard]] int virtual_stage(const Task& task) const;
  void p2p(const Task& task, Op op);

  const LowerOptions& options_;
  Program program_;
  std::vector<char> moe_;                 // by layer
  int layer_slots_ = 1;                   // largest chunk's layers + 1: x of layer_end
  std::vector<std::int32_t> numbers_;     // (kind, chunk, micro-batch, layer) -> slot, -1: none yet
  std::vector<std::int32_t> persistent_;  // (kind, chunk, layer) -> slot
};

}  // namespace tandem
