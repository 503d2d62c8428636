#include "tandem/base/log.h"

#include <spdlog/logger.h>
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>

#include "line_queue.h"

namespace tandem {
namespace {

std::shared_ptr<spdlog::logger> make_logger(const char* name, spdlog::sink_ptr sink) {
  auto logger = std::make_shared<spdlog::logger>(name, std::move(sink));
  logger->set_level(spdlog::level::trace);
  logger->flush_on(spdlog::level::trace);  // a line is out before the process can die
  logger->set_pattern("%v");
  return logger;
}

// How long a warning or an error waits for lines said before it.
constexpr std::chrono::milliseconds kOrder{200};

}  // namespace

// Loggers made by hand, not registered with spdlog: nothing here is shared between ranks that are
// threads of one process, except the two file descriptors, which spdlog's _mt sinks lock.
struct Log::State {
  std::shared_ptr<spdlog::logger> err =
      make_logger("err", std::make_shared<spdlog::sinks::stderr_sink_mt>());
  LineQueue out{[logger = make_logger("out", std::make_shared<spdlog::sinks::stdout_sink_mt>())](
                    const std::string& line) { logger->info(line); }};
  std::string prefix;
  bool quiet = false;
  bool notes_to_stderr = false;
};

Log::Log(int rank, bool quiet) : state_(std::make_unique<State>()), rank_(rank) {
  if (rank != 0) state_->prefix = fmt::format("[rank {}] ", rank);
  state_->quiet = quiet;
}

Log::~Log() = default;

void Log::write(Level level, const std::string& line) {
  const bool remark = level == kInfo || level == kNote;
  if (remark && state_->quiet) return;
  if (level == kInfo || (level == kNote && !state_->notes_to_stderr))
    return state_->out.push(state_->prefix + line);
  state_->out.drain(kOrder);
  const char* kind = level == kWarn ? "warning: " : level == kError ? "error: " : "";
  state_->err->info(state_->prefix + kind + line);
}

void Log::notes_to_stderr() {
  state_->notes_to_stderr = true;
}

bool colour_wanted() {
  const char* no_color = std::getenv("NO_COLOR");  // no-color.org: set and not empty
  return (no_color == nullptr || *no_color == '\0') && isatty(STDOUT_FILENO) == 1;
}

}  // namespace tandem
