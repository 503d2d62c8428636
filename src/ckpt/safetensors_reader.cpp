#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <unordered_map>

#include "safetensors_types.h"
#include "tandem/base/error.h"
#include "tandem/base/json.h"

namespace tandem {
namespace {

constexpr std::size_t kMaxRank = 8;
constexpr std::size_t kMaxNameBytes = 1024;
constexpr std::size_t kMaxTensors = 1'000'000;
constexpr int kMaxDepth = 4;

template <class... Args>
[[noreturn]] void reject(const std::string& path, const std::string& field,
                         fmt::format_string<Args...> text, Args&&... args) {
  throw_error(ExitCode::kBadInput, "{}: {}: {}", path, field,
              fmt::format(text, std::forward<Args>(args)...));
}

// The header's text; checks the length in front of it against cap and file size.
std::string read_header(const ReadFile& file) {
  if (file.size() < kLengthBytes) {
    reject(file.path(), "header length", "the file has {} bytes, expected at least {}", file.size(),
           kLengthBytes);
  }
  std::uint64_t length = 0;
  file.read(0, std::as_writable_bytes(std::span(&length, 1)));
  if (length > kMaxHeaderBytes || length > file.size() - kLengthBytes) {
    reject(file.path(), "header length (byte 0)", "found {}, more than {} in a file of {} bytes",
           length, std::min(kMaxHeaderBytes, file.size() - kLengthBytes), file.size());
  }
  std::string text(length, '\0');
  file.read(kLengthBytes, std::as_writable_bytes(std::span(text)));
  if (text.empty() || text.front() != '{') {
    reject(file.path(), "header (byte 8)", "it does not begin with '{{'");
  }
  return text;
}

class HeaderParser {
 public:
  HeaderParser(const std::string& path, std::uint64_t data_bytes)
      : path_(path), data_bytes_(data_bytes) {}

  void parse(const std::string& text) {
    const Json header = parse_json(text, path_ + ": header", ExitCode::kBadInput,
                                   {.depth = kMaxDepth, .bytes = kMaxHeaderBytes});
    const Json::Object& entries = header.as_object(path_ + ": header");
    if (entries.size() > kMaxTensors) {
      reject(path_, "header", "{} tensors, more than the {} allowed", entries.size(), kMaxTensors);
    }
    for (const auto& [name, value] : entries) {
      if (name == kMetadataKey) {
        parse_metadata(value);
      } else {
        tensors.push_back(parse_tensor(name, value));
      }
    }
    check_layout();
  }

  std::vector<TensorInfo> tensors;
  std::map<std::string, std::string> metadata;

 private:
  [[nodiscard]] std::string field(const std::string& name, const char* key) const {
    return fmt::format("{}: tensor {}: {}", path_, name, key);
  }

  void parse_metadata(const Json& value) {
    const std::string what = path_ + ": " + kMetadataKey;
    for (const auto& [key, text] : value.as_object(what)) {
      metadata[key] = text.as_string(what + "." + key);
    }
  }

  TensorInfo parse_tensor(const std::string& name, const Json& value) const {
    if (name.empty() || name.size() > kMaxNameBytes) {
      reject(path_, "header", "a tensor name of {} bytes, expected 1 to {}", name.size(),
             kMaxNameBytes);
    }
    for (const auto& member : value.as_object(field(name, "entry"))) {
      const std::string& key = member.first;
      if (key != "dtype" && key != "shape" && key != "data_offsets") {
        reject(path_, "tensor " + name, "unknown key \"{}\"", key);
      }
    }
    TensorInfo info;
    info.name = name;
    info.dtype = parse_dtype(name, value.at("dtype", field(name, "dtype")));
    info.shape = parse_shape(name, value.at("shape", field(name, "shape")));
    const std::string what = field(name, "data_offsets");
    const Json::Array& offsets = value.at("data_offsets", what).as_array(what);
    if (offsets.size() != 2) {
      reject(path_, "tensor " + name, "data_offsets has {} numbers, expected 2", offsets.size());
    }
    info.begin = offsets[0].as_uint(what);
    info.end = offsets[1].as_uint(what);
    check_size(info);
    return info;
  }

