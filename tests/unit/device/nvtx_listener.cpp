// A tool that listens to NVTX, which loads it from where NVTX_INJECTION64_PATH says. Appends to the
// file TANDEM_NVTX_LOG names, a line a call; domains have numbers:
//   domain 1 tandem
//   category 1 3 ep F
//   push 1 <thread> 3 ff7fc4d6 dispatch_fwd L3 mb2
//   pop 1 <thread>
//   destroy 1
// Loaded before other libraries, it also takes the place of CUDA's calls around a profiler's
// window, which then need no GPU: "start <thread>" and "stop <thread>".
#define NVTX_NO_IMPL  // types alone
#include <cuda_profiler_api.h>
#include <fcntl.h>
#include <nvtx3/nvToolsExt.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <string>

namespace {

template <class... Words>
void note(const char* call, const Words&... words) {
  std::ostringstream text;
  text << call;
  ((text << ' ' << words), ...);
  text << '\n';
  const std::string line = text.str();
  const char* path = std::getenv("TANDEM_NVTX_LOG");
  const int log = path == nullptr ? -1 : ::open(path, O_WRONLY | O_CREAT | O_APPEND, 0666);
  if (log < 0) std::abort();
  if (::write(log, line.data(), line.size()) != static_cast<ssize_t>(line.size())) std::abort();
  ::close(log);
}

std::string hex(std::uint32_t colour) {
  char digits[9];
  std::snprintf(digits, sizeof(digits), "%08x", static_cast<unsigned>(colour));
  return digits;
}

// What NVTX takes for a pointer of ours is the domain's number.
std::uintptr_t number(nvtxDomainHandle_t domain) {
  return reinterpret_cast<std::uintptr_t>(domain);
}

nvtxDomainHandle_t create(const char* name) {
  static std::atomic<std::uintptr_t> domains = 0;
  const std::uintptr_t domain = ++domains;
  note("domain", domain, name);
  return reinterpret_cast<nvtxDomainHandle_t>(domain);
}

void destroy(nvtxDomainHandle_t domain) {
  note("destroy", number(domain));
}

void name_category(nvtxDomainHandle_t domain, std::uint32_t category, const char* name) {
  note("category", number(domain), category, name);
}

int push(nvtxDomainHandle_t domain, const nvtxEventAttributes_t* range) {
  // Other libraries of the process may name their ranges in other ways, or have no colours.
  const bool text =
      range->messageType == NVTX_MESSAGE_TYPE_ASCII && range->message.ascii != nullptr;
  const bool colour = range->colorType == NVTX_COLOR_ARGB;
  note("push", number(domain), ::gettid(), range->category, hex(colour ? range->color : 0),
       text ? range->message.ascii : "?");
  return 0;
}

int pop(nvtxDomainHandle_t domain) {
  note("pop", number(domain), ::gettid());
  return 0;
}

struct Calls {
  NvtxFunctionTable table = nullptr;
  unsigned size = 0;

  template <class Function>
  void set(NvtxCallbackIdCore2 id, Function* function) const {
    if (static_cast<unsigned>(id) < size)
      *table[id] = reinterpret_cast<NvtxFunctionPointer>(function);
  }
};

}  // namespace

extern "C" {

int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get_table) {
  const auto* callbacks =
      static_cast<const NvtxExportTableCallbacks*>(get_table(NVTX_ETID_CALLBACKS));
  Calls calls;
  if (callbacks == nullptr ||
      callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &calls.table, &calls.size) == 0)
    return 0;
  calls.set(NVTX_CBID_CORE2_DomainCreateA, create);
  calls.set(NVTX_CBID_CORE2_DomainDestroy, destroy);
  calls.set(NVTX_CBID_CORE2_DomainNameCategoryA, name_category);
  calls.set(NVTX_CBID_CORE2_DomainRangePushEx, push);
  calls.set(NVTX_CBID_CORE2_DomainRangePop, pop);
  return 1;
}

cudaError_t cudaProfilerStart() {
  note("start", ::gettid());
  return cudaSuccess;
}

cudaError_t cudaProfilerStop() {
  note("stop", ::gettid());
  return cudaSuccess;
}
}
