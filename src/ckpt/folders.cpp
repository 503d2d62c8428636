#include "folders.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <map>
#include <optional>
#include <string_view>

#include "disk.h"
#include "tandem/base/error.h"

namespace tandem {
namespace {

constexpr std::string_view kStep = "step-", kWriting = ".tmp-", kReplaced = ".replaced-step-";
constexpr std::size_t kMinDigits = 8;

// The step in "<prefix>00000042".
std::optional<std::int64_t> step_after(std::string_view prefix, std::string_view name) {
  if (!name.starts_with(prefix)) return std::nullopt;
  name.remove_prefix(prefix.size());
  std::int64_t step = 0;
  const auto [end, status] = std::from_chars(name.data(), name.data() + name.size(), step);
  const bool whole = status == std::errc() && end == name.data() + name.size();
  if (!whole || name.size() < kMinDigits || name.front() == '-') return std::nullopt;
  return step;
}

std::vector<std::string> folder_names(const std::string& dir) {
  std::vector<std::string> names;
  if (!exists(dir)) return names;
  std::error_code error;
  std::filesystem::directory_iterator at(dir, error);
  for (; !error && at != std::filesystem::directory_iterator(); at.increment(error)) {
    names.push_back(at->path().filename().string());
  }
  if (error) throw_error(ExitCode::kBadInput, "cannot list {}: {}", dir, error.message());
  return names;
}

}  // namespace

std::string step_name(std::int64_t step) {
  return fmt::format("{}{:08}", kStep, step);
}
std::string writing_name(std::int64_t step) {
  return fmt::format("{}step-{:08}", kWriting, step);
}
std::string replaced_name(std::int64_t step) {
  return fmt::format("{}{:08}", kReplaced, step);
}

std::optional<std::int64_t> step_in_name(const std::string& name) {
  const std::string plain = name.starts_with(kWriting) ? name.substr(kWriting.size()) : name;
  const auto step = step_after(kStep, plain);
  return step ? step : step_after(kReplaced, plain);
}

std::vector<StepFolder> list_steps(const std::string& dir) {
  std::map<std::int64_t, std::string, std::greater<>> by_step;
  for (const std::string& name : folder_names(dir)) {
    if (const auto step = step_after(kStep, name)) by_step[*step] = name;
    if (const auto step = step_after(kReplaced, name)) by_step.emplace(*step, name);
  }
  std::vector<StepFolder> folders;
  for (const auto& [step, name] : by_step) folders.push_back({step, dir + "/" + name});
  return folders;
}

void clean_folders(const std::string& dir) {
  for (const std::string& name : folder_names(dir)) {
    const std::string path = dir + "/" + name;
    if (name.starts_with(kWriting)) remove_folder(path);
    if (const auto step = step_after(kReplaced, name)) {
      const std::string home = dir + "/" + step_name(*step);
      if (exists(home)) {
        remove_folder(path);
      } else {
        move_folder(path, home);
      }
    }
  }
}

}  // namespace tandem
