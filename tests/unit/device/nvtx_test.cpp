// What a tool that listens to NVTX is told. No GPU is needed.
#include <catch2/catch.hpp>

#include <cstdlib>
#include <map>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "../base/temp_folder.h"
#include "tandem/device/profiler.h"

using namespace tandem;

namespace {

constexpr std::uint32_t kBlue = 0xFF3F7FD6, kRed = 0xFFE59A9A;

using Lines = std::vector<std::string>;

// Calls of threads, each by thread in their order, the thread left out; all others under "".
std::map<std::string, Lines> by_thread(const std::string& log) {
  std::map<std::string, Lines> calls;
  std::istringstream lines(log);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string call, domain, thread, rest;
    words >> call >> domain;
    const bool of_thread = call == "push" || call == "pop";
    if (of_thread) words >> thread;
    std::getline(words, rest);
    calls[thread].push_back(of_thread ? call.append(rest) : line);
  }
  return calls;
}

}  // namespace

TEST_CASE("a tool hears of the domain, its categories and the ranges of each thread") {
  const TempFolder folder;
  const std::string log = folder / "nvtx.log";
  // Read at the first call of NVTX in this process, which comes below.
  REQUIRE(::setenv("NVTX_INJECTION64_PATH", NVTX_LISTENER, 1) == 0);
  REQUIRE(::setenv("TANDEM_NVTX_LOG", log.c_str(), 1) == 0);
  {
    const auto profiler = make_profiler({{"compute F", kBlue}, {"ep B", kRed}});
    REQUIRE(profiler != nullptr);
    const ProfilerRange outer(profiler.get(), "outer", 0);
    std::thread other([&] {
      const ProfilerRange range(profiler.get(), "dispatch_bwd_input L3 mb2", 1);
      const ProfilerRange within(profiler.get(), "within", 0);
    });
    other.join();
    const ProfilerRange inner(profiler.get(), "inner", 1);
  }
  std::map<std::string, Lines> calls = by_thread(read_bytes(log));
  // A category 0 would be none at all.
  CHECK(calls[""] ==
        Lines{"domain 1 tandem", "category 1 1 compute F", "category 1 2 ep B", "destroy 1"});
  calls.erase("");
  REQUIRE(calls.size() == 2);
  const Lines of_this = {"push 1 ff3f7fd6 outer", "push 2 ffe59a9a inner", "pop", "pop"};
  const Lines of_other = {"push 2 ffe59a9a dispatch_bwd_input L3 mb2", "push 1 ff3f7fd6 within",
                          "pop", "pop"};
  for (const auto& [thread, lines] : calls)
    CHECK(lines == (lines.front().ends_with("outer") ? of_this : of_other));
}
