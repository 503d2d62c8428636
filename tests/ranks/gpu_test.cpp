// Communicators of GPU memory. Without a GPU every case says that it was skipped.
#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <thread>

#include "gpu_world.h"
#include "rank_cases.h"
#include "tandem/base/build_config.h"

using namespace tandem;
using namespace tandem::ranks;

namespace {

bool no_gpus(int wanted) {
  const int visible = visible_cuda_devices();
  if (visible < wanted)
    WARN("no CUDA device is visible, or too few: needs " << wanted << ", sees " << visible);
  return visible < wanted;
}

void run_on_gpus(int ranks, const CommOptions& options, const std::function<void(World&)>& body) {
  run_as_threads(ranks, [&](World& world) {
    const int ordinal = options.kind == CommKind::kNccl ? world.rank() : 0;
    GpuWorld gpu(world, options, ordinal);
    body(gpu);
  });
}

// One rank's GPU, its stream, and ten numbers on it.
struct GpuLane {
  std::unique_ptr<Device> device = make_cuda_device({});
  std::unique_ptr<Stream> stream = device->make_stream("lane", 1);
  Buffer data = device->alloc(40, "ten numbers");
  [[nodiscard]] View view() const { return {data.data(), DType::kF32, 10, 1}; }
};

}  // namespace

// Ranks that share a GPU are processes: threads would share a CUDA context, in which one rank's
// allocation waits for the lanes of the others. scripts/gpu_smoke.sh runs them under mpirun.
TEST_CASE("every rank case holds for one rank with copies through host memory") {
  if (no_gpus(1)) return;
  for (const RankCase& test : rank_cases()) {
    if (test.min_ranks > 1) continue;
    DYNAMIC_SECTION(test.name) {
      CHECK_NOTHROW(run_on_gpus(1, {CommKind::kStaged}, [&](World& w) { (void)test.body(w); }));
    }
  }
}

TEST_CASE("every rank case holds for one rank with NCCL") {
  if (!kHasNccl || no_gpus(1)) return;
  for (const RankCase& test : rank_cases()) {
    if (test.min_ranks > 1) continue;
    DYNAMIC_SECTION(test.name) {
      CHECK_NOTHROW(run_on_gpus(1, {CommKind::kNccl}, [&](World& w) { (void)test.body(w); }));
    }
  }
}

TEST_CASE("rows arrive by NCCL, each rank with a GPU of its own") {
  if (!kHasNccl || no_gpus(2)) return;
  const int ranks = std::min(4, visible_cuda_devices());
  // Boxes of a page cut the larger messages into rounds; large ones hold any.
  const CommOptions ways[] = {
      {.kind = CommKind::kNccl},
      {.kind = CommKind::kNccl, .path = AllToAllPath::kWindow, .box_bytes = 4096},
      {.kind = CommKind::kNccl, .path = AllToAllPath::kWindow, .box_bytes = 1 << 20},
      {.kind = CommKind::kNccl, .path = AllToAllPath::kPadded, .box_bytes = 1 << 20},
      {.kind = CommKind::kNccl, .path = AllToAllPath::kPaddedCopies, .box_bytes = 1 << 20}};
  for (const CommOptions& options : ways) {
    CAPTURE(name_of(options.path), options.box_bytes);
    CHECK_NOTHROW(run_on_gpus(ranks, options, [](World& w) { (void)all_to_all_case(w); }));
  }
}

TEST_CASE("an abort opens the gates of streams that wait for other ranks") {
  if (no_gpus(1)) return;
  std::atomic<int> woken{0};
  run_as_threads(3, [&](World& world) {
    GpuLane lane;
    const auto comm = world.make_comm(everyone(world), "p2p", {.kind = CommKind::kStaged});
    if (world.rank() == 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      world.abort(ExitCode::kTraining, "the loss is not finite");
      return;
    }
    comm->recv(*lane.stream, lane.view(), 0);
    try {
      lane.stream->sync();
    } catch (const Error& error) {
      if (std::string(error.what()) == "rank 0: the loss is not finite") ++woken;
    }
  });
  CHECK(woken == 2);
}

TEST_CASE("an abort ends what NCCL waits for") {
  if (!kHasNccl || no_gpus(2)) return;
  std::atomic<bool> ended{false};
  run_as_threads(2, [&](World& world) {
    const auto device = make_cuda_device({.ordinal = world.rank()});
    const auto stream = device->make_stream("lane", 1);
    const Buffer data = device->alloc(40, "ten numbers");
    const auto comm = world.make_comm(everyone(world), "p2p", {.kind = CommKind::kNccl});
    if (world.rank() == 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
      world.abort(ExitCode::kComm, "timed out");
      return;
    }
    const View view{data.data(), DType::kF32, 10, 1};
    try {
      comm->recv(*stream, view, 0);
      stream->sync();
      comm->recv(*stream, view, 0);
    } catch (const Error& error) {
      ended = std::string(error.what()) == "rank 0: timed out";
    }
  });
  CHECK(ended);
}

TEST_CASE("after an abort NCCL's communicator of one rank refuses work and goes in peace") {
  if (!kHasNccl || no_gpus(1)) return;
  run_as_threads(1, [&](World& world) {
    GpuLane lane;
    const auto comm = world.make_comm({0}, "alone", {.kind = CommKind::kNccl});
    comm->all_reduce(*lane.stream, lane.view(), ReduceOp::kSum);
    lane.stream->sync();
    world.check_health();
    world.abort(ExitCode::kComm, "enough");
    CHECK_THROWS_AS(comm->all_reduce(*lane.stream, lane.view(), ReduceOp::kSum), Error);
  });
}
