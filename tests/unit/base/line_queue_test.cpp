#include "line_queue.h"

#include <catch2/catch.hpp>

#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

namespace tandem {
namespace {

using std::chrono::milliseconds;

// An output that takes lines while it is open. Shared with the queue's thread.
struct Output {
  std::mutex mutex;
  std::condition_variable changed;
  bool open = true;
  std::vector<std::string> lines;

  void set_open(bool value) {
    const std::lock_guard lock(mutex);
    open = value;
    changed.notify_all();
  }
  void take(const std::string& line) {
    std::unique_lock lock(mutex);
    changed.wait(lock, [this] { return open; });
    lines.push_back(line);
  }
};

TEST_CASE("lines are written in order, all of them by the end") {
  const auto output = std::make_shared<Output>();
  std::vector<std::string> said;
  {
    LineQueue queue([output](const std::string& line) { output->take(line); });
    for (int i = 0; i < 1000; ++i) {
      said.push_back(std::to_string(i));
      queue.push(said.back());
    }
  }
  CHECK(output->lines == said);
}

TEST_CASE("a stuck output holds up nobody") {
  const auto output = std::make_shared<Output>();
  output->set_open(false);
  LineQueue queue([output](const std::string& line) { output->take(line); });
  for (int i = 0; i < 100; ++i) queue.push("line");
  CHECK_FALSE(queue.drain(milliseconds(20)));
  output->set_open(true);
  CHECK(queue.drain(milliseconds(10000)));
  CHECK(output->lines.size() == 100);
}

TEST_CASE("a drain has one limit, however the lines move") {
  LineQueue queue([](const std::string&) { std::this_thread::sleep_for(milliseconds(20)); });
  for (int i = 0; i < 20; ++i) queue.push("line");
  CHECK_FALSE(queue.drain(milliseconds(100)));  // 400 ms are left
}

TEST_CASE("the end waits for a slow reader until there is haste") {
  const auto output = std::make_shared<Output>();
  output->set_open(false);
  int asked = 0;
  {
    LineQueue queue([output](const std::string& line) { output->take(line); });
    for (int i = 0; i < 100; ++i) queue.push("line");
    CHECK(queue.finish([&] {
      if (++asked == 70) output->set_open(true);  // after more than the patience of the destructor
      return false;
    }));
  }
  CHECK(output->lines.size() == 100);
  output->set_open(false);
  {
    LineQueue queue([output](const std::string& line) { output->take(line); });
    for (int i = 0; i < 100; ++i) queue.push("line");
    CHECK_FALSE(queue.finish([] { return true; }));
  }
  output->set_open(true);
}

TEST_CASE("a queue without lines ends at once") {
  LineQueue queue([](const std::string&) { FAIL("nothing was said"); });
  CHECK(queue.drain(milliseconds(0)));
}

}  // namespace
}  // namespace tandem
