// The CUDA device itself. Without a GPU every case that needs one says that it was skipped.
#include <catch2/catch.hpp>

#include "tandem/base/error.h"
#include "tandem/device/cuda_check.h"
#include "tandem/device/cuda_stream.h"
#include "tandem/device/device.h"
#include "tandem/device/profiler.h"

using namespace tandem;

namespace {

bool no_gpu() {
  const bool none = visible_cuda_devices() == 0;
  if (none) WARN("no CUDA device is visible");
  return none;
}

}  // namespace

TEST_CASE("streams of a GPU are delayed at the same time") {
  if (no_gpu()) return;
  const auto device = make_cuda_device({});
  const auto first = device->make_stream("first", 1), second = device->make_stream("second", 1);
  device->delay(*first, 0);
  device->delay(*second, 0);
  first->sync();
  second->sync();

  constexpr double kEach = 20e3;
  constexpr int kTimes = 3;
  const auto first_begin = device->make_event(), first_end = device->make_event(),
             second_end = device->make_event();
  first->record(*first_begin);
  for (int i = 0; i < kTimes; ++i)
    for (Stream* stream : {first.get(), second.get()}) device->delay(*stream, kEach);
  first->record(*first_end);
  second->record(*second_end);
  first->sync();
  second->sync();
  const double first_us = first_end->reached_us() - first_begin->reached_us();
  const double both_us = second_end->reached_us() - first_begin->reached_us();
  INFO("first " << first_us << " us, both " << both_us << " us");
  CHECK(first_us >= kTimes * kEach);
  CHECK(first_us < 1.5 * kTimes * kEach);
  CHECK(both_us < 1.5 * kTimes * kEach);  // one after the other they would take twice as long
}

TEST_CASE("of failed allocations only missing memory is left to the caller") {
  CHECK(TANDEM_CUDA_ALLOCATED(cudaSuccess));
  CHECK_FALSE(TANDEM_CUDA_ALLOCATED(cudaErrorMemoryAllocation));
  try {
    (void)TANDEM_CUDA_ALLOCATED(cudaErrorIllegalAddress);
    FAIL("an error of an earlier kernel passed for missing memory");
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::kInternal);
    CHECK_THAT(error.what(), Catch::Contains("cudaErrorIllegalAddress"));
  }
}

TEST_CASE("a look at unfinished work leaves no error for the next launch to find") {
  if (no_gpu()) return;
  const auto device = make_cuda_device({});
  const auto stream = device->make_stream("s", 1);
  const auto end = device->make_event();
  device->delay(*stream, 0);  // the first may take its time
  stream->sync();
  device->delay(*stream, 200e3);
  stream->record(*end);
  CHECK_FALSE(end->reached());
  CHECK(end->reached_us() == -1.0);
  CHECK(stream->pending() == 1);
  CHECK(cudaGetLastError() == cudaSuccess);
  stream->sync();
  CHECK(end->reached());
  CHECK(stream->pending() == 0);
}

TEST_CASE("a budget of multiprocessors is kept, and refused where the GPU has fewer") {
  if (no_gpu()) return;
  const auto budget = [](int wanted) {
    const auto device = make_cuda_device({.compute_sms = wanted});
    const auto stream = device->make_stream("s", 0);
    return dynamic_cast<CudaStream&>(*stream).sm_budget();
  };
  const int all = budget(0);
  CHECK(all > 1);
  CHECK(budget(1) == 1);
  CHECK(budget(all) == all);
  try {
    budget(all + 1);
    FAIL("more multiprocessors than there are");
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::kUsage);
    CHECK_THAT(error.what(), Catch::Contains("train.compute_sms"));
  }
}

TEST_CASE("a profiler window opens and closes where no profiler listens") {
  if (no_gpu()) return;
  const auto device = make_cuda_device({});
  const auto profiler = make_profiler({{"compute F", 0xFF3F7FD6}});
  REQUIRE(profiler != nullptr);
  profiler->start();
  { const ProfilerRange range(profiler.get(), "dispatch_fwd L3 mb2", 0); }
  profiler->stop();
}
