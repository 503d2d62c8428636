#include "tandem/schedule/lower.h"

namespace tandem {

LowerOptions lower_options(const RunConfig& config) {
  const ParallelConfig& parallel = config.parallel;
  return {.model = config.model,
          .partition = make_partition(config),
          .shape = {.pp = parallel.pp,
                    .vpp = parallel.vpp,
                    .microbatches = config.microbatches(),
                    .group = parallel.microbatch_group,
                    .overlap = config.overlap.enabled},
          .delay_wgrad = config.overlap.delay_wgrad,
          .events = config.overlap.events};
}

Program build_program(const LowerOptions& options, ProgramKind kind, int stage) {
  Program program = bind_slots(expand(options, kind, stage), options);
  return place_events(std::move(program), options.events, options.delay_wgrad);
}

std::vector<Program> build_programs(const LowerOptions& options, ProgramKind kind) {
  std::vector<Program> programs;
  for (int stage = 0; stage < options.shape.pp; ++stage)
    programs.push_back(build_program(options, kind, stage));
  return programs;
}

}  // namespace tandem
