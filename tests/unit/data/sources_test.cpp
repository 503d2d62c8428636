// What a training run relies on: which samples it gets, in which order, again after a restart.
#include <catch2/catch.hpp>
#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include "../../../src/data/permutation.h"
#include "../base/temp_folder.h"
#include "tandem/base/error.h"
#include "tandem/data/batch_source.h"
#include "tandem/data/sample_order.h"
#include "tandem/data/token_file.h"

using namespace tandem;
using Catch::Contains;

namespace {

using Tokens = std::vector<std::int32_t>;

RunConfig base_config(DataKind kind) {
  RunConfig config;
  config.data.kind = kind;
  config.model.vocab = 256;
  config.parallel.dp = 2;
  config.train.seq_len = 8;
  config.train.steps = 5;
  config.train.global_batch = 4;
  return config;
}

// Input ids of sample `index` followed by its last label; checks that labels are the next ids.
Tokens window(BatchSource& source, std::int64_t index, int seq_len) {
  const auto n = static_cast<std::size_t>(seq_len);
  Tokens tokens(n), labels(n);
  source.sample(index, tokens, labels);
  CHECK(std::equal(tokens.begin() + 1, tokens.end(), labels.begin()));
  tokens.push_back(labels.back());
  return tokens;
}

std::string random_text(std::size_t size) {
  std::string text(size, '\0');
  std::uint32_t state = 1;
  for (char& c : text) c = static_cast<char>((state = state * 1664525U + 1013904223U) >> 24);
  return text;
}

}  // namespace

TEST_CASE("a keyed permutation visits everything once") {
  for (const std::int64_t size : {1, 2, 3, 4, 5, 15, 16, 17, 100, 1000, 4097}) {
    std::set<std::int64_t> seen;
    std::int64_t fixed = 0;
    for (std::int64_t i = 0; i < size; ++i) {
      const std::int64_t to = permuted(i, size, 7, 3);
      CHECK((to >= 0 && to < size));
      seen.insert(to);
      fixed += to == i;
    }
    CHECK(static_cast<std::int64_t>(seen.size()) == size);
    // A random permutation has one fixed point on average, whatever its size.
    CHECK(fixed <= 8);
  }
  CHECK(permuted((std::int64_t{1} << 40) + 5, (std::int64_t{1} << 40) + 6, 1, 1) >= 0);
}

TEST_CASE("text: every epoch holds each window once, in an order of its own") {
  const TempFolder scratch;
  const std::string text = random_text(1000);
  write_bytes(scratch / "a.txt", text.substr(0, 333));
  write_bytes(scratch / "b.txt", "");
  write_bytes(scratch / "c.txt", text.substr(333));
  RunConfig config = base_config(DataKind::kText);
  config.data.train = {scratch / "a.txt", scratch / "b.txt", scratch / "c.txt"};
  config.data.valid_fraction = 0.1;
  const BatchSources sources = open_data(config);
  REQUIRE(sources.train->num_tokens() == 900);
  const std::int64_t windows = 899 / 8;

  std::map<Tokens, int> expected;
  for (std::int64_t w = 0; w < windows; ++w) {
    Tokens t;
    for (std::int64_t i = 0; i <= 8; ++i) {
      t.push_back(static_cast<unsigned char>(text[static_cast<std::size_t>(w * 8 + i)]));
    }
    ++expected[t];
  }
  std::vector<Tokens> epochs[3];
  for (std::int64_t e = 0; e < 3; ++e) {
    std::map<Tokens, int> seen;
    for (std::int64_t i = 0; i < windows; ++i) {
      epochs[e].push_back(window(*sources.train, e * windows + i, 8));
      ++seen[epochs[e].back()];
    }
    CHECK(seen == expected);
  }
  CHECK(epochs[0] != epochs[1]);
  CHECK(epochs[1] != epochs[2]);

  // A second run, started in the middle, sees the same samples; another seed does not.
  const BatchSources again = open_data(config);
  CHECK(window(*again.train, windows + 50, 8) == epochs[1][50]);
  config.train.seed += 1;
  const BatchSources other = open_data(config);
  int equal = 0;
  for (std::int64_t i = 0; i < windows; ++i) {
    equal += window(*other.train, i, 8) == epochs[0][static_cast<std::size_t>(i)];
  }
  CHECK(equal <= 8);
}

