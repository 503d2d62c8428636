#include "tandem/sim/cost_model.h"

#include "tandem/model/cost.h"
#include "tandem/model/params.h"
#include "tandem/plan/grid.h"
#include "tandem/plan/partition.h"

namespace tandem {
namespace {

// Bytes one rank of a stage moves at the end of a step.
struct StageTraffic {
  std::vector<double> reduce_scatter;  // [chunk], fp32 gradients
  double all_gather = 0.0;             // parameters in their storage type
};

std::vector<StageTraffic> step_traffic(const RunConfig& config) {
  const RankGrid grid = make_grid(config);
  const Partition partition = make_partition(config);
  std::vector<StageTraffic> stages;
  for (int stage = 0; stage < grid.pp; ++stage) {
    StageTraffic& traffic = stages.emplace_back();
    traffic.reduce_scatter.assign(config.parallel.vpp, 0.0);
    const ParamTable table = make_params(config, grid, partition, grid.rank_at(stage, 0));
    for (const ParamBucket& bucket : table.buckets) {
      const double others = static_cast<double>(bucket.members - 1) / bucket.members;
      const double moved = static_cast<double>(bucket.padded) * others;
      traffic.reduce_scatter[bucket.chunk] += moved * static_cast<double>(size_of(DType::kF32));
      traffic.all_gather += moved * static_cast<double>(size_of(config.train.dtype));
    }
  }
  return stages;
}

constexpr double kUsPerSecond = 1e6;
constexpr double kWeightBytes = 4.0;  // dispatch carries each row's fp32 routing weight

class NodeTimes {
 public:
  NodeTimes(const RunConfig& config, const MachineModel& machine)
      : dims_(make_dims(config)), machine_(machine), traffic_(step_traffic(config)) {}

  double operator()(const Program& program, const Instr& instr) const {
    return machine_.latency_us + work_us(program, instr);
  }

 private:
  [[nodiscard]] double work_us(const Program& program, const Instr& instr) const {
    switch (instr.op) {
      case Op::kRun:
        return node_us(instr);
      case Op::kSend:
      case Op::kRecv:
        return transfer_us(static_cast<double>(dims_.tokens * dims_.hidden) *
                           static_cast<double>(size_of(dims_.dtype)));
      case Op::kGradSync:
        return transfer_us(traffic_[program.stage].reduce_scatter[instr.chunk]);
      case Op::kOptStep:
        return transfer_us(traffic_[program.stage].all_gather);
      case Op::kRecord:
      case Op::kWait:
      case Op::kHostWait:
        break;
    }
    return 0.0;
  }

  [[nodiscard]] double node_us(const Instr& instr) const {
    const auto rows = static_cast<double>(dims_.routed());
    double bytes = 0.0;
    if (instr.node == NodeKind::kDispatch) {
      const double remote = static_cast<double>(dims_.ep - 1) / static_cast<double>(dims_.ep);
      bytes = alltoall_bytes(dims_, rows) + rows * remote * kWeightBytes;
    } else if (instr.node == NodeKind::kCombine) {
      bytes = alltoall_bytes(dims_, rows);
    }
    const double flops = node_flops(instr.node, instr.phase, instr.moe, dims_, rows);
    return flops / (machine_.tflops * 1e12) * kUsPerSecond + transfer_us(bytes);
  }

  [[nodiscard]] double transfer_us(double bytes) const {
    return bytes / (machine_.gb_per_s * 1e9) * kUsPerSecond;
  }

  ModelDims dims_;
  MachineModel machine_;
  std::vector<StageTraffic> traffic_;
};

}  // namespace

CostModel cost_model(const RunConfig& config, const MachineModel& machine) {
  return NodeTimes(config, machine);
}

}  // namespace tandem
