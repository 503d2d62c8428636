#include "nccl_group.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <vector>

#include "tandem/base/error.h"

namespace tandem {
namespace {

using Clock = std::chrono::steady_clock;

// Launching takes NCCL tens of microseconds, making a communicator up to seconds.
constexpr int kYields = 2000;
constexpr std::chrono::microseconds kSleep{50};
constexpr std::chrono::seconds kLongestEnd{10};

bool failed(ncclResult_t result) {
  return result != ncclSuccess && result != ncclInProgress;
}

void pause(int looks) {
  if (looks < kYields) return std::this_thread::yield();
  std::this_thread::sleep_for(kSleep);
}

}  // namespace

NcclGroup::NcclGroup(Transport& members, const std::string& name, const CommOptions& options,
                     AbortState& abort)
    : name_(name), abort_(abort) {
  abort_.add(*this);
  try {
    init(members, options);
  } catch (...) {
    close(false);
    throw;
  }
}

NcclGroup::~NcclGroup() {
  close(true);
}

void NcclGroup::init(Transport& members, const CommOptions& options) {
  // Communicators of several lanes take turns in the order in which the host issues their calls.
  setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "1", /*overwrite=*/0);
  // Collectives link their members now, not at the first call: see NcclComm::connect.
  setenv("NCCL_RUNTIME_CONNECT", "0", /*overwrite=*/0);
  ncclUniqueId id{};
  auto* bytes = reinterpret_cast<std::byte*>(&id);
  std::vector<Outgoing> sends;
  std::vector<Incoming> recvs;
  if (members.rank() == 0) {
    check(ncclGetUniqueId(&id), "ncclGetUniqueId");
    for (int p = 1; p < members.size(); ++p) sends.push_back({p, bytes, sizeof(id)});
  } else {
    recvs.push_back({0, bytes, sizeof(id)});
  }
  members.exchange(sends, recvs);

  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  config.commName = name_.c_str();
  if (options.min_ctas > 0) config.minCTAs = options.min_ctas;
  if (options.max_ctas > 0) config.maxCTAs = options.max_ctas;
  if (options.path == AllToAllPath::kPaddedCopies) config.CTAPolicy = NCCL_CTA_POLICY_ZERO;
  constexpr const char* kWhat = "ncclCommInitRankConfig";
  {
    const std::lock_guard lock(mutex_);
    abort_.check();
    check(ncclCommInitRankConfig(&comm_, members.size(), id, members.rank(), &config), kWhat);
  }
  wait_until_done(kWhat);
}

void NcclGroup::run(const char* what, const std::function<ncclResult_t(ncclComm_t)>& calls) {
  {
    const std::lock_guard lock(mutex_);
    require_alive();
    check(ncclGroupStart(), what);
    const ncclResult_t inside = calls(comm_);
    const ncclResult_t end = ncclGroupEnd();
    check(failed(inside) ? inside : end, what);
  }
  wait_until_done(what);
}

// Both sides know the sizes of a pair, so empty messages are left out on both.
void NcclGroup::exchange(const char* what, cudaStream_t stream, std::span<const Outgoing> sends,
                         std::span<const Incoming> recvs) {
  const auto has_bytes = [](const auto& message) { return message.bytes > 0; };
  if (std::ranges::none_of(sends, has_bytes) && std::ranges::none_of(recvs, has_bytes)) return;
  run(what, [&](ncclComm_t comm) {
    ncclResult_t result = ncclSuccess;
    const auto keep = [&](ncclResult_t next) {
      if (!failed(result)) result = next;
    };
    for (const Outgoing& m : sends)
      if (m.bytes > 0) keep(ncclSend(m.data, m.bytes, ncclInt8, m.peer, comm, stream));
    for (const Incoming& m : recvs)
      if (m.bytes > 0) keep(ncclRecv(m.data, m.bytes, ncclInt8, m.peer, comm, stream));
    return result;
  });
}

void NcclGroup::wait_until_done(const char* what) {
  for (int looks = 0;; ++looks) {
    {
      const std::lock_guard lock(mutex_);
      require_alive();
      ncclResult_t state = ncclSuccess;
      check(ncclCommGetAsyncError(comm_, &state), what);
      if (state != ncclInProgress) return check(state, what);
    }
    pause(looks);
  }
}

void NcclGroup::require_alive() const {
  abort_.check();
  TANDEM_CHECK(comm_ != nullptr, "{}: the communicator was given up", name_);
}

void NcclGroup::check(ncclResult_t result, const char* what) const {
  if (!failed(result)) return;
  throw_error(ExitCode::kComm, "{}: {} failed: {}: {}; NCCL_DEBUG=INFO tells more", name_, what,
              ncclGetErrorString(result), ncclGetLastError(comm_));
}

void NcclGroup::check_health() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock() || comm_ == nullptr) return;  // busy: another thread sees the error
  ncclResult_t state = ncclSuccess;
  check(ncclCommGetAsyncError(comm_, &state), "ncclCommGetAsyncError");
  check(state, "a transfer");
}

// ncclCommAbort tells the kernels to end at once, then frees memory, for which it waits until the
// GPU is idle. Kernels of other communicators may be in the way, so each is aborted on a thread of
// its own.
void NcclGroup::on_abort() noexcept {
  if (aborter_.joinable()) return;
  try {
    aborter_ = std::thread([this] { give_up(); });
  } catch (...) {  // no thread to be had: the job's last resort ends the process
  }
}

void NcclGroup::give_up() noexcept {
  const std::lock_guard lock(mutex_);
  if (comm_ != nullptr) ncclCommAbort(comm_);
  comm_ = nullptr;
}

void NcclGroup::close(bool gently) noexcept {
  abort_.remove(*this);  // on_abort() is over, and comes no more
  if (aborter_.joinable()) aborter_.join();
  if (comm_ != nullptr && gently && finalize()) {
    ncclCommDestroy(comm_);
    comm_ = nullptr;
  }
  give_up();
}

bool NcclGroup::finalize() noexcept {
  const Clock::time_point end = Clock::now() + kLongestEnd;
  ncclResult_t state = ncclCommFinalize(comm_);
  for (int looks = 0; state == ncclInProgress; ++looks) {
    if (abort_.is_set() || Clock::now() > end) return false;
    pause(looks);
    if (ncclCommGetAsyncError(comm_, &state) != ncclSuccess) return false;
  }
  return state == ncclSuccess;
}

}  // namespace tandem
