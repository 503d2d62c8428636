#include <fmt/core.h>

#include <fstream>
#include <iterator>

#include "commands.h"
#include "tandem/base/error.h"
#include "tandem/data/token_file.h"

namespace tandem {

int run_tokenize(const TokenizeArgs& args) {
  constexpr int kByteVocab = 256;
  std::vector<std::vector<std::int32_t>> documents;
  std::size_t tokens = 0;
  for (const std::string& path : args.inputs) {
    std::ifstream file(path, std::ios::binary);
    if (!file) throw_error(ExitCode::kBadInput, "{} cannot be read", path);
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    std::vector<std::int32_t> document;
    document.reserve(text.size());
    for (const char c : text) document.push_back(static_cast<unsigned char>(c));
    tokens += document.size();
    documents.push_back(std::move(document));
  }
  write_token_file(args.prefix, documents, kByteVocab);
  fmt::print("{}.bin and {}.idx: {} documents, {} tokens\n", args.prefix, args.prefix,
             documents.size(), tokens);
  return 0;
}

}  // namespace tandem
