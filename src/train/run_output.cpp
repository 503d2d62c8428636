#include "run_output.h"

#include <filesystem>

#include "tandem/base/error.h"

namespace tandem {
namespace {

// body(), whose errors name the key that asked for the output.
template <class Body>
auto output_of(const char* key, const Body& body) -> decltype(body()) {
  try {
    return body();
  } catch (const Error& error) {
    throw_error(error.code(), "{}: {}", key, error.what());
  }
}

}  // namespace

void RunOutput::open_metrics() {
  if (rank_ != 0) return;
  const auto open = [&](const char* key, const std::string& path, const auto& make) {
    if (!path.empty()) sinks_.push_back({key, output_of(key, [&] { return make(path); })});
  };
  std::error_code unknown;
  const auto before = std::filesystem::symlink_status(config_.metrics, unknown);
  open("logging.metrics", config_.metrics, make_json_lines);
  try {
    open("logging.tensorboard", config_.tensorboard, make_tensorboard);
  } catch (const Error&) {
    const bool made = !sinks_.empty() && before.type() == std::filesystem::file_type::not_found;
    sinks_.clear();
    if (made) std::filesystem::remove(config_.metrics, unknown);
    throw;
  }
}

template <class Body>
void RunOutput::write(const char* key, const Body& body) {
  if (!lost_.empty()) return;
  try {
    output_of(key, body);
  } catch (const Error& error) {
    lost_ = error.what();
  }
}

void RunOutput::try_trace() const {
  output_of("logging.trace", [&] { try_chrome_trace(trace_file(config_.trace, rank_)); });
}

void RunOutput::write_metrics(std::int64_t step, const MetricList& metrics) {
  for (const Sink& sink : sinks_) write(sink.key, [&] { sink.to->write(step, metrics); });
}

void RunOutput::write_trace(const std::vector<TraceSpan>& spans, const std::string& about,
                            bool exchanges) {
  write("logging.trace, logging.trace_steps", [&] {
    write_chrome_trace(trace_file(config_.trace, rank_), rank_, spans, about, exchanges);
  });
}

}  // namespace tandem