TEST_CASE("text: held-out samples are the end of the text, in order, and repeat") {
  const TempFolder scratch;
  std::string text(200, 'a');
  std::iota(text.begin() + 160, text.end(), 'A');  // the last fifth, apart from all the rest
  write_bytes(scratch / "t", text);
  RunConfig config = base_config(DataKind::kText);
  config.data.train = {scratch / "t"};
  config.data.valid_fraction = 0.2;
  const BatchSources sources = open_data(config);
  for (std::int64_t i = 0; i < 40; ++i) {
    CHECK(window(*sources.train, i, 8) == Tokens(9, 'a'));
  }
  REQUIRE(sources.valid != nullptr);
  for (std::int64_t i = 0; i < 8; ++i) {  // (40 - 1) / 8 = 4 windows
    Tokens expected(9);
    std::iota(expected.begin(), expected.end(), static_cast<std::int32_t>('A' + i % 4 * 8));
    CHECK(window(*sources.valid, i, 8) == expected);
  }

  write_bytes(scratch / "v", std::string(9, 'v'));
  config.data.valid = {scratch / "v"};
  const BatchSources apart = open_data(config);
  CHECK(apart.train->num_tokens() == 200);
  CHECK(window(*apart.valid, 3, 8) == Tokens(9, 'v'));
}

TEST_CASE("text: what cannot work is refused with the way out") {
  const TempFolder scratch;
  RunConfig config = base_config(DataKind::kText);
  CHECK_THROWS_WITH(open_data(config), Contains("data.train"));
  config.data.train = {scratch / "none"};
  CHECK_THROWS_WITH(open_data(config), Contains("none") && Contains("No such file"));
  config.data.train = {scratch / ""};
  CHECK_THROWS_WITH(open_data(config), Contains("is a folder; name files, as in [\"a\",\"b\"]"));
  config.data.train = {(scratch / "a") + "," + (scratch / "b")};
  CHECK_THROWS_WITH(open_data(config),
                    Contains("No such file") && Contains("give a list, as in [\"a\",\"b\"]"));

  config.data.train = {scratch / "t"};
  config.data.valid_fraction = 0.0;
  write_bytes(scratch / "t", "12345678");
  CHECK_THROWS_WITH(open_data(config), Contains("8 bytes for training") && Contains("needs 9"));
  write_bytes(scratch / "t", "123456789");
  CHECK(open_data(config).valid == nullptr);
  CHECK(window(*open_data(config).train, 77, 8).back() == '9');

  write_bytes(scratch / "t", random_text(100));
  config.data.valid_fraction = 0.05;  // 5 bytes: too few for one sample
  CHECK(open_data(config).valid == nullptr);
  config.train.eval_every = 1;
  CHECK_THROWS_WITH(open_data(config), Contains("validation") && Contains("valid_fraction"));
  write_bytes(scratch / "empty", "");
  config.data.valid = {scratch / "empty"};
  CHECK_THROWS_WITH(open_data(config), Contains("empty: 0 bytes for validation") &&
                                           Contains("data.valid,") && !Contains("valid_fraction"));
  config.data.valid.clear();
  config.model.vocab = 255;
  CHECK_THROWS_WITH(open_data(config), Contains("model.vocab is 255"));

  config.model.vocab = 256;
  config.train.eval_every = 0;
  const BatchSources open = open_data(config);
  std::filesystem::resize_file(scratch / "t", 20);
  CHECK_THROWS_WITH(
      [&] {
        for (std::int64_t i = 0; i < 11; ++i) window(*open.train, i, 8);
      }(),
      Contains("ends at byte 20"));
}

TEST_CASE("megatron: samples follow the sample order through the documents") {
  const TempFolder scratch;
  std::vector<Tokens> documents(20);
  std::int32_t next = 0;
  for (std::size_t d = 0; d < documents.size(); ++d) {
    documents[d].resize(d * 7 % 13);
    std::iota(documents[d].begin(), documents[d].end(), next);
    next += static_cast<std::int32_t>(documents[d].size());
  }
  write_token_file(scratch / "t", documents, 256);
  RunConfig config = base_config(DataKind::kMegatron);
  config.data.train = {scratch / "t"};
  config.data.split = std::string("8,2");
  config.train.eval_every = 2;
  config.train.eval_batches = 1;
  const BatchSources sources = open_data(config);

  const auto file = TokenFile::open(scratch / "t");
  const SampleOrder order = make_sample_order(
      file->lengths(), {.begin = 0, .end = 16, .seq_len = 8, .num_samples = 20, .seed = 1234});
  Tokens stream;  // the shuffled documents back to back: sample i is its i-th window
  for (const std::int32_t d : order.document_index) {
    const Tokens& document = documents[static_cast<std::size_t>(d)];
    stream.insert(stream.end(), document.begin(), document.end());
  }
  REQUIRE(order.num_epochs > 1);
  for (std::int64_t k = 0; k < 20; ++k) {
    const auto begin = stream.begin() + order.shuffle_index[static_cast<std::size_t>(k)] * 8;
    CHECK(window(*sources.train, k, 8) == Tokens(begin, begin + 9));
  }
  const std::int32_t first_held_out = documents[16].front();
  for (std::int64_t k = 0; k < 6; ++k) {
    for (const std::int32_t token : window(*sources.valid, k, 8)) CHECK(token >= first_held_out);
  }
}

