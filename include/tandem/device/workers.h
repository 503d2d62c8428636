// Workers: the threads among which a CPU op is split. The split depends on the sizes alone and
// every output element is written by one worker, so results do not depend on the thread count.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

namespace tandem {

class Workers {
 public:
  explicit Workers(int threads);  // threads >= 1; 1 runs everything on the caller
  ~Workers();
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  [[nodiscard]] int threads() const;
  // Calls body(begin, end) over [0, count) in pieces of at least `grain`; blocks until all are
  // done. One caller at a time per Workers: a second concurrent caller runs its range alone,
  // inline.
  void parallel_for(std::int64_t count, std::int64_t grain,
                    const std::function<void(std::int64_t, std::int64_t)>& body);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tandem