  DType parse_dtype(const std::string& name, const Json& value) const {
    const std::string& text = value.as_string(field(name, "dtype"));
    for (const auto& [dtype, known] : kTensorTypes) {
      if (known == text) return dtype;
    }
    reject(path_, "tensor " + name, "dtype \"{}\" is not one of I64, F32, I32, BF16, F16, U8",
           text);
  }

  std::vector<std::int64_t> parse_shape(const std::string& name, const Json& value) const {
    const std::string what = field(name, "shape");
    const Json::Array& dims = value.as_array(what);
    if (dims.size() > kMaxRank) {
      reject(path_, "tensor " + name, "shape has {} dimensions, more than {}", dims.size(),
             kMaxRank);
    }
    std::vector<std::int64_t> shape;
    for (const Json& dim : dims) shape.push_back(dim.as_int(what, 0));
    return shape;
  }

  void check_size(const TensorInfo& info) const {
    std::uint64_t bytes = size_of(info.dtype);
    bool overflow = false;
    for (const std::int64_t dim : info.shape) {
      overflow |= __builtin_mul_overflow(bytes, static_cast<std::uint64_t>(dim), &bytes);
    }
    const bool ordered = info.begin <= info.end && info.end <= data_bytes_;
    if (!ordered) {
      reject(path_, "tensor " + info.name, "data_offsets [{}, {}] do not fit into {} data bytes",
             info.begin, info.end, data_bytes_);
    }
    if (overflow || bytes != info.end - info.begin) {
      reject(path_, "tensor " + info.name, "shape [{}] does not fill data_offsets [{}, {}]",
             fmt::join(info.shape, ", "), info.begin, info.end);
    }
  }

  // The tensors must fill the data section: no gap, no overlap, nothing behind the last.
  void check_layout() {
    std::sort(tensors.begin(), tensors.end(), [](const TensorInfo& a, const TensorInfo& b) {
      return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
    });
    std::uint64_t at = 0;
    for (const TensorInfo& info : tensors) {
      if (info.begin != at) {
        reject(path_, "tensor " + info.name, "its data begins at byte {}, expected {}: {}",
               info.begin, at, info.begin < at ? "two tensors overlap" : "there is a gap");
      }
      at = info.end;
    }
    if (at != data_bytes_) {
      reject(path_, "end of file", "the data section has {} bytes, but the tensors fill {}",
             data_bytes_, at);
    }
  }

  const std::string& path_;
  std::uint64_t data_bytes_;
};

class Reader final : public SafetensorsReader {
 public:
  explicit Reader(ReadFile file) : file_(std::move(file)) {
    const std::string header = read_header(file_);
    data_begin_ = kLengthBytes + header.size();
    HeaderParser parser(file_.path(), file_.size() - data_begin_);
    parser.parse(header);
    tensors_ = std::move(parser.tensors);
    metadata_ = std::move(parser.metadata);
    for (const TensorInfo& info : tensors_) by_name_[info.name] = &info;
  }

  const std::vector<TensorInfo>& tensors() const override { return tensors_; }
  const std::map<std::string, std::string>& metadata() const override { return metadata_; }

  const TensorInfo* find(const std::string& name) const override {
    const auto it = by_name_.find(name);
    return it == by_name_.end() ? nullptr : it->second;
  }

  void read(const TensorInfo& tensor, std::uint64_t offset,
            std::span<std::byte> out) const override {
    const std::uint64_t size = tensor.end - tensor.begin;
    TANDEM_CHECK(offset <= size, "{}: tensor {}", file_.path(), tensor.name);
    TANDEM_CHECK(out.size() <= size - offset, "{}: tensor {}", file_.path(), tensor.name);
    file_.read(data_begin_ + tensor.begin + offset, out);
  }

 private:
  ReadFile file_;
  std::uint64_t data_begin_ = 0;
  std::vector<TensorInfo> tensors_;
  std::map<std::string, std::string> metadata_;
  std::unordered_map<std::string, const TensorInfo*> by_name_;
};

}  // namespace

std::unique_ptr<SafetensorsReader> read_safetensors(ReadFile file) {
  return std::make_unique<Reader>(std::move(file));
}

std::unique_ptr<SafetensorsReader> SafetensorsReader::open(const std::string& path) {
  return read_safetensors(ReadFile(path, Links::kFollow));
}

}  // namespace tandem
