#include "tandem/base/log.h"

#include <spdlog/logger.h>
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <unistd.h>

#include <cstdlib>

namespace tandem {
namespace {

spdlog::logger make_logger(const char* name, spdlog::sink_ptr sink) {
  spdlog::logger logger(name, std::move(sink));
  logger.set_level(spdlog::level::trace);
  logger.flush_on(spdlog::level::trace);  // a line is out before the process can die
  logger.set_pattern("%v");
  return logger;
}

}  // namespace

// Loggers made by hand, not registered with spdlog: nothing here is shared between ranks that are
// threads of one process, except the two file descriptors, which spdlog's _mt sinks lock.
struct Log::State {
  spdlog::logger out = make_logger("out", std::make_shared<spdlog::sinks::stdout_sink_mt>());
  spdlog::logger err = make_logger("err", std::make_shared<spdlog::sinks::stderr_sink_mt>());
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
  switch (level) {
    case kInfo:
      if (!state_->quiet) state_->out.info(state_->prefix + line);
      return;
    case kNote:
      if (!state_->quiet)
        (state_->notes_to_stderr ? state_->err : state_->out).info(state_->prefix + line);
      return;
    case kWarn:
      state_->err.warn(state_->prefix + "warning: " + line);
      return;
    case kError:
      state_->err.error(state_->prefix + "error: " + line);
      return;
  }
}

void Log::notes_to_stderr() {
  state_->notes_to_stderr = true;
}

bool colour_wanted() {
  const char* no_color = std::getenv("NO_COLOR");  // no-color.org: set and not empty
  return (no_color == nullptr || *no_color == '\0') && isatty(STDOUT_FILENO) == 1;
}

}  // namespace tandem
