// What people type who come from other trainers, and what it is called here. Private.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tandem::config {

// A name of Megatron-LM's arguments or of Hugging Face's configs.
struct ForeignKey {
  std::string_view theirs;  // with underscores
  std::string_view ours;    // "model.layers"; "always": on without a key; "": none, see the note
  std::string_view note;    // what is different; may be "" beside `ours`
};

std::span<const ForeignKey> foreign_model_keys();
std::span<const ForeignKey> foreign_run_keys();
std::vector<ForeignKey> foreign_keys();  // both

// "here it is model.layers", "always on here", "not supported: ...", or "" for a name that is not
// in the table. Dashes count as underscores.
std::string foreign_hint(std::string_view key);

}  // namespace tandem::config