TEST_CASE(
    "megatron: held-out samples are those of one evaluation, whatever the length of the run") {
  const TempFolder scratch;
  std::vector<Tokens> documents;
  for (std::int32_t d = 0; d < 20; ++d) {
    documents.emplace_back(12);
    std::iota(documents.back().begin(), documents.back().end(), 12 * d);
  }
  write_token_file(scratch / "t", documents, 256);
  RunConfig config = base_config(DataKind::kMegatron);
  config.data.train = {scratch / "t"};
  config.data.split = "10,10,0";
  config.train.eval_every = 1;
  config.train.eval_batches = 5;
  const BatchSources short_run = open_data(config);
  config.train.steps = 1000;
  const BatchSources long_run = open_data(config);
  std::set<Tokens> distinct;
  for (std::int64_t k = 0; k < 10; ++k) {  // 5 micro-batches of one sample on two ranks
    distinct.insert(window(*short_run.valid, k, 8));
    CHECK(window(*long_run.valid, k, 8) == window(*short_run.valid, k, 8));
  }
  CHECK(distinct.size() == 10);  // of the 14 that 120 tokens hold

  // Less than a sample is no held-out data.
  config.data.split = "20,0,0";
  CHECK_THROWS_WITH(open_data(config), Contains("of 20 documents data.split=20,0,0 leaves 0") &&
                                           Contains("data.split=19,1,0"));
  config.train.eval_every = 0;
  CHECK(open_data(config).valid == nullptr);
  config.train.eval_every = 1;
  config.train.seq_len = 12;
  config.data.split = "19,1,0";
  CHECK_THROWS_WITH(open_data(config), Contains("12 tokens for validation") &&
                                           Contains("one sample needs 13") &&
                                           Contains("data.valid"));
  config.train.eval_every = 0;
  CHECK(open_data(config).valid == nullptr);
}

TEST_CASE("megatron: several prefixes take turns, each in its own order") {
  const TempFolder scratch;
  RunConfig config = base_config(DataKind::kMegatron);
  config.data.split = std::string("1");
  std::vector<BatchSources> alone;
  for (std::int32_t f = 0; f < 3; ++f) {
    Tokens document(80);
    std::iota(document.begin(), document.end(), 80 * f);
    write_token_file(scratch / std::to_string(f), {document}, 256);
    config.data.train = {scratch / std::to_string(f)};
    config.train.steps = 2;  // 8 samples: a third of 20, rounded up, and one to spare
    alone.push_back(open_data(config));
  }
  config.data.train = {scratch / "0", scratch / "1", scratch / "2"};
  config.train.steps = 5;
  const BatchSources sources = open_data(config);
  CHECK(sources.valid == nullptr);
  CHECK(sources.train->num_tokens() == 240);
  for (std::int64_t k = 0; k < 20; ++k) {
    BatchSource& own = *alone[static_cast<std::size_t>(k % 3)].train;
    CHECK(window(*sources.train, k, 8) == window(own, k / 3, 8));
  }
}

