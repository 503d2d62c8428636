#include "tandem/base/log.h"

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "line_queue.h"

namespace tandem {
namespace {

// Whole, and out before the process can die. Writers of the two files never wait for each other:
// one that is stuck leaves the other to tell.
void write_line(std::FILE* file, std::string line) {
  line += '\n';
  std::fwrite(line.data(), 1, line.size(), file);
  std::fflush(file);
}

// How long a warning or an error waits for lines said before it, all of them together.
constexpr std::chrono::milliseconds kOrder{200};

}  // namespace

struct Log::State {
  LineQueue out{[](const std::string& line) { write_line(stdout, line); }};
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
  write_line(stderr, state_->prefix + kind + line);
}

void Log::notes_to_stderr() {
  state_->notes_to_stderr = true;
}

bool Log::finish(const std::function<bool()>& in_a_hurry) {
  return state_->out.finish(in_a_hurry);
}

bool colour_wanted() {
  const char* no_color = std::getenv("NO_COLOR");  // no-color.org: set and not empty
  return (no_color == nullptr || *no_color == '\0') && isatty(STDOUT_FILENO) == 1;
}

}  // namespace tandem
