// All ranks send one another equally many rows, as the expert all-to-alls of a balanced router do,
// in every way the communicator has; and a large product beside it on another stream.
#include <algorithm>
#include <cmath>

#include "measure.h"
#include "tandem/runtime/lanes.h"
#include "tandem/runtime/timeline.h"
#include "tandem/train/device_choice.h"
#include "tandem/train/hook_scope.h"
#include "tandem/train/watchdog.h"
#include "tensors.h"
#include "world_benches.h"

namespace tandem::bench {
namespace {

constexpr std::int64_t kSmallest = std::int64_t{64} << 10;
constexpr std::int64_t kLargestCuda = std::int64_t{256} << 20, kLargestCpu = std::int64_t{4} << 20;
constexpr double kBatchUs = 3000;  // exchanges are timed in batches of about this length
constexpr double kMostInBatch = 256;
constexpr double kCover = 1.5;  // exchanges beside a product last this many times as long

std::string_view transport_name(CommKind kind) {
  switch (kind) {
    case CommKind::kHost:
      return "host";
    case CommKind::kStaged:
      return "staged";
    case CommKind::kNccl:
      return "nccl";
  }
  return "default";
}

// Everything but the size of a message.
class Exchanger {
 public:
  Exchanger(World& world, Device& device, const RunConfig& config, Watchdog& watchdog)
      : world_(world),
        watchdog_(watchdog),
        lanes_(device, 1),
        ep_(lanes_.stream(Lane::kEp)),
        compute_(lanes_.stream(Lane::kCompute)),
        tensors_(device, compute_),
        row_bytes_(config.model.hidden * static_cast<std::int64_t>(size_of(config.train.dtype))),
        begin_(device.make_event()),
        end_(device.make_event()),
        started_(device.make_event()) {
    const std::int64_t most = device.kind() == DeviceKind::kCuda ? kLargestCuda : kLargestCpu;
    largest_ = std::max<std::int64_t>(most, row_bytes_ * world.size());
    const std::int64_t rows = largest_ / row_bytes_;
    send_ = tensors_.normal(config.train.dtype, rows, config.model.hidden);
    recv_ = tensors_.normal(config.train.dtype, rows, config.model.hidden);
    const std::int64_t n = limit_side(device);
    product_ = {.a = tensors_.normal(config.train.dtype, n, n),
                .b = tensors_.normal(config.train.dtype, n, n),
                .c = tensors_.normal(config.train.dtype, n, n),
                .trans_b = true};
    tensors_.fill_all();
    // hazard: the data before another stream sends it
    compute_.sync();
  }

  // The communicator from now on; its stream is this object's, so it goes before this, and once
  // that stream is drained.
  void use(Comm& comm) { comm_ = &comm; }
  [[nodiscard]] Stream& stream() const { return ep_; }  // of the exchanges

  [[nodiscard]] std::int64_t largest() const { return largest_; }
  [[nodiscard]] std::int64_t row_bytes() const { return row_bytes_; }

  // Of `rows` rows to every rank. Mean time of `count` exchanges, the slowest rank's.
  double exchange_us(std::int64_t rows, int count) {
    const auto patience = watchdog_.patient(kWhere);
    world_.barrier();
    exchange(rows);  // afterwards all ranks are here
    ep_.record(*begin_);
    for (int i = 0; i < count; ++i) exchange(rows);
    ep_.record(*end_);
    // hazard: the events before the host reads their times
    ep_.sync();
    return world_.max(end_->us_since(*begin_) / count);
  }

  // Of one product, with `count` exchanges beside it; the slowest rank's.
  double product_us(std::int64_t rows, int count) {
    const auto patience = watchdog_.patient(kWhere);
    world_.barrier();
    if (count > 0) exchange(rows);
    ep_.record(*started_);
    for (int i = 0; i < count; ++i) exchange(rows);
    // hazard: none between the data of the two; both are to begin at once
    compute_.wait(*started_);
    compute_.record(*begin_);
    launch(compute_, product_);
    compute_.record(*end_);
    // hazard: the events before the host reads their times
    compute_.sync();
    ep_.sync();
    return world_.max(end_->us_since(*begin_));
  }

 private:
  // Each call other rows of the buffers, so that caches do not help.
  void exchange(std::int64_t rows) {
    const std::int64_t all = rows * comm_->size();
    const std::int64_t places = std::max<std::int64_t>(1, send_.rows / all);
    const std::int64_t at = next_++ % places * all;
    std::vector<std::vector<RowBlock>> blocks;
    for (int peer = 0; peer < comm_->size(); ++peer) blocks.push_back({{peer * rows, rows}});
    comm_->all_to_all(ep_, {{{send_.slice(at, all), recv_.slice(at, all)}}, blocks, blocks});
  }