TEST_CASE("megatron: bad tokens and settings are named") {
  const TempFolder scratch;
  write_token_file(scratch / "t", {{1, 2, 3, 4, 5, 6, 7, 300, 9, 10}}, 512);
  RunConfig config = base_config(DataKind::kMegatron);
  config.data.train = {scratch / "t"};
  config.data.split = std::string("1");
  const BatchSources sources = open_data(config);
  CHECK_THROWS_WITH(window(*sources.train, 0, 8),
                    Contains("t.bin byte 14") && Contains("token 300 is outside [0, 256)"));
  config.data.valid = {scratch / "t"};
  config.train.seq_len = 10;
  CHECK_THROWS_WITH(open_data(config), Contains("give more data in data.valid") &&
                                           !Contains("data.split") && !Contains("give data.valid"));
  config.data.valid.clear();
  config.data.train = {scratch / "t.bin"};
  CHECK_THROWS_WITH(open_data(config),
                    Contains("t.bin.bin: a pair of files is named by its prefix") &&
                        Contains("give " + (scratch / "t")));
  config.data.train = {scratch / "t"};
  config.train.seq_len = 8;
  config.data.split = std::string("0,1");
  CHECK_THROWS_WITH(open_data(config), Contains("leaves no sequence for training"));
  config.train.seed = std::uint64_t{1} << 32;
  CHECK_THROWS_WITH(open_data(config), Contains("train.seed"));
  config.data.train.clear();
  CHECK_THROWS_WITH(open_data(config), Contains("data.train"));
}

TEST_CASE("megatron: the orders of all sets must fit into the memory there is") {
  const TempFolder scratch;
  write_token_file(scratch / "a", {Tokens(80, 1)}, 256);
  write_token_file(scratch / "b", {Tokens(80, 2)}, 256);
  RunConfig config = base_config(DataKind::kMegatron);
  config.data.train = {scratch / "a", scratch / "b"};
  config.data.split = std::string("1");
  config.train.steps = 4;  // 8 samples of each, and one to spare: one epoch of 9
  const double both = 2 * (9 * 12 + 4);
  CHECK(open_data(config, both).train != nullptr);
  CHECK(open_data(config, 0.0).train != nullptr);  // not known
  CHECK_THROWS_WITH(open_data(config, both - 1),
                    Contains((scratch / "b") + ": out of host memory for the order of 9 samples") &&
                        Contains("fewer ranks a host"));
  config.data.train = {scratch / "a"};
  config.train.steps = 2;
  config.train.eval_batches = 4;
  config.data.valid = {scratch / "b"};
  CHECK(open_data(config, both).valid != nullptr);
  CHECK_THROWS_WITH(open_data(config, both - 1), Contains((scratch / "b") + ": out of"));
  try {
    static_cast<void>(open_data(config, 1.0));
    FAIL("an order in one byte");
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::kMemory);
  }
}

TEST_CASE("synthetic: reproducible, in range, and learnable") {
  RunConfig config = base_config(DataKind::kSynthetic);
  config.model.vocab = 50;
  config.train.seq_len = 64;
  const BatchSources a = open_data(config), b = open_data(config);
  CHECK(window(*a.train, 12345, 64) == window(*b.train, 12345, 64));
  CHECK(window(*a.train, 1, 64) != window(*a.train, 2, 64));
  CHECK(window(*a.train, 1, 64) != window(*a.valid, 1, 64));

  // Successor counts of training samples predict held-out samples far better than chance.
  std::vector<std::vector<double>> counts(50, std::vector<double>(50, 0.1));
  for (std::int64_t i = 0; i < 400; ++i) {
    const Tokens t = window(*a.train, i, 64);
    for (std::size_t k = 0; k < 64; ++k) {
      REQUIRE((t[k] >= 0 && t[k] < 50));
      counts[static_cast<std::size_t>(t[k])][static_cast<std::size_t>(t[k + 1])] += 1;
    }
  }
  double nats = 0;
  for (std::int64_t i = 0; i < 50; ++i) {
    const Tokens t = window(*a.valid, i, 64);
    for (std::size_t k = 0; k < 64; ++k) {
      const auto& row = counts[static_cast<std::size_t>(t[k])];
      nats -= std::log(row[static_cast<std::size_t>(t[k + 1])] /
                       std::accumulate(row.begin(), row.end(), 0.0));
    }
  }
  CHECK(nats / (50 * 64) < 0.5 * std::log(50.0));
}

TEST_CASE("a step's samples are dealt to micro-batches and ranks without gap or overlap") {
  RunConfig config = base_config(DataKind::kSynthetic);
  config.parallel.dp = 3;
  config.train.micro_batch = 2;
  config.train.global_batch = 24;
  std::set<std::int64_t> seen;
  for (int m = 0; m < 4; ++m) {
    for (int d = 0; d < 3; ++d) {
      const std::int64_t first = first_sample(config, 5, m, d);
      seen.insert({first, first + 1});
    }
  }
  CHECK(seen.size() == 24);
  CHECK(*seen.begin() == 5 * 24);
  CHECK(*seen.rbegin() == 6 * 24 - 1);
  CHECK(first_sample(config, 0, 1, 2) == 10);
}
