#include "tandem/ckpt/claim.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "disk.h"
#include "folders.h"
#include "tandem/base/error.h"

namespace tandem {
namespace {

// O_NONBLOCK: a FIFO must not hold the start up before it can be refused.
constexpr int kOpenFlags = O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;

// For reading only where it cannot be written; none where it can be neither.
int open_lock(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | kOpenFlags, 0666);
  return fd >= 0 ? fd : ::open(path.c_str(), O_RDONLY | kOpenFlags);
}

// "process 12 on node3", as its holder wrote it.
std::string holder(int fd) {
  std::array<char, 256> text{};
  const ssize_t got = ::pread(fd, text.data(), text.size(), 0);
  const std::string found(text.data(), got > 0 ? static_cast<std::size_t>(got) : 0);
  const std::string line = found.substr(0, found.find('\n'));
  return line.empty() ? "" : " (" + line + ")";
}

std::string myself() {
  std::array<char, 128> host{};
  if (::gethostname(host.data(), host.size() - 1) != 0) host[0] = '?';
  return fmt::format("process {} on {}\n", ::getpid(), host.data());
}

std::string trial_of(const std::string& dir) {
  return dir + "/" + kTrialName;
}

}  // namespace

struct CheckpointClaim::State {
  Descriptor lock;
  std::string warning;
};

CheckpointClaim::CheckpointClaim(const std::string& dir) {
  try {
    make_folders(dir);
  } catch (const Error&) {
    // The trial meets the same obstacle, in a run that has something to save.
  }
  const std::string path = dir + "/" + kLockName;
  state_ = std::make_unique<State>(State{Descriptor(open_lock(path)), {}});
  const int fd = state_->lock.get();
  if (fd < 0) return;  // nothing can be written here, so there is nothing to keep apart
  struct stat info {};
  if (::fstat(fd, &info) != 0 || !S_ISREG(info.st_mode))
    throw_error(ExitCode::kBadInput, "{} is not a regular file", path);
  if (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK)
      throw_error(ExitCode::kBadInput,
                  "{} is in use by another run{}; wait for its end, or give every run a "
                  "checkpoint.dir of its own",
                  dir, holder(fd));
    state_->warning = fmt::format("cannot lock {}: {}; see to it that no other run uses {}", path,
                                  std::strerror(errno), dir);
    return;
  }
  // For the message above alone: a disk too full for it is the trial's to report.
  const std::string text = myself();
  if (::ftruncate(fd, 0) != 0) return;
  [[maybe_unused]] const ssize_t put = ::pwrite(fd, text.data(), text.size(), 0);
}

CheckpointClaim::~CheckpointClaim() {
  // While the lock is still held: afterwards the text may be another run's.
  const bool held = state_->lock.get() >= 0 && state_->warning.empty();
  if (held) [[maybe_unused]]
    const int emptied = ::ftruncate(state_->lock.get(), 0);
}

const std::string& CheckpointClaim::warning() const {
  return state_->warning;
}

void begin_trial(const std::string& dir) {
  make_folders(dir);
  end_trial(dir);  // one that was interrupted
  make_folders(trial_of(dir));
}

void write_trial(const std::string& dir, int rank) {
  WriteFile file(trial_of(dir) + fmt::format("/rank-{:05}", rank));
  file.write(std::string("trial\n"));
  file.sync();
}

void end_trial(const std::string& dir) {
  remove_folder(trial_of(dir));
}

}  // namespace tandem
