// What every command that runs on ranks does alike.
#pragma once

#include <functional>

#include "commands.h"
#include "tandem/base/error.h"
#include "tandem/base/log.h"
#include "tandem/comm/world.h"
#include "tandem/train/job_guard.h"
#include "tandem/train/trainer.h"

namespace tandem {

// --ranks makes threads, mpirun processes. Throws Error(kUsage) where both are asked for.
void require_one_kind_of_ranks(const ConfigArgs& args);

// How long starting `work` may take, without the building of programs: a minute longer than a step,
// for libraries and parameters. Ending has the watchdog's patience; ranks that are threads have no
// limit there, as only a reader of the output can hold them up. Of a config that cannot be read the
// defaults hold: it is reported later, by all ranks together.
JobGuard::Limits guard_limits(const ConfigArgs& args, const char* work);

// They tell `guard`, which outlives them.
TrainHooks hooks_of(JobGuard& guard);

// body on the rank of `world`, or, if that is null, on so many threads; rank 0's exit code.
ExitCode on_ranks(World* world, int threads, const std::function<ExitCode(World&)>& body);

// load() on every rank, then body(config). A config that some rank cannot load is told by rank 0
// and ends all. Waits for the reader of the log, unless a signal told the run to terminate: what is
// lost then is told. Under mpirun a JobGuard ends that wait, and the job, after the limit of
// the end. Collective.
ExitCode with_config(World& world, Log& log, const std::function<RunConfig()>& load,
                     const std::function<ExitCode(const RunConfig&)>& body);

}  // namespace tandem
