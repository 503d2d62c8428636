#include <unistd.h>

#include <filesystem>

#include "append_file.h"
#include "tandem/base/error.h"
#include "tandem/base/host_name.h"
#include "tandem/trace/metrics.h"
#include "tensorboard_record.h"

namespace tandem {
namespace {

// The first free name of events.out.tfevents.<time>.<host>.<pid>.<0, 1, ...>.
std::string free_path(const std::string& folder, double now_s) {
  for (int serial = 0;; ++serial) {
    const std::string path =
        fmt::format("{}/events.out.tfevents.{:010}.{}.{}.{}", folder,
                    static_cast<std::int64_t>(now_s), host_name(), ::getpid(), serial);
    if (!std::filesystem::exists(path)) return path;
  }
}

std::string made_folder(const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) {
    throw_error(ExitCode::kBadInput, "cannot make the TensorBoard folder {}: {}", folder,
                error.message());
  }
  return folder;
}

class TensorBoard : public MetricSink {
 public:
  TensorBoard(const std::string& folder, double now_s)
      : file_(free_path(made_folder(folder), now_s), AppendFile::Mode::kNew) {
    file_.append(tensorboard::framed(tensorboard::version_event(now_s)));
  }

  void write(std::int64_t step, const MetricList& metrics) override {
    file_.append(tensorboard::framed(tensorboard::scalars_event(wall_time_s(), step, metrics)));
  }

 private:
  AppendFile file_;
};

}  // namespace

std::unique_ptr<MetricSink> make_tensorboard(const std::string& folder) {
  return std::make_unique<TensorBoard>(folder, wall_time_s());
}

}  // namespace tandem
