// Sample order against the golden vectors, and .bin/.idx pairs against every way they can lie.
#include <catch2/catch.hpp>
#include <cstring>
#include <limits>
#include <numeric>

#include "../base/temp_folder.h"
#include "tandem/base/error.h"
#include "tandem/base/json.h"
#include "tandem/data/sample_order.h"
#include "tandem/data/token_file.h"

using namespace tandem;
using Catch::Contains;

namespace {

std::vector<std::int64_t> integers(const Json& json, const char* key) {
  std::vector<std::int64_t> values;
  for (const Json& item : json.at(key, "case").as_array(key)) values.push_back(item.as_int(key));
  return values;
}

// A pair of three documents (3, 1 and 2 tokens), one byte of which a test then changes.
class Pair {
 public:
  Pair() {
    write_token_file(prefix(), {{5, 6, 7}, {8}, {9, 10}}, 256);
    idx = read_bytes(prefix() + ".idx");
  }
  [[nodiscard]] std::string prefix() const { return scratch_ / "pair"; }

  template <class T>
  void put(std::size_t offset, T value) {
    std::memcpy(idx.data() + offset, &value, sizeof value);
  }
  std::unique_ptr<TokenFile> open() const {
    write_bytes(prefix() + ".idx", idx);
    return TokenFile::open(prefix());
  }
  // The message of the Error(kBadInput) that opening must throw.
  std::string refusal() const {
    try {
      open();
    } catch (const Error& error) {
      CHECK(error.code() == ExitCode::kBadInput);
      return error.what();
    }
    return "accepted";
  }

  std::string idx;

 private:
  TempFolder scratch_;
};

std::vector<std::int32_t> all_tokens(const TokenFile& file, std::int64_t sequence) {
  std::vector<std::int32_t> out(
      static_cast<std::size_t>(file.lengths()[static_cast<std::size_t>(sequence)]));
  file.read(sequence, 0, out);
  return out;
}

constexpr std::size_t kVersion = 9, kType = 17, kSequences = 18, kBoundaries = 26, kLengths = 34,
                      kPointers = kLengths + 3 * 4, kDocuments = kPointers + 3 * 8;

}  // namespace

TEST_CASE("sample order equals the golden vectors") {
  const std::string path = std::string(TANDEM_SOURCE_DIR) + "/tests/golden/gptdataset.json";
  const Json cases = parse_json(read_bytes(path), path);
  REQUIRE(cases.as_array("cases").size() == 5);
  for (const Json& c : cases.as_array("cases")) {
    INFO(c.at("name", "case").as_string("name"));
    const auto sizes = integers(c, "sizes");
    const std::vector<std::int32_t> lengths(sizes.begin(), sizes.end());
    SampleOrderOptions options;
    options.begin = c.at("split_begin", "case").as_int("split_begin");
    options.end = c.at("split_end", "case").as_int("split_end");
    options.seq_len = c.at("seq_len", "case").as_int("seq_len");
    options.seed = static_cast<std::uint32_t>(c.at("seed", "case").as_int("seed"));
    const Json& samples = c.at("num_samples", "case");
    if (!samples.is_null()) options.num_samples = samples.as_int("num_samples");

    const SampleOrder order = make_sample_order(lengths, options);
    CHECK(order.num_epochs == c.at("num_epochs", "case").as_int("num_epochs"));
    CHECK(order.separate_final_epoch ==
          c.at("separate_final_epoch", "case").as_bool("separate_final_epoch"));
    const auto documents = integers(c, "document_index");
    CHECK(std::equal(order.document_index.begin(), order.document_index.end(), documents.begin(),
                     documents.end()));
    const auto shuffled = integers(c, "shuffle_index");
    CHECK(std::equal(order.shuffle_index.begin(), order.shuffle_index.end(), shuffled.begin(),
                     shuffled.end()));
    std::vector<std::pair<std::int32_t, std::int32_t>> positions;
    for (const Json& pair : c.at("sample_index", "case").as_array("sample_index")) {
      const auto& p = pair.as_array("pair");
      positions.emplace_back(p.at(0).as_int("position"), p.at(1).as_int("offset"));
    }
    CHECK(order.sample_index == positions);
    const SampleOrderSize size = sample_order_size(lengths, options);
    CHECK(size.epochs == order.num_epochs);
    CHECK(size.samples == static_cast<std::int64_t>(order.shuffle_index.size()));
    CHECK(size.bytes == 12 * size.samples + 4 * static_cast<std::int64_t>(documents.size()));
  }
}

