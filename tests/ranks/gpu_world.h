// A World whose communicators carry GPU memory, for cases written for host memory: each call copies
// its buffers to the GPU, communicates there, and copies back.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tandem/comm/world.h"

namespace tandem::ranks {

class GpuWorld : public World {
 public:
  GpuWorld(World& world, const CommOptions& options, int ordinal);
  ~GpuWorld() override;

  [[nodiscard]] int rank() const override { return world_.rank(); }
  [[nodiscard]] int size() const override { return world_.size(); }
  [[nodiscard]] int local_rank() const override { return world_.local_rank(); }
  [[nodiscard]] int local_size() const override { return world_.local_size(); }
  std::unique_ptr<Comm> make_comm(const std::vector<int>& members, const std::string& name,
                                  const CommOptions& ignored) override;
  void barrier() override { world_.barrier(); }
  double sum(double value) override { return world_.sum(value); }
  double max(double value) override { return world_.max(value); }
  std::string broadcast(const std::string& bytes, int root) override {
    return world_.broadcast(bytes, root);
  }
  std::vector<std::string> gather(const std::string& bytes) override {
    return world_.gather(bytes);
  }
  void check_health() override { world_.check_health(); }
  void abort(ExitCode code, const std::string& reason) noexcept override {
    world_.abort(code, reason);
  }

 private:
  class Mirror;

  World& world_;
  const CommOptions options_;
  const int ordinal_;
  const std::unique_ptr<Device> device_;
  // Freed at the end: freeing waits for the whole GPU, where another rank may be waiting for this
  // one.
  std::vector<Buffer> buffers_;
};

}  // namespace tandem::ranks
