// Trains on the CPU with a profiler window as it is on a GPU: nvtx_training CONFIG RANKS
// OVERRIDE...; ranks are threads.
#include <cstdio>
#include <cstdlib>
#include <exception>

#include "engine.h"
#include "profile_window.h"
#include "tandem/config/load.h"
#include "tandem/runtime/spans.h"

using namespace tandem;

namespace {

void train(const RunConfig& config) {
  run_as_threads(config.parallel.pp * config.parallel.dp, [&](World& world) {
    Log log(world.rank(), /*quiet=*/true);
    Engine engine(world, config, sound_programs(config, ProgramKind::kTraining), log);
    ProfileWindow window(engine, config.logging, make_profiler(range_categories()));
    for (std::int64_t step = 0; step < config.train.steps; ++step) {
      window.before(step);
      (void)engine.train_step(engine.step_input(step, /*lr=*/1e-3));
      window.after(step);
      engine.timeline.harvest();
      engine.prepare_evaluation();
      (void)engine.evaluate();
    }
  });
}

}  // namespace

int main(int count, char** arguments) {
  try {
    const RunConfig config = load_config(arguments[1], {arguments + 3, arguments + count});
    train(resolve(config, std::atoi(arguments[2]), arguments[1]));
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
