// Names of the folders below a checkpoint directory, and which of them are candidates for loading.
//
//   step-00000042           a checkpoint
//   .tmp-step-00000042      one being written, or left by a save that was interrupted
//   .replaced-step-00000042 the previous checkpoint of a step that is being saved again; it counts
//                           only while step-00000042 itself is absent
//   .tmp-trial              what a run writes before its first step to see whether it can
//   .lock                   held by the run that writes here (claim.h)
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tandem {

inline constexpr char kLockName[] = ".lock";
inline constexpr char kTrialName[] = ".tmp-trial";

std::string step_name(std::int64_t step);
std::string writing_name(std::int64_t step);
std::string replaced_name(std::int64_t step);
// The step in any of the three; nullopt: the name is none of them.
std::optional<std::int64_t> step_in_name(const std::string& name);

struct StepFolder {
  std::int64_t step = 0;
  std::string path;
};

// Candidates, newest first; empty if `dir` does not exist. Whether they are complete is not looked
// at. Throws Error(kBadInput) if `dir` cannot be listed.
std::vector<StepFolder> list_steps(const std::string& dir);

// Ends what interrupted saves left: removes temporary folders, puts a replaced checkpoint back
// where its successor never came.
void clean_folders(const std::string& dir);

}  // namespace tandem
