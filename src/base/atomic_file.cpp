#include "tandem/base/atomic_file.h"

#include <fmt/core.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <random>

#include "tandem/base/error.h"

namespace tandem {
namespace fs = std::filesystem;

AtomicFile::AtomicFile(std::string path) : path_(std::move(path)), target_(path_) {
  std::error_code missing;  // opening tells
  const fs::file_status there = fs::status(path_, missing);
  if (fs::is_directory(there))
    throw_error(ExitCode::kBadInput, "{} is a folder; choose another name", path_);
  const bool replaces = !fs::exists(there) || fs::is_regular_file(there);
  if (replaces) {
    const fs::path named = fs::canonical(path_, missing);
    if (!missing) target_ = named.string();
  }
  unfinished_ = target_;
  if (replaces)  // mkstemp would not heed the umask
    unfinished_ += fmt::format(".tmp-{:08x}", std::random_device{}());
  file_.reset(std::fopen(unfinished_.c_str(), replaces ? "wxe" : "we"));
  if (!file_) fail(errno);
}

AtomicFile::~AtomicFile() {
  file_.reset();
  if (!unfinished_.empty() && unfinished_ != target_) ::unlink(unfinished_.c_str());
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  if (std::fwrite(bytes.data(), 1, bytes.size(), file_.get()) != bytes.size()) fail(errno);
}

void AtomicFile::close() {
  if (std::fclose(file_.release()) != 0) fail(errno);
}

void AtomicFile::commit() {
  if (file_) close();
  if (unfinished_ != target_ && std::rename(unfinished_.c_str(), target_.c_str()) != 0) fail(errno);
  unfinished_.clear();
}

void AtomicFile::fail(int error) const {
  throw_error(ExitCode::kBadInput, "{} cannot be written: {}; check the folder and the space",
              path_, std::strerror(error));
}

void replace_file(const std::string& path, std::string_view text) {
  AtomicFile file(path);
  file.write(text);
  file.commit();
}

}  // namespace tandem
