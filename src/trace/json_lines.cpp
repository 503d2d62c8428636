#include "append_file.h"
#include "tandem/base/json_writer.h"
#include "tandem/trace/metrics.h"

namespace tandem {
namespace {

class JsonLines : public MetricSink {
 public:
  explicit JsonLines(const std::string& path) : file_(path, AppendFile::Mode::kAppend) {
    // A killed run may have left half a line; it must not spoil the next one.
    if (file_.ends_within_a_line()) file_.append("\n");
  }

  void write(std::int64_t step, const MetricList& metrics) override {
    JsonWriter line;
    line.begin_object().key("step").value(step).key("time").value(wall_time_s());
    for (const auto& [name, value] : metrics) line.key(name).value(value);
    line.end_object();
    file_.append(line.str() + "\n");
  }

 private:
  AppendFile file_;
};

}  // namespace

std::unique_ptr<MetricSink> make_json_lines(const std::string& path) {
  return std::make_unique<JsonLines>(path);
}

}  // namespace tandem