TEST_CASE("sample order refuses what it cannot hold") {
  const std::vector<std::int32_t> lengths = {0, 0, 1};
  SampleOrderOptions options{.begin = 0, .end = 2, .seq_len = 8, .num_samples = 1};
  CHECK_THROWS_WITH(make_sample_order(lengths, options), Contains("one sample needs 9"));
  options.end = 3;
  options.num_samples = std::int64_t{1} << 40;
  CHECK_THROWS_WITH(make_sample_order(lengths, options), Contains("epochs"));
  options.num_samples = std::int64_t{1} << 61;
  CHECK_THROWS_WITH(make_sample_order(lengths, options), Contains("64-bit"));
  // One sequence of 2^31 - 1 tokens in samples of one token: two epochs are the most that 32 bits
  // count.
  const std::vector<std::int32_t> long_one = {std::numeric_limits<std::int32_t>::max()};
  options = {.begin = 0, .end = 1, .seq_len = 1, .num_samples = std::int64_t{4294967293}};
  const SampleOrderSize most = sample_order_size(long_one, options);
  CHECK(most.samples == 4294967293);
  CHECK(most.bytes == 12 * 4294967293 + 2 * 4);
  *options.num_samples += 1;
  CHECK_THROWS_WITH(make_sample_order(long_one, options), Contains("2^32 - 1"));
}

TEST_CASE("splits round half to even and cover everything") {
  using Ranges = std::vector<std::pair<std::int64_t, std::int64_t>>;
  CHECK(split_ranges("969,30,1", 1000) == Ranges{{0, 969}, {969, 999}, {999, 1000}});
  CHECK(split_ranges("1,1", 5) == Ranges{{0, 2}, {2, 5}, {5, 5}});  // 2.5 rounds to 2
  CHECK(split_ranges("1,1", 7) == Ranges{{0, 4}, {4, 7}, {7, 7}});  // 3.5 rounds to 4
  CHECK(split_ranges(" 9 ,\t1 , 0", 10) == Ranges{{0, 9}, {9, 10}, {10, 10}});
  CHECK(split_ranges("1", 3) == Ranges{{0, 3}, {3, 3}, {3, 3}});
  for (const char* bad :
       {"", ",", "1,", "1,2,3,4", "-1,2", "nan", "0,0,0", "1;2", "inf,1", "1 2"}) {
    INFO(bad);
    CHECK_THROWS_WITH(split_ranges(bad, 10), Contains("data.split"));
  }
}

TEST_CASE("a token file reads back what was written") {
  for (const int vocab : {256, 65499, 65500, 200000}) {
    const TempFolder scratch;
    const std::vector<std::vector<std::int32_t>> documents = {{0, vocab - 1, 3}, {}, {7}};
    write_token_file(scratch / "t", documents, vocab);
    CHECK(read_bytes(scratch / "t.bin").size() == 4 * (vocab < 65500 ? 2U : 4U));
    const auto file = TokenFile::open(scratch / "t");
    REQUIRE(file->num_sequences() == 3);
    for (std::int64_t d = 0; d < 3; ++d) {
      CHECK(all_tokens(*file, d) == documents[static_cast<std::size_t>(d)]);
    }
    std::vector<std::int32_t> middle(1);
    file->read(0, 1, middle);
    CHECK(middle[0] == vocab - 1);
    CHECK_THROWS_AS(file->read(0, 3, middle), Error);
    CHECK_THROWS_WITH(write_token_file(scratch / "t", {{vocab}}, vocab), Contains("outside"));
  }
}

TEST_CASE("narrow and wide token types are read, floating point is not") {
  Pair pair;
  pair.put<std::uint64_t>(kPointers + 8, 3);  // pointers of one-byte tokens
  pair.put<std::uint64_t>(kPointers + 16, 4);
  pair.put<std::uint8_t>(kType, 1);
  write_bytes(pair.prefix() + ".bin", {5, 6, 7, -56, 9, 10});
  CHECK(all_tokens(*pair.open(), 1) == std::vector<std::int32_t>{200});
  pair.put<std::uint8_t>(kType, 2);
  CHECK(all_tokens(*pair.open(), 1) == std::vector<std::int32_t>{-56});
  for (const std::uint8_t code : {0, 6, 7, 9, 255}) {
    pair.put(kType, code);
    CHECK_THAT(pair.refusal(), Contains("byte 17") && Contains("expected an integer type"));
  }
}

TEST_CASE("64-bit tokens that do not fit are named") {
  Pair pair;
  for (const std::size_t i : {0U, 1U, 2U}) pair.put<std::uint64_t>(kPointers + 8 * i, 0);
  pair.put<std::uint8_t>(kType, 5);
  std::string tokens(24, '\0');
  tokens[8 + 4] = 1;  // token 1 is 2^32
  write_bytes(pair.prefix() + ".bin", tokens);
  CHECK_THROWS_WITH(all_tokens(*pair.open(), 0),
                    Contains("pair.bin byte 8") && Contains("4294967296"));
}

