// Where step metrics go: JSON lines and TensorBoard event files.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace tandem {

using MetricList = std::vector<std::pair<std::string, double>>;

// Appends one record per call; each record is flushed whole. One thread at a time. Making a sink
// and writing throw Error(kBadInput), naming the path, when the file cannot be written.
class MetricSink {
 public:
  virtual ~MetricSink() = default;
  virtual void write(std::int64_t step, const MetricList& metrics) = 0;
};

// {"step": 3, "time": 1700000000.0, "loss": 2.5, ...} per line, appended. Non-finite values are
// null.
std::unique_ptr<MetricSink> make_json_lines(const std::string& path);

// TensorBoard event file events.out.tfevents.<time>.<host>.<pid>.0 inside `folder`,
// which is made when missing. Values are stored as fp32.
std::unique_ptr<MetricSink> make_tensorboard(const std::string& folder);

}  // namespace tandem
