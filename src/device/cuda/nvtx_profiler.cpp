#include <cuda_profiler_api.h>
#include <nvtx3/nvToolsExt.h>

#include "tandem/device/cuda_check.h"
#include "tandem/device/profiler.h"

namespace tandem {
namespace {

class NvtxProfiler : public Profiler {
 public:
  explicit NvtxProfiler(const std::vector<RangeCategory>& categories)
      : domain_(nvtxDomainCreateA("tandem")) {
    for (const RangeCategory& category : categories) {
      colours_.push_back(category.colour);
      nvtxDomainNameCategoryA(domain_, static_cast<std::uint32_t>(colours_.size()),
                              category.name.c_str());
    }
  }
  ~NvtxProfiler() override { nvtxDomainDestroy(domain_); }

  void start() override { TANDEM_CUDA_CHECK(cudaProfilerStart()); }
  void stop() override { TANDEM_CUDA_CHECK(cudaProfilerStop()); }

  void push(const std::string& name, int category) override {
    nvtxEventAttributes_t range{};
    range.version = NVTX_VERSION;
    range.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
    range.category = static_cast<std::uint32_t>(category) + 1;  // 0 would mean none
    range.colorType = NVTX_COLOR_ARGB;
    range.color = colours_[static_cast<std::size_t>(category)];
    range.messageType = NVTX_MESSAGE_TYPE_ASCII;
    range.message.ascii = name.c_str();
    nvtxDomainRangePushEx(domain_, &range);
  }
  void pop() override { nvtxDomainRangePop(domain_); }

 private:
  nvtxDomainHandle_t domain_;  // null where no tool listens, which every call takes
  std::vector<std::uint32_t> colours_;
};

}  // namespace

std::unique_ptr<Profiler> make_profiler(const std::vector<RangeCategory>& categories) {
  return std::make_unique<NvtxProfiler>(categories);
}

}  // namespace tandem
