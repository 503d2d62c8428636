#include "manifest.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <set>

#include "disk.h"
#include "tandem/base/error.h"
#include "tandem/base/json.h"
#include "tandem/base/json_writer.h"
#include "tandem/ckpt/safetensors.h"

namespace tandem {
namespace {

constexpr std::int64_t kVersion = 1;
constexpr std::uint64_t kMaxManifestBytes = std::uint64_t{256} << 20;
constexpr char kSealStart[] = ",\"manifest_crc32c\":\"";
constexpr std::size_t kSealBytes = sizeof kSealStart - 1 + 8 + 3;  // 8 digits and "}\n after them

std::string seal(std::string_view body) {
  return fmt::format("{}{:08x}\"}}\n", kSealStart, crc32c(std::as_bytes(std::span(body))));
}

std::uint32_t parse_crc(const Json& value, const std::string& what) {
  const std::string& text = value.as_string(what);
  std::uint32_t crc = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), crc, 16);
  if (text.size() != 8 || status != std::errc() || end != text.data() + text.size()) {
    throw_error(ExitCode::kBadInput, "{} is \"{}\", expected 8 hexadecimal digits", what, text);
  }
  return crc;
}

bool is_plain_name(const std::string& name) {
  return !name.empty() && name.front() != '.' && name.size() <= 255 &&
         name.find_first_of(std::string_view("/\\\0", 3)) == std::string::npos;
}

class ManifestParser {
 public:
  explicit ManifestParser(const std::string& origin) : origin_(origin) {}

  Manifest parse(std::string_view text) {
    const Json root =
        parse_json(text, origin_, ExitCode::kBadInput, {.depth = 8, .bytes = kMaxManifestBytes});
    const std::int64_t version = member(root, "version").as_int(what("version"));
    if (version != kVersion) {
      throw_error(ExitCode::kBadInput, "{}: version {} is unknown, expected {}", origin_, version,
                  kVersion);
    }
    Manifest manifest;
    manifest.info.step = member(root, "step").as_int(what("step"), 0);
    manifest.info.consumed_samples =
        member(root, "consumed_samples").as_int(what("consumed_samples"), 0);
    manifest.info.seed = member(root, "seed").as_uint(what("seed"));
    manifest.info.config_json = member(root, "config").as_string(what("config"));
    if (const Json* loss_scale = root.find("loss_scale"))
      manifest.info.loss_scale_json = loss_scale->as_string(what("loss_scale"));
    for (const Json& file : member(root, "files").as_array(what("files"))) {
      manifest.files.push_back(parse_file(file));
    }
    for (const Json& tensor : member(root, "tensors").as_array(what("tensors"))) {
      parse_tensor(tensor, manifest);
    }
    order_pieces(manifest, origin_);
    return manifest;
  }

 private:
  [[nodiscard]] std::string what(const std::string& key) const { return origin_ + ": " + key; }

  [[nodiscard]] const Json& member(const Json& object, const char* key) const {
    return object.at(key, what(key));
  }

  ShardFile parse_file(const Json& value) {
    ShardFile file;
    file.name = member(value, "name").as_string(what("files.name"));
    if (!is_plain_name(file.name) || !file_names_.insert(file.name).second) {
      throw_error(ExitCode::kBadInput,
                  "{}: files.name \"{}\" is given twice or is no plain file name", origin_,
                  file.name);
    }
    file.bytes = member(value, "bytes").as_uint(what("files.bytes"));
    file.crc32c = parse_crc(member(value, "crc32c"), what("files.crc32c"));
    return file;
  }

