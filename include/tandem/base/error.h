// Error: the one exception type of Tandem. It says what happened, where, and what to change, and
// carries the exit code the process ends with. TANDEM_CHECK states an invariant, prints both sides
// of a comparison when it fails, and stays on in Release.
#pragma once

#include <fmt/core.h>

#include <stdexcept>
#include <string>
#include <type_traits>

namespace tandem {

enum class ExitCode : int {
  kOk = 0,
  kInternal = 1,   // a broken invariant: a bug in Tandem
  kUsage = 2,      // bad command line or config
  kBadInput = 3,   // bad input file or checkpoint, or output that cannot be written
  kTraining = 4,   // training went wrong (non-finite loss)
  kComm = 5,       // communication failed or timed out
  kMemory = 6,     // out of memory or threads
};

class Error : public std::runtime_error {
 public:
  Error(ExitCode code, const std::string& what) : std::runtime_error(what), code_(code) {}
  [[nodiscard]] ExitCode code() const noexcept { return code_; }

 private:
  ExitCode code_;
};

// throw_error(ExitCode::kUsage, "model.layers is {}; give at least 1", n)
template <class... Args>
[[noreturn]] void throw_error(ExitCode code, fmt::format_string<Args...> text, Args&&... args) {
  throw Error(code, fmt::format(text, std::forward<Args>(args)...));
}

namespace detail {

// Renders one side of a failed comparison; types fmt does not know print as "?".
template <class T>
std::string show(const T& value) {
  if constexpr (std::is_enum_v<T>) {
    return fmt::format("{}", static_cast<long long>(value));
  } else if constexpr (fmt::is_formattable<T>::value) {
    return fmt::format("{}", value);
  } else {
    return "?";
  }
}

struct Outcome {
  bool ok;
  std::string sides;  // empty, or "3 vs 4"
};

template <class L>
struct Left {
  const L& lhs;
  template <class R>
  Outcome of(bool ok, const R& rhs) const {
    return {ok, ok ? std::string() : show(lhs) + " vs " + show(rhs)};
  }
  template <class R> Outcome operator==(const R& r) const { return of(lhs == r, r); }
  template <class R> Outcome operator!=(const R& r) const { return of(lhs != r, r); }
  template <class R> Outcome operator<(const R& r) const { return of(lhs < r, r); }
  template <class R> Outcome operator<=(const R& r) const { return of(lhs <= r, r); }
  template <class R> Outcome operator>(const R& r) const { return of(lhs > r, r); }
  template <class R> Outcome operator>=(const R& r) const { return of(lhs >= r, r); }
  operator Outcome() const { return {static_cast<bool>(lhs), {}}; }  // NOLINT: a bare condition
};

struct Decompose {
  template <class L> Left<L> operator<<(const L& lhs) const { return {lhs}; }
};

[[noreturn]] void check_failed(const char* file, int line, const char* condition,
                               const std::string& sides, const std::string& message);

}  // namespace detail

// TANDEM_CHECK(rows == view.rows, "gather {}: one output row per index", name);
// Throws Error(kInternal) with file, line, condition, both values and the message.
#define TANDEM_CHECK(condition, ...)                                                         \
  do {                                                                                       \
    const ::tandem::detail::Outcome tandem_outcome = ::tandem::detail::Decompose{} << condition; \
    if (!tandem_outcome.ok) [[unlikely]]                                                     \
      ::tandem::detail::check_failed(__FILE__, __LINE__, #condition, tandem_outcome.sides,   \
                                     fmt::format(__VA_ARGS__));                              \
  } while (false)

}  // namespace tandem
