// From a JSON file and command-line overrides to a RunConfig, strictly.
#pragma once

#include <string>
#include <vector>

#include "tandem/config/config.h"

namespace tandem {

// Reads `path` (or, if empty, the defaults), applies overrides "section.key=value" in order, then
// the preset: keys the file or an override sets win over the preset, the preset over defaults.
// Unknown or duplicate keys, wrong types and out-of-range numbers are collected; if there are any,
// throws Error(kUsage) that lists all of them, each with the key, the value, the rule, and the
// nearest known name for an unknown key. `warnings`, if not null, gets a line where a preset of the
// command line yields to values of the file.
RunConfig load_config(const std::string& path, const std::vector<std::string>& overrides,
                      std::vector<std::string>* warnings = nullptr);

// The same from JSON text; `origin` names it in messages.
RunConfig parse_config(const std::string& json_text, const std::string& origin,
                       const std::vector<std::string>& overrides,
                       std::vector<std::string>* warnings = nullptr);

// What an unknown key, with or without a section, most likely means: "did you mean train.steps?"
// for "steps", "step" and "train.step", "here it is model.layers" for "num_layers", which another
// trainer has; "" for what is like nothing. Dashes count as underscores.
std::string key_hint(const std::string& name);

// "train.micro_batch" for itself and "train.micro-batch"; "" for what is no key with its section.
std::string known_key(const std::string& name);

// Complete JSON of a config: parse_config(to_json(c)) == c. Written into checkpoints.
std::string to_json(const RunConfig& config);

// How messages of load_config() name what it read; for resolve().
std::string config_origin(const std::string& path);

// Keys of a resolved config that differ from their defaults (those of model.preset, if given) and
// change nothing in this run, each with the reason, as "train.comm = nccl: ...". on_gpu: where the
// model will run.
std::vector<std::string> idle_keys(const RunConfig& config, bool on_gpu);

// Every cross-field rule, against `world` ranks. Returns all violations; empty means valid.
std::vector<std::string> violations(const RunConfig& config, int world);

// Fills dp and microbatch_group for `world` ranks, then checks every rule.
// Throws Error(kUsage) listing all violations after `origin`, the file's name. world = 0: the size
// the config itself names (pp * dp, with dp = ep where dp is 0), as `tandem plan` and `tandem
// check` use it.
RunConfig resolve(RunConfig config, int world, const std::string& origin = "config");

}  // namespace tandem
