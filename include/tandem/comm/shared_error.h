// What goes wrong on all ranks alike is said once, by rank 0, and ends them without an abort.
#pragma once

#include <string>
#include <utility>

#include "tandem/base/error.h"
#include "tandem/comm/world.h"

namespace tandem {

// An Error that every rank of the world throws at the same place, with the same text.
class SharedError : public Error {
 public:
  using Error::Error;
};

template <class... Args>
[[noreturn]] void throw_shared(ExitCode code, fmt::format_string<Args...> text, Args&&... args) {
  throw SharedError(code, fmt::format(text, std::forward<Args>(args)...));
}

// Throws the SharedError of the lowest rank that passed an error, naming it unless all have the
// same; returns if no rank has one. Collective. `text` empty: none.
void share_error(World& world, ExitCode code, const std::string& text);

// body() on every rank, which must not communicate; where one or more of them throw an Error, all
// throw a SharedError instead. Collective.
template <class Body>
auto together(World& world, const Body& body) -> decltype(body()) {
  decltype(body()) result{};
  ExitCode code = ExitCode::kOk;
  std::string text;
  try {
    result = body();
  } catch (const Error& error) {
    code = error.code();
    text = error.what();
  }
  share_error(world, code, text);
  return result;
}

}  // namespace tandem
