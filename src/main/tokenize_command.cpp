#include <fmt/core.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <ios>
#include <iterator>

#include "commands.h"
#include "tandem/base/error.h"
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

constexpr const char* kEndings[] = {".bin", ".idx"};
constexpr const char* kUnfinished = ".tmp";  // of the prefix, while the pair is written

// A text that writing the pair would replace.
void require_no_output(const std::string& path, const std::string& prefix) {
  for (const std::string ending : kEndings) {
    std::error_code missing;
    if (std::filesystem::equivalent(path, prefix + ending, missing) ||
        std::filesystem::equivalent(path, prefix + kUnfinished + ending, missing))
      throw_error(ExitCode::kUsage, "{} would be overwritten by the pair {}; choose another PREFIX",
                  path, prefix);
  }
}

// The pair under its own names when it is whole: where it cannot be written nothing of it is left,
// and an older one stays.
void write_pair(const std::string& prefix, const std::vector<std::vector<std::int32_t>>& documents,
                int vocab) {
  const std::string unfinished = prefix + kUnfinished;
  for (const char* ending : kEndings)
    if (std::filesystem::is_directory(prefix + ending))
      throw_error(ExitCode::kBadInput, "{}{} is a folder; choose another PREFIX", prefix, ending);
  try {
    write_token_file(unfinished, documents, vocab);
    for (const char* ending : kEndings) {
      std::error_code error;
      std::filesystem::rename(unfinished + ending, prefix + ending, error);
      if (error)
        throw_error(ExitCode::kBadInput, "cannot write {}{}: {}", prefix, ending, error.message());
    }
  } catch (const Error& error) {
    std::error_code ignored;  // what is being reported matters more
    for (const char* ending : kEndings) std::filesystem::remove(unfinished + ending, ignored);
    throw_error(error.code(), "{}; check the folder and the space", error.what());
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
    require_no_output(path, args.prefix);
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
  write_pair(args.prefix, documents, kByteVocab);
  fmt::print("{}.bin and {}.idx: {} documents, {} tokens\n", args.prefix, args.prefix,
             documents.size(), tokens);
  return 0;
}

}  // namespace tandem
