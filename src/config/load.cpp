#include "tandem/config/load.h"

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
      problems_.push_back(
          fmt::format("{}\"{}\": not of the form section.key=value, as in train.steps=50", source,
                      excerpt(text)));
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

  RunConfig finish() {
    // The preset replaces defaults, so it comes before every key that is set explicitly.
    apply_if([](const Field& f) { return f.name() == "model.preset"; });
    if (!config_.model.preset.empty()) {
      try {
        config::apply_preset(config_.model.preset, config_.model);
      } catch (const Error& error) {
        problems_.push_back(error.what());
      }
    }
    apply_if([](const Field& f) { return f.name() != "model.preset"; });
    config::throw_if_any(problems_, origin_);
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
    problems_.push_back(fmt::format("{}{}: unknown section{}", source, excerpt(section),
                                    did_you_mean(nearest_name(section, names))));
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
  if (!file)
    throw_error(ExitCode::kUsage, "{}: cannot open the config file ({}); check the path", path,
                std::strerror(errno));
  // One byte more than allowed: the parser then refuses the size, however long the file is.
  std::string text(JsonLimits{}.bytes + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(file.gcount()));
  return text;
}

}  // namespace

RunConfig parse_config(const std::string& json_text, const std::string& origin,
                       const std::vector<std::string>& overrides) {
  Loader loader(origin);
  loader.read_text(json_text);
  for (const std::string& text : overrides) loader.read_override(text);
  return loader.finish();
}

RunConfig load_config(const std::string& path, const std::vector<std::string>& overrides) {
  return parse_config(path.empty() ? "{}" : read_file(path), config_origin(path), overrides);
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
