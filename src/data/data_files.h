// The files that data.train or data.valid names: errors about them say which key, where a file was
// looked for, and the way out.
#pragma once

#include <string>
#include <vector>

#include "tandem/base/error.h"

namespace tandem {

struct DataKey {
  const char* name;                       // "data.train"
  const std::vector<std::string>& files;  // as the config gives them
  const char* ending;                     // of the files on the disk: "", or ".bin" for prefixes
};

// Throws Error(kUsage) where Megatron's --data-path with weights was meant. `remedy`: what to do.
void require_no_weights(const DataKey& key, const char* remedy);

// `error`, met while `file` was opened, with all that is known about it.
[[noreturn]] void throw_unopened(const DataKey& key, const std::string& file, const Error& error);

// open(file) for each of the key's files, whose errors are told as above.
template <class Open>
void open_each(const DataKey& key, const Open& open) {
  for (const std::string& file : key.files) {
    try {
      open(file);
    } catch (const Error& error) {
      throw_unopened(key, file, error);
    }
  }
}

}  // namespace tandem
