#include "tandem/config/load.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "fields.h"
#include "foreign_keys.h"
#include "presets.h"
#include "problems.h"
#include "tandem/base/error.h"
#include "tandem/base/json.h"
#include "tandem/base/nearest.h"
#include "values.h"

namespace tandem {
namespace {

using config::Field;

struct Assignment {
  const Field* field;
  Json value;
  std::string source;  // "" for the file, "command line: " for an override
};

// Collects what the file and the overrides say, then applies it in the order of precedence.
class Loader {
 public:
  explicit Loader(std::string origin) : origin_(std::move(origin)) {}

  void read_text(const std::string& text) {
    const Json root = parse_json(text, origin_, ExitCode::kUsage);
    if (!root.is_object()) {
      problems_.push_back("expected an object of sections, got " + root.kind());
      return;
    }
    for (const auto& [section, body] : root.as_object(origin_)) read_section(section, body);
  }

  void read_override(const std::string& text) {
    const std::string source = "command line: ";
    const std::size_t equals = text.find('=');
    const std::size_t dot = text.find('.');
    if (equals == std::string::npos || dot == std::string::npos || dot > equals) {
      const bool has_name = equals > 0 && equals != std::string::npos && dot > equals;
      const std::string hint = has_name ? key_hint(text.substr(0, equals)) : "";
      problems_.push_back(fmt::format("{}\"{}\": not of the form section.key=value{}", source,
                                      excerpt(text),
                                      hint.empty() ? ", as in train.steps=50" : "; " + hint));
      return;
    }
    const std::string section = text.substr(0, dot);
    const std::string key = text.substr(dot + 1, equals - dot - 1);
    const Field* field = find_field(section, key, source);
    if (field == nullptr) return;
    try {
      assignments_.push_back({field, value_from_text(*field, text.substr(equals + 1)), source});
    } catch (const Error& error) {
      problems_.push_back(source + error.what());
    }
  }

  RunConfig finish(std::vector<std::string>* warnings) {
    // The preset replaces defaults, so it comes before every key that is set explicitly.
    apply_if([](const Field& f) { return f.name() == "model.preset"; });
    if (!config_.model.preset.empty()) {
      try {
        config::apply_preset(config_.model.preset, config_.model);
      } catch (const Error& error) {
        problems_.push_back(error.what());
      }
    }
    RunConfig preset = config_;
    apply_if([](const Field& f) { return f.name() != "model.preset"; });
    config::throw_if_any(problems_, origin_);
    tell_overridden_preset(preset, warnings);
    return std::move(config_);
  }

 private:
  void read_section(const std::string& section, const Json& body) {
    if (!known_section(section, "")) return;
    if (!body.is_object()) {
      problems_.push_back(
          fmt::format("{}: expected an object of keys, got {}", section, body.kind()));
      return;
    }
    for (const auto& [key, value] : body.as_object(section)) {
      const Field* field = find_field(section, key, "");
      if (field != nullptr) assignments_.push_back({field, value, ""});
    }
  }

  bool known_section(const std::string& section, const std::string& source) {
    std::vector<std::string_view> names;
    for (const Field& f : fields_) {
      if (f.section == section) return true;
      if (names.empty() || names.back() != f.section) names.push_back(f.section);
    }
    const std::string_view nearest = nearest_name(section, names);
    const std::string hint = nearest.empty() ? key_hint(section) : "";
    problems_.push_back(fmt::format("{}{}: unknown section{}", source, excerpt(section),
                                    hint.empty() ? did_you_mean(nearest) : "; " + hint));
    return false;
  }

  const Field* find_field(const std::string& section, const std::string& key,
                          const std::string& source) {
    if (!known_section(section, source)) return nullptr;
    const Field* same_key = nullptr;  // in another section
    std::vector<std::string_view> keys;
    for (const Field& f : fields_) {
      if (f.section == section && f.key == key) return &f;
      if (f.section == section) keys.push_back(f.key);
      if (f.key == key && same_key == nullptr) same_key = &f;
    }
    if (const std::string hint = config::foreign_hint(key); !hint.empty()) {
      problems_.push_back(
          fmt::format("{}{}.{}: unknown key; {}", source, section, excerpt(key), hint));
      return nullptr;
    }
    const std::string_view nearest = nearest_name(key, keys);
    std::string known;
    if (same_key != nullptr)
      known = same_key->name();
    else if (!nearest.empty())
      known = fmt::format("{}.{}", section, nearest);
    problems_.push_back(
        fmt::format("{}{}.{}: unknown key{}", source, section, excerpt(key), did_you_mean(known)));
    return nullptr;
  }

  static std::string did_you_mean(std::string_view name) {
    return name.empty() ? "; docs/CONFIG.md lists all" : fmt::format("; did you mean {}?", name);
  }

