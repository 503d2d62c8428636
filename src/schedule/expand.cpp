#include <array>
#include <span>

#include "builder.h"
#include "pair_table.h"
#include "tandem/base/error.h"

namespace tandem {
namespace {

// What one pass of the host enqueues together: a task, or a paired forward and backward task.
struct Step {
  const Task* fwd = nullptr;
  const Task* bwd = nullptr;
};

std::vector<Step> steps_of(const std::vector<Task>& tasks) {
  std::vector<Step> steps;
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    const Task& task = tasks[i];
    if (task.dir == Dir::kBwd) {
      steps.push_back({nullptr, &task});
    } else if (task.paired) {
      steps.push_back({&task, &tasks[++i]});
    } else {
      steps.push_back({&task, nullptr});
    }
  }
  return steps;
}

// Stands for the layer of a direction that has none left.
constexpr int kNoLayer = -2;

class Expander {
 public:
  Expander(const LowerOptions& options, int stage, std::vector<Task> tasks)
      : options_(options),
        builder_(options, stage),
        tasks_(std::move(tasks)),
        steps_(steps_of(tasks_)),
        receives_{receives_of(Dir::kFwd), receives_of(Dir::kBwd)},
        backwards_left_(static_cast<std::size_t>(options.shape.vpp), options.shape.microbatches) {}

  Program run(ProgramKind kind) {
    for (Receives& receives : receives_) receive_next(receives);
    for (const Step& now : steps_) step(now);
    if (kind == ProgramKind::kTraining) builder_.opt_step();
    return builder_.take();
  }

 private:
  // Of each direction one RECV is always under way: the next is enqueued as soon as what the last
  // one brought has been consumed, so a transfer rides beside a whole task. Never two: an event
  // means the latest record, and whoever waits for one transfer must not wait for the next.
  struct Receives {
    std::vector<const Task*> tasks;
    std::size_t next = 0;
    const Task* pending = nullptr;  // received but not consumed
  };

  Receives receives_of(Dir dir) const {
    Receives result;
    for (const Task& task : tasks_)
      if (task.dir == dir && builder_.receives(task)) result.tasks.push_back(&task);
    return result;
  }

  void receive_next(Receives& receives) {
    receives.pending = nullptr;
    if (receives.next == receives.tasks.size()) return;
    receives.pending = receives.tasks[receives.next++];
    builder_.receive(*receives.pending);
  }

  // The first instruction of a task is the one that consumes what it received.
  void consumed(const Task& task) {
    Receives& receives = receives_[task.dir == Dir::kFwd ? 0 : 1];
    if (receives.pending == &task) receive_next(receives);
  }

  void run(const Task& task, NodeKind node, Phase phase, int layer) {
    builder_.run(task, node, phase, layer);
    consumed(task);
  }

  void send(const Task& task) {
    if (!builder_.sends(task)) return;
    builder_.send(task);
    consumed(task);
  }

  void step(const Step& now) {
    const Task *fwd = now.fwd, *bwd = now.bwd;
    if (fwd != nullptr && builder_.plan(*fwd).has_embedding)
      run(*fwd, NodeKind::kEmbedding, Phase::kFwd, builder_.plan(*fwd).layer_begin);
    if (bwd != nullptr && builder_.plan(*bwd).has_head)
      run(*bwd, NodeKind::kHead, Phase::kBwdInput, builder_.plan(*bwd).layer_end);
    layers(fwd, bwd);
    if (fwd != nullptr && builder_.plan(*fwd).has_head)
      run(*fwd, NodeKind::kHead, Phase::kFwd, builder_.plan(*fwd).layer_end);
    if (bwd != nullptr) finish_backward(*bwd);
  }

