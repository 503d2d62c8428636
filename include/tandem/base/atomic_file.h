// A file that is there whole or not at all.
#pragma once

#include <cstdio>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace tandem {

// Written under a name of its own, PATH.tmp-XXXXXXXX (hex digits), which takes the place of PATH in
// commit(); of several writers of a PATH the last to commit stays. Without a commit an older file
// stays as it is, and nothing of the new one is left. Only a process that is killed leaves its
// PATH.tmp-XXXXXXXX, which nobody reads and nobody but the user removes, as another process might
// be writing it. Where PATH is a link to a file that is there, so it goes with that file, and the
// link stays; a link to none is itself replaced. The new file has the older one's permissions. A
// device or pipe has no older contents: it is written at once, and so is the file that standard
// output or error goes to, such as /dev/stdout, where it goes on. Nothing is synced: after a crash
// of the machine the file may be neither the old nor the new one. Everything blocks, and throws
// Error(kBadInput) that names PATH, the reason, and what to do.
class AtomicFile {
 public:
  explicit AtomicFile(std::string path);  // makes folders that are not there
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(std::span<const std::byte> bytes);
  void write(std::string_view text) { write(std::as_bytes(std::span(text))); }
  void close();   // all is written: of several files, before the first commit. Once.
  void commit();  // closes where that is still to do

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  [[noreturn]] void fail(int error) const;

  const std::string path_;
  std::string target_, unfinished_;  // the same: written at once
  std::unique_ptr<std::FILE, Close> file_;
};

// The file `path` with this content, by the same rules.
void replace_file(const std::string& path, std::string_view text);

// Throws like an AtomicFile of this path and leaves nothing but its folder, for work that should not be done in
// vain. A device or pipe is not tried: opening it could already tell its reader something.
void require_writable(const std::string& path);

}  // namespace tandem
