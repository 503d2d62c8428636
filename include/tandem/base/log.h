// Log: lines for people, prefixed by the rank. An object, not a global: each rank owns one.
#pragma once

#include <fmt/core.h>

#include <functional>
#include <memory>
#include <string>

namespace tandem {

class Log {
 public:
  // Rank 0 writes bare lines ("..."), the others "[rank 3] ...". Warnings and errors go to stderr
  // with "warning: " and "error: " before them, after a fifth of a second at most for lines said
  // before, and block where nobody reads it; other lines are written by a thread, so that an output
  // that is slow or stuck holds up nobody until tens of thousands wait. The destructor waits for
  // them while one is taken every few seconds. Each line is flushed whole. quiet drops info lines.
  // Safe to call from several threads, also through the Logs of other ranks.
  Log(int rank, bool quiet);
  ~Log();
  Log(const Log&) = delete;
  Log& operator=(const Log&) = delete;

  template <class... A>
  void info(fmt::format_string<A...> f, A&&... a) {
    write(kInfo, fmt::format(f, std::forward<A>(a)...));
  }
  // Remarks around the progress lines; in a machine-readable log they go to stderr.
  template <class... A>
  void note(fmt::format_string<A...> f, A&&... a) {
    write(kNote, fmt::format(f, std::forward<A>(a)...));
  }
  template <class... A>
  void warn(fmt::format_string<A...> f, A&&... a) {
    write(kWarn, fmt::format(f, std::forward<A>(a)...));
  }
  template <class... A>
  void error(fmt::format_string<A...> f, A&&... a) {
    write(kError, fmt::format(f, std::forward<A>(a)...));
  }
  [[nodiscard]] int rank() const { return rank_; }
  void notes_to_stderr();
  // Waits until all lines are written, however slow their reader; once in_a_hurry() a few seconds
  // more. false: some are lost.
  bool finish(const std::function<bool()>& in_a_hurry);

 private:
  enum Level { kInfo, kNote, kWarn, kError };
  void write(Level level, const std::string& line);
  struct State;
  std::unique_ptr<State> state_;
  int rank_;
};

// True when stdout is a terminal and NO_COLOR is unset or empty.
bool colour_wanted();

}  // namespace tandem
