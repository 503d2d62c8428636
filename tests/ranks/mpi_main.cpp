// The rank cases under mpirun: ranks_mpi cases. Also jobs that must end with a given exit code:
// ranks_mpi abort | throw | stuck.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

#include "rank_cases.h"
#include "stuck_output.h"

namespace tandem::ranks {
namespace {

// The case's digest on every rank when they run as threads.
std::vector<std::uint64_t> digests_as_threads(const RankCase& test, int ranks) {
  std::vector<std::uint64_t> digests(static_cast<std::size_t>(ranks));
  run_as_threads(ranks, [&](World& world) {
    digests[static_cast<std::size_t>(world.rank())] = test.body(world);
  });
  return digests;
}

void run_cases(World& world) {
  expect(launched_by_mpi() == (std::getenv("OMPI_COMM_WORLD_SIZE") != nullptr), "launched_by_mpi");
  if (launched_by_mpi()) expect(launcher_rank() == world.rank(), "launcher_rank");
  for (const RankCase& test : rank_cases()) {
    if (world.size() < test.min_ranks) continue;
    const std::uint64_t digest = test.body(world);
    const std::vector<std::string> all = world.gather(std::to_string(digest));
    if (world.rank() != 0) continue;
    const std::vector<std::uint64_t> expected = digests_as_threads(test, world.size());
    for (std::size_t r = 0; r < all.size(); ++r) {
      expect(all[r] == std::to_string(expected[r]),
             fmt::format("{}: rank {} gives the bits it gives as a thread", test.name, r));
    }
    std::printf("%-30s ok on %d ranks, digest of rank 0 %016llx\n", test.name, world.size(),
                static_cast<unsigned long long>(digest));
  }
  world.barrier();
}

// All ranks but 1 wait for a message that never comes; rank 1 ends the job in one of three ways.
void end_badly(World& world, const std::string& mode) {
  Lane lane;
  const auto comm = world.make_comm(everyone(world), "p2p");
  const auto more = world.make_comm(everyone(world), "more");
  std::vector<float> data(10);
  abort_on_error(world, [&] {
    if (world.rank() != 1) {
      comm->recv(*lane.stream, {data.data(), DType::kF32, 10, 1}, 1);
    } else if (mode == "throw") {
      throw_error(ExitCode::kMemory, "no room for the experts of layer 3");
    } else if (mode == "abort") {
      // Lanes of this rank that wait long are released as well, or the rank could not end.
      Lane other("other");
      comm->recv(*lane.stream, {data.data(), DType::kF32, 5, 1}, 0);
      more->recv(*other.stream, {data.data() + 5, DType::kF32, 5, 1}, 0);
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      world.abort(ExitCode::kTraining, "the loss of step 7 is not finite");
    } else {  // stuck: aborted, as by a watchdog, while the host thread never looks again,
              // nor anybody at its output
      leave_output_unread();
      world.abort(ExitCode::kComm, "rank 0 has not answered for 30 s");
      std::this_thread::sleep_for(std::chrono::seconds(60));
    }
    lane.stream->sync();
  });
}

int run(const std::string& mode) {
  const std::unique_ptr<World> world = make_mpi_world();
  try {
    abort_on_error(*world, [&] { mode == "cases" ? run_cases(*world) : end_badly(*world, mode); });
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rank %d: %s\n", world->rank(), error.what());
    return 1;
  }
}

}  // namespace
}  // namespace tandem::ranks

int main(int argc, char** argv) {
  return tandem::ranks::run(argc > 1 ? argv[1] : "cases");
}
