#include "abort_state.h"

#include <catch2/catch.hpp>

using namespace tandem;

namespace {

struct Listener : AbortListener {
  int aborts = 0;
  bool broken = false;
  void on_abort() noexcept override { ++aborts; }
  void check_health() override {
    if (broken) throw_error(ExitCode::kComm, "the library has failed");
  }
};

}  // namespace

TEST_CASE("listeners hear of an abort once they are added and until they are removed") {
  AbortState state;
  Listener early, gone, late;
  state.add(early);
  state.add(gone);
  state.remove(gone);
  CHECK(state.set(ExitCode::kComm, "first"));
  CHECK_FALSE(state.set(ExitCode::kMemory, "second"));
  state.add(late);
  CHECK(early.aborts == 1);
  CHECK(gone.aborts == 0);
  CHECK(late.aborts == 1);
  CHECK(state.reason() == "first");
}

TEST_CASE("one failed library is the world's failure") {
  AbortState state;
  Listener sound, broken;
  state.add(sound);
  state.add(broken);
  CHECK_NOTHROW(state.check_health());
  broken.broken = true;
  CHECK_THROWS_WITH(state.check_health(), "the library has failed");
}
