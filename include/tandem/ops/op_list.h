// OpList: a stream that keeps the ops launched on it instead of running them. A tool gives it to a
// node body and learns which ops the body is made of, what they cost, and can run each by itself.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tandem/device/device.h"
#include "tandem/ops/cost.h"

namespace tandem {

struct ListedOp {
  ops::OpCost cost;
  std::function<void(Stream&)> run;  // enqueues it on a real stream; its views must still be there
};

// Ops and copies only: events, host work and sync have no meaning here and throw Error(kInternal).
class OpList final : public Stream {
 public:
  void add(ListedOp op) { ops_.push_back(std::move(op)); }
  [[nodiscard]] std::vector<ListedOp> take() { return std::exchange(ops_, {}); }

  [[nodiscard]] const std::string& name() const override { return name_; }
  [[nodiscard]] std::size_t pending() const override { return ops_.size(); }
  void record(Event& event) override;
  void wait(const Event& event) override;
  void call(std::function<void()> work) override;
  void sync() override;

 private:
  std::string name_ = "op list";
  std::vector<ListedOp> ops_;
};

}  // namespace tandem