TEST_CASE("every broken rule of an index is named with its place") {
  Pair pair;
  std::vector<const char*> expected;
  const std::int64_t big = std::int64_t{1} << 62;
  SECTION("magic") {
    pair.idx[3] = 'X', expected = {"byte 0 (magic)"};
  }
  SECTION("version") {
    pair.put(kVersion, std::uint64_t{2}), expected = {"byte 9", "found 2, expected 1"};
  }
  SECTION("too many sequences") {
    pair.put(kSequences, std::uint64_t{4}), expected = {"end of file"};
  }
  SECTION("sequences that wrap") {
    pair.put(kSequences, ~std::uint64_t{0} / 12 + 1), expected = {"byte 18"};
  }
  SECTION("no sequences") {
    pair.put(kSequences, std::uint64_t{0}), expected = {"byte 18"};
  }
  SECTION("no boundaries") {
    pair.put(kBoundaries, std::uint64_t{0}), expected = {"byte 26"};
  }
  SECTION("boundaries that wrap") {
    pair.put(kBoundaries, std::uint64_t{1} << 61), expected = {"byte 26"};
  }
  SECTION("trailing byte") {
    pair.idx += 'x', expected = {"end of file", "103 bytes", "expected 102"};
  }
  SECTION("short header") {
    pair.idx.resize(33), expected = {"33 bytes", "at least 34"};
  }
  SECTION("empty") {
    pair.idx.clear(), expected = {"0 bytes"};
  }
  SECTION("negative length") {
    pair.put(kLengths + 4, -1), expected = {"byte 38", "-1 tokens"};
  }
  SECTION("length past .bin") {
    pair.put(kLengths + 8, 3), expected = {"byte 62", "sequence 2", "only 12 bytes"};
  }
  SECTION("pointer past .bin") {
    pair.put(kPointers, std::int64_t{14}), expected = {"byte 46", "from byte 14"};
  }
  SECTION("huge pointer") {
    pair.put(kPointers, big), expected = {"byte 46"};
  }
  SECTION("negative pointer") {
    pair.put(kPointers, std::int64_t{-2}), expected = {"byte 46", "byte -2"};
  }
  SECTION("odd pointer") {
    pair.put(kPointers, std::int64_t{1}), expected = {"byte 46", "multiple of 2"};
  }
  SECTION("first boundary") {
    pair.put(kDocuments, std::int64_t{1}), expected = {"byte 70", "expected 0"};
  }
  SECTION("falling boundary") {
    pair.put(kDocuments + 16, std::int64_t{0}), expected = {"byte 86", "at least 1"};
  }
  SECTION("last boundary") {
    pair.put(kDocuments + 24, std::int64_t{4}), expected = {"byte 94", "sequence count 3"};
  }
  REQUIRE(!expected.empty());
  const std::string message = pair.refusal();
  CHECK_THAT(message, Contains("pair.idx"));
  for (const char* part : expected) CHECK_THAT(message, Contains(part));
}

TEST_CASE("every single-byte change of an index is refused or yields a readable view") {
  Pair pair;
  const std::string original = pair.idx;
  int refused = 0, readable = 0;
  for (std::size_t at = 0; at < original.size(); ++at) {
    for (int flip = 1; flip < 256; ++flip) {
      pair.idx = original;
      pair.idx[at] = static_cast<char>(pair.idx[at] ^ flip);
      try {
        const auto file = pair.open();
        for (std::int64_t s = 0; s < file->num_sequences(); ++s) all_tokens(*file, s);
        ++readable;
      } catch (const Error& error) {
        CHECK(error.code() == ExitCode::kBadInput);
        ++refused;
      }
    }
  }
  CHECK(refused > 250 * static_cast<int>(kLengths - 2));
  CHECK(readable > 0);  // shorter sequences, other pointers inside .bin
}

TEST_CASE("an index with modes, missing files and folders") {
  Pair pair;
  const std::string original = pair.idx;
  pair.idx += std::string(3, '\0');
  CHECK(pair.open()->num_sequences() == 3);
  pair.idx = original;
  pair.open();
  std::filesystem::resize_file(pair.prefix() + ".bin", 10);
  CHECK_THAT(pair.refusal(), Contains("only 10 bytes"));
  std::filesystem::remove(pair.prefix() + ".bin");
  CHECK_THAT(pair.refusal(), Contains("pair.bin") && Contains("No such file"));
  std::filesystem::create_directory(pair.prefix() + ".bin");
  CHECK_THAT(pair.refusal(), Contains("pair.bin is a folder"));
}
