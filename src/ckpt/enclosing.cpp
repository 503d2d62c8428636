#include <filesystem>

#include "folders.h"
#include "manifest.h"
#include "tandem/base/error.h"
#include "tandem/ckpt/checkpoint.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

bool has_shards(const fs::path& folder) {
  std::error_code unknown;
  for (fs::directory_iterator at(folder, unknown), end; !unknown && at != end;
       at.increment(unknown))
    if (const std::string name = at->path().filename().string();
        name.starts_with("rank-") && name.ends_with(".safetensors"))
      return true;
  return false;
}

// The step of the checkpoint that `folder` is; nullopt: it is none. Other programs have files
// called manifest.json too: one that cannot be read counts only where the folder has a checkpoint's
// name, and the files of its ranks.
std::optional<std::int64_t> step_of(const fs::path& folder) {
  std::error_code unknown;
  if (!fs::exists(folder / kManifestName, unknown)) return std::nullopt;
  try {
    return read_manifest(folder.string()).info.step;
  } catch (const Error&) {
    return has_shards(folder) ? step_in_name(folder.filename().string()) : std::nullopt;
  }
}

}  // namespace

std::optional<EnclosingCheckpoint> enclosing_checkpoint(const std::string& dir) {
  std::error_code unknown;
  // An empty last component, as of "runs/", is none.
  fs::path at = fs::weakly_canonical(fs::absolute(dir, unknown), unknown);
  if (unknown) return std::nullopt;
  if (!at.has_filename()) at = at.parent_path();
  const auto named = [&](const fs::path& path) {
    return fs::path(dir).is_absolute() ? path.string() : fs::proximate(path, unknown).string();
  };
  for (; at.has_relative_path(); at = at.parent_path())
    if (const auto step = step_of(at))
      return EnclosingCheckpoint{named(at), named(at.parent_path()), step_name(*step),
                                 fs::exists(at.parent_path() / step_name(*step), unknown)};
  return std::nullopt;
}

}  // namespace tandem
