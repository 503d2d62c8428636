// The CUDA stream as ops see it. No CUDA header: the handle is an opaque pointer.
#pragma once

#include <map>
#include <memory>
#include <typeindex>

#include "tandem/device/device.h"

struct CUstream_st;  // cudaStream_t is a pointer to it

namespace tandem {

class CudaStream : public Stream {
 public:
  [[nodiscard]] virtual CUstream_st* handle() const = 0;
  // Multiprocessors persistent kernels of this stream may fill.
  [[nodiscard]] virtual int sm_budget() const = 0;
  // Same inputs, same bits: kernels that add in no fixed order are not used.
  [[nodiscard]] virtual bool deterministic() const = 0;

  // The T of this stream, made on first use: library handles, workspaces, tile counters. Two
  // streams never share one. Call it on the thread that enqueues.
  template <class T>
  [[nodiscard]] T& local() {
    std::shared_ptr<void>& slot = locals_[std::type_index(typeid(T))];
    if (!slot) slot = std::make_shared<T>(*this);
    return *static_cast<T*>(slot.get());
  }

 protected:
  void drop_locals() noexcept { locals_.clear(); }  // before the stream itself dies

 private:
  std::map<std::type_index, std::shared_ptr<void>> locals_;
};

}  // namespace tandem