  static constexpr const char* kWhere = "in all-to-alls";

  World& world_;
  Watchdog& watchdog_;
  Comm* comm_ = nullptr;
  Lanes lanes_;  // with the priorities they have in training
  Stream &ep_, &compute_;
  Tensors tensors_;
  const std::int64_t row_bytes_;
  std::int64_t largest_ = 0, next_ = 0;
  View send_, recv_;
  ops::Gemm product_;
  std::unique_ptr<Event> begin_, end_, started_;
  DrainAtEnd drain_ep_{ep_}, drain_compute_{compute_};  // last: both use what is above
};

int times_to_last(double wanted_us, double one_us) {
  return static_cast<int>(
      std::clamp(std::ceil(wanted_us / std::max(one_us, 1.0)), 1.0, kMostInBatch));
}

// Rows of a message of `size` bytes a rank in all.
std::int64_t rows_to_each(const Exchanger& exchanger, std::int64_t size, int ranks) {
  return std::max<std::int64_t>(1, size / exchanger.row_bytes() / ranks);
}

Row measure_size(Exchanger& exchanger, std::int64_t size, int ranks, int repeats) {
  const std::int64_t rows = rows_to_each(exchanger, size, ranks);
  double one_us = 0, product_us = 0;
  for (int i = 0; i < kWarmUpRounds; ++i) {
    one_us = exchanger.exchange_us(rows, 1);
    product_us = exchanger.product_us(rows, 0);
  }
  const int batch = times_to_last(kBatchUs, one_us);
  const int cover = times_to_last(kCover * product_us, one_us);
  std::vector<double> exchange, alone, beside;
  for (int i = 0; i < repeats; ++i) {
    exchange.push_back(exchanger.exchange_us(rows, batch) / 1e3);
    alone.push_back(exchanger.product_us(rows, 0) / 1e3);
    beside.push_back(exchanger.product_us(rows, cover) / 1e3);
  }
  Row row;
  row.group = "all-to-all";
  row.name =
      size >= (1 << 20) ? fmt::format("{} MiB", size >> 20) : fmt::format("{} KiB", size >> 10);
  row.shape = fmt::format("{} rows of {} B to each", rows, exchanger.row_bytes());
  row.ms = median(exchange);
  row.min_ms = *std::min_element(exchange.begin(), exchange.end());
  const int others = std::max(1, ranks - 1);  // one rank sends to itself
  row.bytes = static_cast<double>(rows * exchanger.row_bytes() * others);
  row.rate = row.bytes / row.ms / 1e6;
  row.unit = "GB/s";
  row.more = {{"us", row.ms * 1e3},
              {"product_ms", median(alone)},
              {"beside_ms", median(beside)},
              {"slowdown", median(beside) / median(alone)}};
  return row;
}

// The ways NCCL has; other kinds have one.
std::vector<AllToAllPath> paths_of(const CommOptions& options, int ranks) {
  if (options.kind != CommKind::kNccl || ranks == 1) return {AllToAllPath::kPlain};
  return {AllToAllPath::kPlain, AllToAllPath::kWindow, AllToAllPath::kPadded,
          AllToAllPath::kPaddedCopies};
}

}  // namespace

AllToAllRows alltoall_rows(World& world, Device& device, const RunConfig& config, int repeats,
                           Log& log, const TrainHooks& hooks) {
  CommOptions options = choose_comm(world, config, device, log);
  std::vector<int> everyone;
  for (int rank = 0; rank < world.size(); ++rank) everyone.push_back(rank);
  AllToAllRows out{std::string(transport_name(options.kind)), {}};
  abort_on_error(world, [&] {
    Timeline no_steps(device);
    Watchdog watchdog(world, no_steps, log, config.train.watchdog_s);
    const HookScope watched(hooks.on_watched);
    Exchanger exchanger(world, device, config, watchdog);
    for (const AllToAllPath path : paths_of(options, world.size()))
      for (std::int64_t size = kSmallest; size <= exchanger.largest(); size *= 4) {
        options.path = path;  // boxes of one message: padding then costs nothing
        options.box_bytes = static_cast<std::size_t>(rows_to_each(exchanger, size, world.size()) *
                                                     exchanger.row_bytes());
        const auto comm = world.make_comm(everyone, "bench", options);
        const DrainAtEnd before_comm(exchanger.stream());
        exchanger.use(*comm);
        out.rows.push_back(measure_size(exchanger, size, world.size(), repeats));
        out.rows.back().group = fmt::format("all-to-all, {}", name_of(path));
      }
  });
  return out;
}

}  // namespace tandem::bench
