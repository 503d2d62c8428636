#include "profile_window.h"

#include <utility>

#include "tandem/runtime/spans.h"

namespace tandem {
namespace {

std::unique_ptr<Profiler> profiler_of(const Engine& engine, const LoggingConfig& config) {
  const bool wanted = config.profile_steps > 0 && engine.device->kind() == DeviceKind::kCuda;
  return wanted ? make_profiler(range_categories()) : nullptr;
}

}  // namespace

ProfileWindow::ProfileWindow(Engine& engine, const LoggingConfig& config)
    : ProfileWindow(engine, config, profiler_of(engine, config)) {}

ProfileWindow::ProfileWindow(Engine& engine, const LoggingConfig& config,
                             std::unique_ptr<Profiler> profiler)
    : engine_(engine),
      begin_(config.profile_begin),
      end_(std::int64_t{config.profile_begin} + config.profile_steps),
      profiler_(std::move(profiler)) {}

ProfileWindow::~ProfileWindow() {
  engine_.set_profiler(nullptr);
}

void ProfileWindow::before(std::int64_t step) {
  if (profiler_ == nullptr || open_ || step < begin_ || step >= end_) return;
  profiler_->start();
  engine_.set_profiler(profiler_.get());
  open_ = true;
}

void ProfileWindow::after(std::int64_t step) {
  if (!open_ || step + 1 < end_) return;
  engine_.set_profiler(nullptr);
  profiler_->stop();
  open_ = false;
}

}  // namespace tandem
