#include "measure.h"

#include <algorithm>
#include <memory>

#include "tensors.h"

namespace tandem::bench {
namespace {

// On a GPU what large products are quoted at; on a CPU as much as a round may cost.
constexpr std::int64_t kCudaSide = 8192, kCpuSide = 1024;
// Copied bytes: beyond every cache.
constexpr std::size_t kCudaCopy = std::size_t{512} << 20, kCpuCopy = std::size_t{64} << 20;
constexpr std::size_t kCopyAt = 0, kProductAt = 1, kLimits = 2;

Candidate copy_limit(Device& device, Tensors& tensors) {
  const std::size_t size = device.kind() == DeviceKind::kCuda ? kCudaCopy : kCpuCopy;
  const auto floats = static_cast<std::int64_t>(size / sizeof(float));
  const View from = tensors.normal(DType::kF32, floats, 1);
  const View to = tensors.normal(DType::kF32, floats, 1);
  return {"limit",
          "copy",
          fmt::format("{} MiB, read and written", size >> 20),
          0.0,
          2.0 * static_cast<double>(size),
          [&device, from, to](Stream& stream) {
            device.copy(stream, to.data, from.data, from.bytes());
          }};
}

Candidate product_limit(Device& device, DType dtype, Tensors& tensors) {
  const std::int64_t n = limit_side(device);
  const ops::Gemm product{.a = tensors.normal(dtype, n, n),
                          .b = tensors.normal(dtype, n, n),
                          .c = tensors.normal(dtype, n, n),
                          .trans_b = true};
  return candidate("limit", fmt::format("product {}", name_of(dtype)), product);
}

// Events around every candidate; neighbours share one.
class Stopwatch {
 public:
  Stopwatch(Device& device, std::size_t candidates) : times_(candidates) {
    for (std::size_t i = 0; i <= candidates; ++i) events_.push_back(device.make_event());
  }

  void round(Stream& stream, const std::vector<const Candidate*>& candidates, bool timed) {
    stream.record(*events_[0]);
    for (std::size_t i = 0; i < candidates.size(); ++i) {
      candidates[i]->run(stream);
      stream.record(*events_[i + 1]);
    }
    // hazard: the events before the host reads their times
    stream.sync();
    for (std::size_t i = 0; timed && i < times_.size(); ++i)
      times_[i].push_back(events_[i + 1]->us_since(*events_[i]) / 1e3);
  }

  [[nodiscard]] const std::vector<double>& times(std::size_t i) const { return times_[i]; }

 private:
  std::vector<std::unique_ptr<Event>> events_;
  std::vector<std::vector<double>> times_;  // ms, by candidate
};

Row to_row(const Candidate& from, const std::vector<double>& times) {
  Row row;
  row.group = from.group;
  row.name = from.name;
  row.shape = from.shape;
  row.flops = from.flops;
  row.bytes = from.bytes;
  row.ms = median(times);
  row.min_ms = *std::min_element(times.begin(), times.end());
  return row;
}

}  // namespace

std::int64_t limit_side(const Device& device) {
  return device.kind() == DeviceKind::kCuda ? kCudaSide : kCpuSide;
}

std::string shape_text(const ops::OpCost& cost) {
  if (cost.cols == 0) return fmt::format("{} B", cost.rows);
  std::string text = fmt::format("{} x {}", cost.rows, cost.cols);
  return cost.inner > 0 ? text + fmt::format(" x {}", cost.inner) : text;
}

double median(std::vector<double> values) {
  if (values.empty()) return 0.0;
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2.0;
}

void set_rate(Row& row, double flops_limit, double bytes_limit) {
  const double by_flops = row.flops / flops_limit, by_bytes = row.bytes / bytes_limit;
  const bool product = row.flops > 0 && (by_flops >= by_bytes || row.bytes == 0);
  const double seconds = row.ms / 1e3;
  if (seconds <= 0 || (row.flops == 0 && row.bytes == 0)) return;
  row.unit = product ? "TFLOP/s" : "GB/s";
  row.rate = product ? row.flops / seconds / 1e12 : row.bytes / seconds / 1e9;
  row.share = std::max(by_flops, by_bytes) / seconds;
}

Measured measure(Device& device, Stream& stream, DType dtype, int repeats,
                 const std::vector<Candidate>& candidates) {
  Tensors tensors(device, stream);
  const Candidate copy = copy_limit(device, tensors);
  const Candidate product = product_limit(device, dtype, tensors);
  tensors.fill_all();
  std::vector<const Candidate*> all = {&copy, &product};
  for (const Candidate& one : candidates) all.push_back(&one);

  Stopwatch watch(device, all.size());
  for (int round = -kWarmUpRounds; round < repeats; ++round) watch.round(stream, all, round >= 0);

  Measured out;
  for (std::size_t i = 0; i < all.size(); ++i)
    (i < kLimits ? out.limits : out.rows).push_back(to_row(*all[i], watch.times(i)));
  const double bytes_limit = out.limits[kCopyAt].bytes / out.limits[kCopyAt].ms * 1e3;
  const double flops_limit = out.limits[kProductAt].flops / out.limits[kProductAt].ms * 1e3;
  for (auto* rows : {&out.limits, &out.rows})
    for (Row& row : *rows) set_rate(row, flops_limit, bytes_limit);
  return out;
}

}  // namespace tandem::bench