  void parse_tensor(const Json& value, Manifest& manifest) const {
    const std::string& name = member(value, "name").as_string(what("tensors.name"));
    TensorEntry& tensor = manifest.tensors[name];
    if (!tensor.pieces.empty()) {
      throw_error(ExitCode::kBadInput, "{}: tensor {} is listed twice", origin_, name);
    }
    const std::string in = what("tensor " + name);
    tensor.size = member(value, "size").as_int(in + ".size", 1);
    for (const Json& triple : member(value, "pieces").as_array(in + ".pieces")) {
      const Json::Array& numbers = triple.as_array(in + ".pieces");
      if (numbers.size() != 3) {
        throw_error(ExitCode::kBadInput, "{}.pieces: {} numbers, expected [file, begin, count]", in,
                    numbers.size());
      }
      PieceEntry piece;
      const auto files = static_cast<std::int64_t>(manifest.files.size());
      piece.file = static_cast<std::size_t>(numbers[0].as_int(in + ".pieces.file", 0, files - 1));
      piece.begin = numbers[1].as_int(in + ".pieces.begin", 0, tensor.size - 1);
      piece.count = numbers[2].as_int(in + ".pieces.count", 1, tensor.size - piece.begin);
      tensor.pieces.push_back(piece);
    }
  }

  const std::string& origin_;
  std::set<std::string> file_names_;
};

}  // namespace

void order_pieces(Manifest& manifest, const std::string& origin) {
  for (auto& [name, tensor] : manifest.tensors) {
    std::sort(tensor.pieces.begin(), tensor.pieces.end(),
              [](const PieceEntry& a, const PieceEntry& b) { return a.begin < b.begin; });
    std::int64_t at = 0;
    for (const PieceEntry& piece : tensor.pieces) {
      if (piece.begin != at) {
        throw_error(ExitCode::kBadInput, "{}: tensor {}: elements [{}, {}) are {}", origin, name,
                    std::min(at, piece.begin), std::max(at, piece.begin),
                    piece.begin < at ? "held twice" : "missing");
      }
      at = piece.end();
    }
    if (at != tensor.size) {
      throw_error(ExitCode::kBadInput, "{}: tensor {}: elements [{}, {}) are missing", origin, name,
                  at, tensor.size);
    }
  }
}

std::string to_text(const Manifest& manifest) {
  JsonWriter json;
  json.begin_object().key("version").value(kVersion);
  json.key("step").value(manifest.info.step);
  json.key("consumed_samples").value(manifest.info.consumed_samples);
  json.key("seed").value(manifest.info.seed);
  json.key("config").value(manifest.info.config_json);
  if (!manifest.info.loss_scale_json.empty())
    json.key("loss_scale").value(manifest.info.loss_scale_json);
  json.key("files").begin_array();
  for (const ShardFile& file : manifest.files) {
    json.begin_object().key("name").value(file.name).key("bytes").value(file.bytes);
    json.key("crc32c").value(fmt::format("{:08x}", file.crc32c)).end_object();
  }
  json.end_array().key("tensors").begin_array();
  for (const auto& [name, tensor] : manifest.tensors) {
    json.begin_object().key("name").value(name).key("size").value(tensor.size);
    json.key("pieces").begin_array();
    for (const PieceEntry& piece : tensor.pieces) {
      json.begin_array().value(piece.file).value(piece.begin).value(piece.count).end_array();
    }
    json.end_array().end_object();
  }
  std::string body = json.end_array().end_object().str();
  body.pop_back();  // the seal closes the object
  return body + seal(body);
}

Manifest parse_manifest(std::string_view text, const std::string& origin) {
  const std::size_t body = text.size() < kSealBytes ? 0 : text.size() - kSealBytes;
  if (text.substr(body) != seal(text.substr(0, body))) {
    throw_error(ExitCode::kBadInput,
                "{}: its text does not match the checksum at its end; it was changed or cut short",
                origin);
  }
  return ManifestParser(origin).parse(text);
}

Manifest read_manifest(const std::string& folder) {
  const ReadFile file(folder + "/" + kManifestName, Links::kRefuse);
  if (file.size() > kMaxManifestBytes) {
    throw_error(ExitCode::kBadInput, "{}: {} bytes, more than the {} allowed", file.path(),
                file.size(), kMaxManifestBytes);
  }
  std::string text(file.size(), '\0');
  file.read(0, std::as_writable_bytes(std::span(text)));
  return parse_manifest(text, file.path());
}

std::string state_name(std::string_view tensor, std::int64_t begin, std::string_view part) {
  return fmt::format("{}@{}/{}", tensor, begin, part);
}

}  // namespace tandem
