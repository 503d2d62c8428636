#include "tandem/train/trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <new>
#include <optional>

#include "engine.h"
#include "non_finite.h"
#include "profile_window.h"
#include "run_output.h"
#include "tandem/base/error.h"
#include "tandem/comm/aborted.h"
#include "tandem/comm/shared_error.h"
#include "tandem/config/load.h"
#include "tandem/model/cost.h"
#include "tandem/optim/lr_schedule.h"
#include "tandem/runtime/spans.h"
#include "tandem/trace/trace.h"
#include "tandem/train/hook_scope.h"
#include "tandem/train/signals.h"
#include "tandem/train/state_io.h"
#include "tandem/train/step_report.h"
#include "tandem/train/watchdog.h"

namespace tandem {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// What the picture of a trace says about itself. Steps count from 1, as in progress lines.
std::string about_run(const RunConfig& config, const Device& device, std::int64_t first,
                      std::int64_t last) {
  std::string text = fmt::format("pp {} x vpp {}, ep {}, {} micro-batches, overlap {}",
                                 config.parallel.pp, config.parallel.vpp, config.parallel.ep,
                                 config.microbatches(), config.overlap.enabled ? "on" : "off");
  if (config.overlap.events == EventMode::kShared) text += ", shared events";
  if (config.train.alltoall_delay_us > 0.0)
    text += fmt::format(", all-to-all + {} \u00b5s", config.train.alltoall_delay_us);
  text +=
      first == last ? fmt::format("; step {}", last) : fmt::format("; steps {} to {}", first, last);
  return text + "; " + device.description();
}

std::vector<Program> training_programs(const RunConfig& config, const TrainHooks& hooks) {
  const HookScope work(hooks.on_own_work);
  return sound_programs(config, ProgramKind::kTraining);
}

class Trainer {
 public:
  Trainer(World& world, const RunConfig& config, Log& log, const TrainHooks& hooks)
      : world_(world),
        config_(config),
        log_(log),
        hooks_(hooks),
        engine_(world, config, training_programs(config, hooks), log),
        flops_per_step_(flops_per_token(config) * config.train.global_batch * config.train.seq_len),
        output_(config.logging, world.rank()),
        profile_(engine_, config.logging),
        watchdog_(world, engine_.timeline, log, config.train.watchdog_s) {}

  TrainResult run();
  enum class Cause { kOwn, kAbort };  // kAbort: a consequence of another rank's error
  void fail(Cause cause, ExitCode code, const std::string& what);

 private:
  void write_trace(std::int64_t done);
  StepInput load(std::int64_t index, double lr);
  struct Times {
    OverlapStats overlap;
    StepSplit split;
  };
  Times read_times(std::int64_t index);
  StepReport step(std::int64_t index);
  void judge(StepReport& report, std::int64_t index);
  void evaluate(std::int64_t done);
  void save(std::int64_t done);
  std::int64_t resume();
  // Of the newest checkpoint that this run has saved or, if none, loaded.
  [[nodiscard]] std::optional<std::int64_t> newest_step() const {
    return saved_step_ ? saved_step_ : loaded_step_;
  }
  void prepare_output();
  [[nodiscard]] bool traced(std::int64_t index) const {
    return index >= config_.logging.trace_begin &&
           index < config_.logging.trace_begin + config_.logging.trace_steps;
  }