  // Forward layers upwards beside backward layers downwards; what one of them has more runs alone.
  // Position layer_end of the forward direction holds what the last layer left over.
  void layers(const Task* fwd, const Task* bwd) {
    const int fwd_layers = fwd == nullptr ? -1 : builder_.plan(*fwd).layers();
    const int bwd_layers = bwd == nullptr ? 0 : builder_.plan(*bwd).layers();
    if (bwd != nullptr && bwd_layers == 0) send(*bwd);
    // Both directions are about to send: the last weight gradient hides both transfers.
    hold_last_weight_ =
        options_.delay_wgrad && bwd_layers > 0 && fwd_layers == bwd_layers && builder_.sends(*fwd);
    for (int i = 0; i <= fwd_layers || i < bwd_layers; ++i) {
      const int up = i <= fwd_layers ? builder_.plan(*fwd).layer_begin + i : kNoLayer;
      const int down = i < bwd_layers ? builder_.plan(*bwd).layer_end - 1 - i : kNoLayer;
      if (up == kNoLayer)
        rows(kBackwardOrder, fwd, up, bwd, down);
      else
        rows(kPairOrder, fwd, up, bwd, down);
      if (i == fwd_layers) send(*fwd);
    }
    if (hold_last_weight_)
      run(*bwd, NodeKind::kAttention, Phase::kBwdWeight, builder_.plan(*bwd).layer_begin);
  }

  void rows(std::span<const LayerRow> table, const Task* fwd, int up, const Task* bwd, int down) {
    for (const LayerRow& row : table) {
      const bool forward = row.dir == Dir::kFwd;
      const Task* task = forward ? fwd : bwd;
      const int base = forward ? up : down;
      if (task == nullptr || base == kNoLayer) continue;
      const int layer = base + row.layer_offset;
      const ChunkPlan& chunk = builder_.plan(*task);
      if (layer >= chunk.layer_begin && layer < chunk.layer_end) node(*task, row, layer);
    }
  }

  void node(const Task& task, const LayerRow& row, int layer) {
    NodeKind kind = row.node;
    if (!builder_.moe(layer)) {
      if (kind == NodeKind::kExperts)
        kind = NodeKind::kMlp;
      else if (kind != NodeKind::kAttention)
        return;
    }
    if (row.op == Op::kHostWait) {
      builder_.host_wait(task, layer);
    } else if (row.phase == Phase::kBwdWeight) {
      const bool last = kind == NodeKind::kAttention && layer == builder_.plan(task).layer_begin;
      if (options_.delay_wgrad && !(last && hold_last_weight_))
        run(task, kind, Phase::kBwdWeight, layer);
    } else {
      run(task, kind, row.phase, layer);
      if (row.phase == Phase::kFwd) return;
      if (!options_.delay_wgrad && has_weight(kind)) run(task, kind, Phase::kBwdWeight, layer);
      // The chunk's d_x is complete: the weight gradient that is still to come hides its transfer.
      if (kind == NodeKind::kAttention && layer == builder_.plan(task).layer_begin) send(task);
    }
  }

  static bool has_weight(NodeKind kind) {
    return kind == NodeKind::kAttention || kind == NodeKind::kExperts || kind == NodeKind::kMlp;
  }

  void finish_backward(const Task& task) {
    const ChunkPlan& chunk = builder_.plan(task);
    if (chunk.has_embedding) run(task, NodeKind::kEmbedding, Phase::kBwdWeight, chunk.layer_begin);
    if (--backwards_left_[static_cast<std::size_t>(task.chunk)] == 0)
      builder_.grad_sync(task.chunk);
  }

  const LowerOptions& options_;
  ProgramBuilder builder_;
  std::vector<Task> tasks_;
  std::vector<Step> steps_;
  std::array<Receives, 2> receives_;  // by direction
  std::vector<int> backwards_left_;   // by chunk
  bool hold_last_weight_ = false;
};

}  // namespace

Program expand(const LowerOptions& options, ProgramKind kind, int stage) {
  std::vector<Task> tasks = kind == ProgramKind::kTraining ? training_order(options.shape, stage)
                                                           : evaluation_order(options.shape, stage);
  return Expander(options, stage, std::move(tasks)).run(kind);
}

}  // namespace tandem
