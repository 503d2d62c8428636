// Loaded before the C library: appends every write, fsync and rename that succeeded to the file
// TANDEM_DISK_LOG names, a line each, in the order they were done.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>

namespace {

template <class Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

void note(const std::string& line) {
  const char* path = std::getenv("TANDEM_DISK_LOG");
  const int log = path == nullptr ? -1 : ::open(path, O_WRONLY | O_CREAT | O_APPEND, 0666);
  if (log < 0) std::abort();
  // Not write(), which is the one below.
  if (::syscall(SYS_write, log, line.data(), line.size()) < 0) std::abort();
  ::close(log);
}

void note(const char* what, int fd) {
  const int before = errno;
  std::error_code none;
  const auto path = std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(fd), none);
  if (path.is_absolute()) note(std::string(what) + " " + path.string() + "\n");
  errno = before;
}

}  // namespace

extern "C" {

ssize_t write(int fd, const void* bytes, std::size_t size) {
  const ssize_t put = next<decltype(write)>("write")(fd, bytes, size);
  if (put > 0) note("write", fd);
  return put;
}

int fsync(int fd) {
  const int status = next<decltype(fsync)>("fsync")(fd);
  if (status == 0) note("fsync", fd);
  return status;
}

int rename(const char* from, const char* to) noexcept {
  const int status = next<int(const char*, const char*)>("rename")(from, to);
  if (status == 0) note(std::string("rename ") + from + " " + to + "\n");
  return status;
}
}
