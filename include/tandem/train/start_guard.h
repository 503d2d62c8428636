// StartGuard: a thread that ends the process when a job does not get as far as training. Until then
// nothing else could: MPI_Init waits for ever for a rank that is stopped or never came.
#pragma once

#include <condition_variable>
#include <mutex>
#include <thread>

namespace tandem {

class StartGuard {
 public:
  // After limit_s seconds: a message, and exit code 5.
  explicit StartGuard(int limit_s);
  ~StartGuard();  // as dismiss()
  StartGuard(const StartGuard&) = delete;
  StartGuard& operator=(const StartGuard&) = delete;

  void dismiss();  // training has begun, the watchdog watches from here on. Any thread.
  // A rank of this process begins, or ends, work that waits for no other: it does not count.
  void own_work(bool begins);  // any thread

 private:
  void watch(int limit_s);

  std::mutex mutex_;
  std::condition_variable wake_;
  bool dismissed_ = false;  // guarded by mutex_, as is the next
  int at_own_work_ = 0;     // ranks
  std::thread thread_;
};

}  // namespace tandem
