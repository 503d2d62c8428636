#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "disk.h"
#include "folders.h"
#include "manifest.h"
#include "tandem/base/error.h"
#include "tandem/base/json.h"
#include "tandem/base/json_writer.h"
#include "tandem/ckpt/checkpoint.h"
#include "tandem/ckpt/safetensors.h"
#include "tandem/comm/shared_error.h"

namespace tandem {
namespace {

constexpr int kMinKept = 2;

// Runs `work` on every rank and returns every rank's result. If it failed anywhere, throws the same
// on all ranks, so that none waits for one that has given up.
template <class Work>
std::vector<std::string> together(const CheckpointPeers& peers, const Work& work) {
  std::string mine;
  try {
    mine = "+" + work();
  } catch (const std::exception& error) {
    mine = "-" + std::string(error.what());
  }
  std::vector<std::string> all = peers.gather(mine);
  TANDEM_CHECK(static_cast<int>(all.size()) == peers.size, "ranks that report on a checkpoint");
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].front() == '-') {
      throw_shared(ExitCode::kBadInput, "saving a checkpoint failed on rank {}: {}", rank,
                   all[rank].substr(1));
    }
    all[rank].erase(0, 1);
  }
  return all;
}

class Save {
 public:
  Save(const std::string& dir, const CheckpointInfo& info, const CheckpointPeers& peers,
       const SaveHook& hook)
      : dir_(dir),
        writing_(dir + "/" + writing_name(info.step)),
        final_(checkpoint_path(dir, info.step)),
        replaced_(dir + "/" + replaced_name(info.step)),
        info_(info),
        peers_(peers),
        hook_(hook) {}

  void run(const std::vector<StatePiece>& pieces, int keep) {
    try {
      together(peers_, [&] { return prepare(); });
      const auto reports = together(peers_, [&] { return write_shard(pieces); });
      together(peers_, [&] { return finish(reports, keep); });
    } catch (...) {
      clean_after_failure();
      throw;
    }
  }

 private:
  [[nodiscard]] bool leads() const { return peers_.rank == 0; }

  void reached(const char* stage) const {
    if (hook_) hook_(stage);
  }

  // Gives a full disk its space back. Best effort: the next save cleans up as well.
  void clean_after_failure() const noexcept {
    try {
      if (leads()) clean_folders(dir_);
    } catch (const std::exception&) {
      // The failure that is being reported matters more.
    }
  }

  std::string prepare() const {
    if (leads()) {
      make_folders(dir_);
      clean_folders(dir_);
      make_folders(writing_);
    }
    reached("folder prepared");
    return {};
  }

  // Writes this rank's shard and returns its report: file name, size, checksum and pieces.
  [[nodiscard]] std::string write_shard(const std::vector<StatePiece>& pieces) const {
    std::vector<TensorToWrite> tensors;
    JsonWriter report;
    report.begin_object().key("pieces").begin_array();
    for (const StatePiece& piece : pieces) {
      TANDEM_CHECK(piece.m.size() == piece.master.size(), "state of {}", piece.name);
      TANDEM_CHECK(piece.v.size() == piece.master.size(), "state of {}", piece.name);
      if (piece.master.empty()) continue;
      const auto count = static_cast<std::int64_t>(piece.master.size());
      const auto add = [&](const char* part, std::span<const float> values) {
        tensors.push_back({state_name(piece.name, piece.begin, part),
                           DType::kF32,
                           {count},
                           std::as_bytes(values)});
      };
      add("master", piece.master);
      add("m", piece.m);
      add("v", piece.v);
      report.begin_array().value(piece.name).value(piece.global_size);
      report.value(piece.begin).value(count).end_array();
    }
    const std::string name = fmt::format("rank-{:05}.safetensors", peers_.rank);
    const std::string path = writing_ + "/" + name;
    const std::uint32_t crc =
        write_safetensors(path, tensors, {{"step", std::to_string(info_.step)}});
    report.end_array().key("name").value(name);
    report.key("bytes").value(ReadFile(path, Links::kRefuse).size());
    report.key("crc32c").value(crc).end_object();
    reached("shard written");
    return report.str();
  }

  std::string finish(const std::vector<std::string>& reports, int keep) const {
    if (!leads()) return {};
    WriteFile file(writing_ + "/" + kManifestName);
    file.write(to_text(make_manifest(reports)));
    file.sync();
    sync_folder(writing_);
    reached("manifest written");
    put_in_place();
    reached("renamed");
    remove_old(keep);
    reached("old ones removed");
    return {};
  }

  [[nodiscard]] Manifest make_manifest(const std::vector<std::string>& reports) const {
    Manifest manifest;
    manifest.info = info_;
    for (const std::string& text : reports) {
      const Json report =
          parse_json(text, "a rank's report", ExitCode::kInternal, {.bytes = std::size_t{1} << 30});
      const auto crc = report.at("crc32c", "report").as_uint("crc32c");
      manifest.files.push_back({report.at("name", "report").as_string("name"),
                                report.at("bytes", "report").as_uint("bytes"),
                                static_cast<std::uint32_t>(crc)});
      for (const Json& entry : report.at("pieces", "report").as_array("pieces")) {
        const Json::Array& fields = entry.as_array("piece");
        const std::string& name = fields.at(0).as_string("name");
        const std::int64_t size = fields.at(1).as_int("size");
        TensorEntry& tensor = manifest.tensors[name];
        TANDEM_CHECK((tensor.pieces.empty() || tensor.size == size),
                     "ranks disagree on the size of tensor {}", name);
        tensor.size = size;
        tensor.pieces.push_back({manifest.files.size() - 1, fields.at(2).as_int("begin"),
                                 fields.at(3).as_int("count")});
      }
    }
    order_pieces(manifest, "the ranks' pieces");
    return manifest;
  }

  void put_in_place() const {
    if (exists(final_)) {
      move_folder(final_, replaced_);
      reached("old one set aside");
    }
    move_folder(writing_, final_);
    sync_folder(dir_);
  }

  void remove_old(int keep) const {
    remove_folder(replaced_);
    int kept = 0;
    for (const StepFolder& folder : list_steps(dir_)) {
      if (!is_complete(folder.path)) continue;  // damaged: left for a person to look at
      if (++kept <= std::max(keep, kMinKept) || folder.step == info_.step) continue;
      // A removal that is interrupted must not leave half a checkpoint under its name.
      const std::string doomed = dir_ + "/" + writing_name(folder.step);
      move_folder(folder.path, doomed);
      remove_folder(doomed);
    }
    sync_folder(dir_);
  }

  static bool is_complete(const std::string& path) {
    try {
      check_files(path, read_manifest(path), false);
      return true;
    } catch (const Error&) {
      return false;
    }
  }

  const std::string& dir_;
  const std::string writing_, final_, replaced_;
  const CheckpointInfo& info_;
  const CheckpointPeers& peers_;
  const SaveHook& hook_;
};

}  // namespace

std::string checkpoint_path(const std::string& dir, std::int64_t step) {
  return dir + "/" + step_name(step);
}

void save_checkpoint(const std::string& dir, const CheckpointInfo& info,
                     const std::vector<StatePiece>& pieces, int keep, const CheckpointPeers& peers,
                     const SaveHook& hook) {
  TANDEM_CHECK(info.step >= 0, "the step of a checkpoint");
  Save(dir, info, peers, hook).run(pieces, keep);
}

}  // namespace tandem