  // Who names a preset on the command line expects that model, whatever the file says.
  void tell_overridden_preset(RunConfig& preset, std::vector<std::string>* warnings) const {
    const Assignment* last = nullptr;
    for (const Assignment& a : assignments_)
      if (a.field->name() == "model.preset") last = &a;
    if (warnings == nullptr || last == nullptr || last->source.empty()) return;
    if (config_.model.preset.empty()) return;  // no preset is asked for
    const std::vector<Field> unset = config::fields(preset);
    std::string keys;
    int count = 0;
    for (const Assignment& a : assignments_) {
      const bool of_file = a.source.empty() && a.field->section == "model" && !overridden(a);
      const auto at = static_cast<std::size_t>(a.field - fields_.data());
      if (!of_file || a.field == last->field || text_of(*a.field) == text_of(unset[at])) continue;
      keys += fmt::format("{}{}", keys.empty() ? "" : ", ", a.field->key);
      ++count;
    }
    if (count > 0)
      warnings->push_back(fmt::format(
          "model.preset={}: {} of its values {} overridden by {}: {}; leave {} out of the file to "
          "have the preset's",
          config_.model.preset, count, count == 1 ? "is" : "are", origin_, keys,
          count == 1 ? "it" : "them"));
  }

  [[nodiscard]] bool overridden(const Assignment& of_file) const {
    return std::any_of(assignments_.begin(), assignments_.end(), [&](const Assignment& a) {
      return a.field == of_file.field && !a.source.empty();
    });
  }

  static std::string text_of(const Field& field) {
    JsonWriter writer;
    write_value(writer, field);
    return writer.str();
  }

  template <class Wanted>
  void apply_if(Wanted wanted) {
    for (const Assignment& a : assignments_) {
      if (!wanted(*a.field)) continue;
      try {
        assign(*a.field, a.value);
      } catch (const Error& error) {
        problems_.push_back(a.source + error.what());
      }
    }
  }

  std::string origin_;
  RunConfig config_;
  std::vector<Field> fields_ = config::fields(config_);
  std::vector<Assignment> assignments_;
  std::vector<std::string> problems_;
};

std::string read_file(const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored))
    throw_error(ExitCode::kUsage, "{}: a folder, not a config file", path);
  std::ifstream file(path, std::ios::binary);
  if (!file && path.find('=') != std::string::npos)
    throw_error(ExitCode::kUsage,
                "{0}: an override where the config file belongs; the file comes first, as in "
                "configs/smoke.json {0}",
                excerpt(path));
  if (!file)
    throw_error(ExitCode::kUsage, "{}: cannot open the config file ({}); check the path", path,
                std::strerror(errno));
  // One byte more than allowed: the parser then refuses the size, however long the file is.
  std::string text(JsonLimits{}.bytes + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(file.gcount()));
  return text;
}

std::string with_underscores(std::string name) {
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

}  // namespace

RunConfig parse_config(const std::string& json_text, const std::string& origin,
                       const std::vector<std::string>& overrides,
                       std::vector<std::string>* warnings) {
  Loader loader(origin);
  loader.read_text(json_text);
  for (const std::string& text : overrides) loader.read_override(text);
  return loader.finish(warnings);
}

RunConfig load_config(const std::string& path, const std::vector<std::string>& overrides,
                      std::vector<std::string>* warnings) {
  return parse_config(path.empty() ? "{}" : read_file(path), config_origin(path), overrides,
                      warnings);
}

std::string known_key(const std::string& name) {
  const std::string wanted = with_underscores(name);
  RunConfig defaults;
  const std::vector<Field> fields = config::fields(defaults);
  const bool known = std::any_of(fields.begin(), fields.end(),
                                 [&](const Field& field) { return field.name() == wanted; });
  return known ? wanted : "";
}

std::string key_hint(const std::string& name) {
  const std::string typed = with_underscores(name);
  const std::size_t dot = typed.find('.');
  const std::string wanted = dot == std::string::npos ? typed : typed.substr(dot + 1);
  RunConfig defaults;
  const std::vector<Field> fields = config::fields(defaults);
  const auto named = [&](std::string_view key) {
    std::vector<std::string> names;
    for (const Field& field : fields)
      if (field.key == key) names.push_back(field.name());
    if (names.empty()) return std::string();
    const std::string_view nearest = nearest_name(typed, {names.begin(), names.end()});
    return fmt::format("did you mean {}?", nearest.empty() ? names.front() : nearest);
  };
  if (std::string exact = named(wanted); !exact.empty()) return exact;
  if (std::string foreign = config::foreign_hint(wanted); !foreign.empty()) return foreign;
  if (dot == std::string::npos) {
    std::vector<std::string_view> keys;
    for (const Field& field : fields) keys.push_back(field.key);
    return named(nearest_name(wanted, keys));
  }
  std::vector<std::string> names;
  for (const Field& field : fields) names.push_back(field.name());
  const std::string_view nearest = nearest_name(typed, {names.begin(), names.end()});
  return nearest.empty() ? "" : fmt::format("did you mean {}?", nearest);
}

std::string config_origin(const std::string& path) {
  return path.empty() ? "command line" : path;
}

std::string to_json(const RunConfig& config) {
  RunConfig copy = config;
  JsonWriter writer(2);
  std::string_view section;
  writer.begin_object();
  for (const Field& field : config::fields(copy)) {
    if (field.section != section) {
      if (!section.empty()) writer.end_object();
      section = field.section;
      writer.key(section).begin_object();
    }
    writer.key(field.key);
    write_value(writer, field);
  }
  writer.end_object().end_object();
  return writer.str() + "\n";
}

}  // namespace tandem
