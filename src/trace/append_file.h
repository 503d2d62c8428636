// A file that grows by whole records: each is handed to the system in one piece at once, so a
// reader or a crash sees at most one torn record, the last.
#pragma once

#include <string>
#include <string_view>

namespace tandem {

class AppendFile {
 public:
  enum class Mode { kAppend, kNew };  // kNew fails when the file exists

  AppendFile(const std::string& path, Mode mode);  // throws Error(kBadInput) naming the path
  ~AppendFile();
  AppendFile(const AppendFile&) = delete;
  AppendFile& operator=(const AppendFile&) = delete;

  void append(std::string_view record);  // throws Error(kBadInput), for example when a disk is full
  [[nodiscard]] bool ends_within_a_line() const;
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
  int file_ = -1;
};

// Seconds since 1970.
double wall_time_s();

}  // namespace tandem
