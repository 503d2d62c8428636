#include <algorithm>
#include <set>

#include "safetensors_types.h"
#include "tandem/base/error.h"
#include "tandem/base/json_writer.h"

namespace tandem {
namespace {

std::size_t place_of(DType dtype) {
  const auto* it = std::find_if(kTensorTypes.begin(), kTensorTypes.end(),
                                [&](const auto& entry) { return entry.first == dtype; });
  return static_cast<std::size_t>(it - kTensorTypes.begin());
}

// Widest elements first, so that every tensor is aligned to its element; then by name.
std::vector<const TensorToWrite*> in_file_order(const std::vector<TensorToWrite>& tensors) {
  std::vector<const TensorToWrite*> order;
  for (const TensorToWrite& tensor : tensors) order.push_back(&tensor);
  std::sort(order.begin(), order.end(), [](const TensorToWrite* a, const TensorToWrite* b) {
    return std::pair(place_of(a->dtype), std::string_view(a->name)) <
           std::pair(place_of(b->dtype), std::string_view(b->name));
  });
  return order;
}

void check_tensors(const std::string& path, const std::vector<TensorToWrite>& tensors) {
  std::set<std::string_view> names = {kMetadataKey};
  for (const TensorToWrite& tensor : tensors) {
    TANDEM_CHECK(names.insert(tensor.name).second, "{}: tensor {} is given twice", path,
                 tensor.name);
    std::uint64_t bytes = size_of(tensor.dtype);
    for (const std::int64_t dim : tensor.shape) bytes *= static_cast<std::uint64_t>(dim);
    TANDEM_CHECK(tensor.data.size() == bytes, "{}: bytes of tensor {}", path, tensor.name);
  }
}

std::string make_header(const std::vector<const TensorToWrite*>& tensors,
                        std::map<std::string, std::string> metadata) {
  metadata.emplace("format", "pt");  // readers look for it and some fail without
  JsonWriter json;
  json.begin_object().key(kMetadataKey).begin_object();
  for (const auto& [key, value] : metadata) json.key(key).value(value);
  json.end_object();
  std::uint64_t at = 0;
  for (const TensorToWrite* tensor : tensors) {
    json.key(tensor->name).begin_object();
    json.key("dtype").value(kTensorTypes[place_of(tensor->dtype)].second);
    json.key("shape").begin_array();
    for (const std::int64_t dim : tensor->shape) json.value(dim);
    json.end_array().key("data_offsets").begin_array();
    json.value(at).value(at + tensor->data.size()).end_array().end_object();
    at += tensor->data.size();
  }
  std::string text = json.end_object().str();
  text.resize((text.size() + 7) / 8 * 8, ' ');  // the data begins 8-aligned
  return text;
}

}  // namespace

std::uint32_t write_safetensors(const std::string& path, const std::vector<TensorToWrite>& tensors,
                                const std::map<std::string, std::string>& metadata) {
  check_tensors(path, tensors);
  const auto order = in_file_order(tensors);
  const std::string header = make_header(order, metadata);
  const std::uint64_t length = header.size();
  if (length > kMaxHeaderBytes) {
    throw_error(ExitCode::kBadInput,
                "{}: a header of {} bytes for {} tensors, at most {} can be read", path, length,
                tensors.size(), kMaxHeaderBytes);
  }
  WriteFile file(path);
  file.write(std::as_bytes(std::span(&length, 1)));
  file.write(header);
  for (const TensorToWrite* tensor : order) file.write(tensor->data);
  file.sync();
  return file.crc32c();
}

}  // namespace tandem