  World& world_;
  const RunConfig& config_;
  Log& log_;
  const TrainHooks& hooks_;
  Engine engine_;
  const double flops_per_step_;
  // Where writing fails on this rank alone, the run ends as by a signal, which the others learn
  // after the next step, and then with the error.
  RunOutput output_;
  std::vector<TraceSpan> traced_spans_;
  std::int64_t traced_steps_ = 0;
  TrainResult result_;
  std::optional<std::int64_t> saved_step_, loaded_step_;
  std::int64_t skipped_at_line_ = 0;  // what the last progress line has told of
  double mean_step_s_ = 0.0;
  ProfileWindow profile_;
  Watchdog watchdog_;  // last: it watches the others
};

void Trainer::write_trace(std::int64_t done) {
  const auto patience = watchdog_.patient("in the writing of a trace");
  output_.write_trace(traced_spans_,
                      about_run(config_, *engine_.device, done - traced_steps_ + 1, done),
                      config_.parallel.ep > 1 || config_.train.alltoall_delay_us > 0.0);
}

// Where the watchdog has said where the lanes stand, an error of this rank's own still has its
// line.
void Trainer::fail(Cause cause, ExitCode code, const std::string& what) {
  if (!watchdog_.has_reported())
    log_.error("rank {}: {}\nlanes stand at\n{}", world_.rank(), what, engine_.timeline.where());
  else if (cause == Cause::kOwn)
    log_.error("rank {}: {}", world_.rank(), what);
  world_.abort(code, what);
  engine_.drain();
}

std::int64_t Trainer::resume() {
  if (config_.checkpoint.dir.empty() || !config_.checkpoint.resume) return 0;
  const auto patience = watchdog_.patient("in a checkpoint");
  const auto info = load_state(world_, *engine_.device, engine_.lanes.stream(Lane::kDp),
                               engine_.params, engine_.optimizer, config_, log_);
  if (!info) return 0;
  together(world_, [&] {
    engine_.loss_scaler.restore(info->loss_scale_json, config_.checkpoint.dir + ", loss_scale");
    return true;
  });
  skipped_at_line_ = engine_.loss_scaler.skipped();
  if (world_.rank() == 0)
    log_.note("resume   step {}, {} samples consumed, from {}", info->step, info->consumed_samples,
              config_.checkpoint.dir);
  loaded_step_ = info->step;
  return info->step;
}

void Trainer::save(std::int64_t done) {
  if (config_.checkpoint.dir.empty() || saved_step_ == done) return;
  const auto patience = watchdog_.patient("in a checkpoint");
  const auto begin = Clock::now();
  save_state(world_, *engine_.device, engine_.lanes.stream(Lane::kDp), engine_.params,
             engine_.optimizer, config_,
             {done, done * config_.train.global_batch, config_.train.seed, to_json(config_),
              engine_.loss_scaler.to_json()},
             newest_step(), hooks_.on_save);
  saved_step_ = done;
  if (world_.rank() == 0)
    log_.note("saved    step {} to {} in {:.2f} s", done, config_.checkpoint.dir,
              seconds_since(begin));
}

void Trainer::evaluate(std::int64_t done) {
  {
    const auto own_work = watchdog_.own_work();
    engine_.prepare_evaluation();
  }
  const auto patience = watchdog_.patient("in an evaluation");
  const double loss = engine_.evaluate();
  if (result_.first_held_out == 0.0) result_.first_held_out = loss;
  result_.last_held_out = loss;
  if (world_.rank() != 0) return;
  log_.info("{}", evaluation_line(done, loss, config_));
  output_.write_metrics(done, evaluation_metrics(loss));
}

// A loss that is not finite ends the run: no loss scale changes it. A norm that is not finite does
// where fp16's loss scale can fall no further.
void Trainer::judge(StepReport& report, std::int64_t index) {
  LossScaler& scaler = engine_.loss_scaler;
  const std::string doubt = scaler.doubt(report.grad_norm);
  if (!doubt.empty() && world_.rank() == 0) log_.warn("step {}: {}", index + 1, doubt);
  const bool taken = std::isfinite(report.loss) &&
                     scaler.update(std::isfinite(report.grad_norm)) != StepVerdict::kExhausted;
  report.scales_loss = scaler.active();
  report.loss_scale = scaler.scale();
  report.skipped = scaler.skipped();
  report.skipped_since_line = scaler.skipped() - skipped_at_line_;
  if (taken) return;
  const auto patience = watchdog_.patient("in the search for the first value that is not finite");
  const NonFiniteStep what{index, report.loss, report.grad_norm,
                           world_.gather(engine_.find_non_finite(index)), newest_step()};
  throw SharedError(ExitCode::kTraining, describe(what, config_, scaler));
}

StepInput Trainer::load(std::int64_t index, double lr) {
  const auto patience = watchdog_.patient("before a step, in the loading of its batches");
  return engine_.step_input(index, lr);
}

// A step may have had millions of instructions.
Trainer::Times Trainer::read_times(std::int64_t index) {
  const auto own_work = watchdog_.own_work();
  const auto spans = to_spans(engine_.timeline.harvest(), engine_.program());
  if (traced(index)) {
    traced_spans_.insert(traced_spans_.end(), spans.begin(), spans.end());
    ++traced_steps_;
  }
  return {overlap_stats(spans), split_step(spans)};
}

StepReport Trainer::step(std::int64_t index) {
  const auto begin = Clock::now();
  const auto taken = static_cast<int>(index - engine_.loss_scaler.skipped());
  const double lr = learning_rate(config_.optimizer, taken, config_.train.steps);
  profile_.before(index);
  const Engine::StepResult mine = engine_.train_step(load(index, lr));
  profile_.after(index);
  const Times times = read_times(index);

  RankReport rank{mine.loss_sum,
                  mine.aux,
                  mine.grad_norm,
                  times.overlap.ep_us,
                  times.overlap.hidden_us,
                  times.overlap.compute_us,
                  times.overlap.host_wait_us,
                  times.split.forward_backward_us,
                  times.split.optimizer_us,
                  static_cast<double>(engine_.memory_bytes()),
                  stop_requested() || !output_.lost().empty() ? 1.0 : 0.0,
                  engine_.executor().expert_load()};
  const auto patience = watchdog_.patient("after a step, in the comparison of its times");
  std::vector<RankReport> ranks;
  for (const std::string& bytes : world_.gather(pack(rank))) ranks.push_back(unpack(bytes));

  StepReport report = combine(ranks, config_);
  report.step = index + 1;
  report.total_steps = config_.train.steps;
  report.lr = lr;
  report.seconds = seconds_since(begin);
  report.tokens_per_s =
      static_cast<double>(config_.train.global_batch) * config_.train.seq_len / report.seconds;
  report.tflops = flops_per_step_ / report.seconds / 1e12;
  mean_step_s_ = mean_step_s_ == 0.0 ? report.seconds : 0.9 * mean_step_s_ + 0.1 * report.seconds;
  report.eta_s = mean_step_s_ * static_cast<double>(config_.train.steps - report.step);
  return report;
}

// What cannot be written is told before the first step; metrics are opened last, so that a run that
// is refused leaves none.
void Trainer::prepare_output() {
  require_savable(world_, config_);
  if (config_.logging.trace_steps > 0)
    together(world_, [&] {
      output_.try_trace();
      return true;
    });
  together(world_, [&] {
    output_.open_metrics();
    return true;
  });
}

TrainResult Trainer::run() {
  const auto claim = claim_checkpoints(world_, config_, log_);
  const std::int64_t first = resume();
  if (first < config_.train.steps) prepare_output();
  if (first == 0 && config_.train.eval_every > 0) evaluate(0);
  std::int64_t done = first;
  while (done < config_.train.steps && !result_.stopped_by_signal) {
    StepReport report = step(done);
    judge(report, done);
    if (done == first) result_.first_loss = report.loss;
    result_.last_loss = report.loss;
    ++done;
    if (world_.rank() == 0 && hooks_.on_step) hooks_.on_step(report);
    if (world_.rank() == 0 && (done % config_.logging.every == 0 || done == config_.train.steps)) {
      skipped_at_line_ = report.skipped;
      log_.info("{}", progress_line(report, config_));
      output_.write_metrics(done, metrics_of(report));
    }
    const bool last = done == config_.train.steps || report.stop;
    if (traced(done - 1) && (last || !traced(done))) write_trace(done);
    result_.stopped_by_signal = report.stop;
    if (config_.train.eval_every > 0 && (done % config_.train.eval_every == 0 || last) &&
        !report.stop)
      evaluate(done);
    if (last || (config_.checkpoint.every > 0 && done % config_.checkpoint.every == 0)) save(done);
  }
  share_error(world_, ExitCode::kBadInput, output_.lost());
  result_.first_step = first;
  result_.steps = done;
  result_.traced_steps = traced_steps_;
  return result_;
}

// Whatever body throws is told to `shared`, if all ranks throw it, or else to `failed`, and leaves
// as an Error, with its own type if it is one.
template <class Body, class Shared, class Failed>
auto reporting(const Body& body, const Shared& shared, const Failed& failed) {
  try {
    return body();
  } catch (const SharedError& error) {
    shared(error.what());
    throw;
  } catch (const Aborted&) {  // whoever aborted the job has said why
    failed(Trainer::Cause::kAbort, ExitCode::kComm, "ended because the job was aborted");
    throw;
  } catch (const Error& error) {
    failed(Trainer::Cause::kOwn, error.code(), error.what());
    throw;
  } catch (const std::bad_alloc&) {
    failed(Trainer::Cause::kOwn, ExitCode::kMemory, "out of host memory");
    throw_error(ExitCode::kMemory, "out of host memory");
  } catch (const std::exception& error) {
    failed(Trainer::Cause::kOwn, ExitCode::kInternal, error.what());
    throw_error(ExitCode::kInternal, "{}", error.what());
  }
}

}  // namespace

TrainResult train_rank(World& world, const RunConfig& config, Log& log, const TrainHooks& hooks) {
  std::unique_ptr<Trainer> trainer;
  std::optional<HookScope> watched;  // after trainer: told before any of it goes
  return reporting(
      [&] {
        trainer = std::make_unique<Trainer>(world, config, log, hooks);
        watched.emplace(hooks.on_watched);
        return trainer->run();
      },
      [&](const std::string& what) {
        if (hooks.on_told) hooks.on_told();
        if (world.rank() == 0) log.error("{}", what);
      },
      [&](Trainer::Cause cause, ExitCode code, const std::string& what) {
        if (hooks.on_told) hooks.on_told();
        if (trainer) return trainer->fail(cause, code, what);
        log.error("rank {}: {}", world.rank(), what);
        world.abort(code, what);
      });
}

}  // namespace tandem
