// The folder in which a file is going to lie.
#pragma once

#include <filesystem>
#include <string>

namespace tandem {

// Makes it, with those above it. Where that fails, so does opening the file, which says why.
inline void make_parent_folder(const std::string& path) {
  std::error_code told_by_opening;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), told_by_opening);
}

}  // namespace tandem
