#include <fmt/core.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <ios>
#include <iterator>

#include "commands.h"
#include "output_file.h"
#include "tandem/base/error.h"
#include "tandem/base/units.h"
#include "tandem/data/token_file.h"

namespace tandem {
namespace {

std::string contents(const std::string& path) {
  std::error_code missing;  // told below
  const auto status = std::filesystem::status(path, missing);
  if (std::filesystem::exists(status) && !std::filesystem::is_directory(status) &&
      !std::filesystem::is_regular_file(status))
    throw_error(ExitCode::kBadInput, "{} is not a regular file: it may never end", path);
  std::ifstream file(path, std::ios::binary);
  if (!file) throw_error(ExitCode::kBadInput, "cannot open {}: {}", path, std::strerror(errno));
  try {
    return {std::istreambuf_iterator<char>(file), {}};
  } catch (const std::ios_base::failure& error) {
    throw_error(ExitCode::kBadInput, "cannot read {}: {}", path, error.code().message());
  }
}

}  // namespace

int run_tokenize(const TokenizeArgs& args) {
  constexpr int kByteVocab = 256;
  std::vector<std::vector<std::int32_t>> documents;
  std::size_t tokens = 0;
  if (args.prefix.ends_with('/'))
    throw_error(ExitCode::kUsage, "PREFIX {} is a folder; add a name, as in {}corpus", args.prefix,
                args.prefix);
  for (const std::string& path : args.inputs) {
    for (const char* ending : {".bin", ".idx"})
      require_other_file("PREFIX", args.prefix + ending, path);
    const std::string text = contents(path);
    if (text.empty())
      throw_error(ExitCode::kBadInput,
                  "{} is empty: a document needs a byte at least; leave it out", path);
    std::vector<std::int32_t> document;
    document.reserve(text.size());
    for (const char c : text) document.push_back(static_cast<unsigned char>(c));
    tokens += document.size();
    documents.push_back(std::move(document));
  }
  write_token_file(args.prefix, documents, kByteVocab);
  fmt::print("{}.bin and {}.idx: {}, {}\n", args.prefix, args.prefix,
             counted(std::ssize(documents), "document"),
             counted(static_cast<std::int64_t>(tokens), "token"));
  return 0;
}

}  // namespace tandem
