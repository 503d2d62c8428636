// A backend as the tests see it: put a host tensor on it, run ops, get tensors back. Test bodies
// take any such type, so a new backend is a new class and one line in on_every_backend().
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "tandem/ops/launch.h"

namespace tandem::test {

using Values = std::vector<double>;

// A tensor on the host. Every value is exactly representable in its dtype.
struct Tensor {
  DType dtype;
  std::int64_t rows, cols;
  Values v;
};

inline double round_bf16(double x) {
  const auto u = std::bit_cast<std::uint32_t>(static_cast<float>(x));
  const auto high = (u + 0x7fff + ((u >> 16) & 1)) >> 16 << 16;
  return static_cast<double>(std::bit_cast<float>(static_cast<std::uint32_t>(high)));
}

// By arithmetic in double, so that it shares nothing with the conversions under test: fp16 has 11
// bits, the last of them worth 2^-24 or more, and nothing finite from 65520 on.
inline double round_f16(double x) {
  if (x == 0 || !std::isfinite(x)) return x;
  const double step = std::ldexp(1.0, std::max(std::ilogb(x) - 10, -24));
  const double rounded = std::nearbyint(x / step) * step;
  return std::abs(rounded) < 65520 ? rounded
                                   : std::copysign(std::numeric_limits<double>::infinity(), x);
}

inline std::uint16_t f16_bits(double x) {
  const auto sign = static_cast<std::uint16_t>(std::signbit(x) ? 0x8000 : 0);
  const double size = std::abs(x);
  if (std::isnan(x)) return 0x7e00;
  if (std::isinf(x)) return sign | 0x7c00;
  if (size < std::ldexp(1.0, -14)) return sign | static_cast<std::uint16_t>(std::ldexp(size, 24));
  const int exponent = std::ilogb(size);
  const auto fraction = static_cast<int>(std::ldexp(size, 10 - exponent));  // with the hidden bit
  return sign | static_cast<std::uint16_t>(((exponent + 14) << 10) + fraction);
}

inline double f16_value(std::uint16_t bits) {
  const int exponent = bits >> 10 & 31, fraction = bits & 1023;
  double size = std::ldexp(1024 + fraction, exponent - 25);
  if (exponent == 0) size = std::ldexp(fraction, -24);
  if (exponent == 31) size = fraction == 0 ? std::numeric_limits<double>::infinity() : NAN;
  return (bits & 0x8000) != 0 ? -size : size;
}

inline double round_to(DType dtype, double x) {
  if (dtype == DType::kBF16) return round_bf16(x);
  if (dtype == DType::kF16) return round_f16(x);
  return dtype == DType::kF32 ? static_cast<double>(static_cast<float>(x)) : x;
}

inline Tensor tensor(DType dtype, std::int64_t rows, std::int64_t cols, Values v = {}) {
  v.resize(static_cast<std::size_t>(rows * cols));
  for (double& x : v) x = round_to(dtype, x);
  return {dtype, rows, cols, std::move(v)};
}

// Reproducible values, uniform in [-range, range) and rounded to bf16 and, for fp16, to that too:
// exact inputs for their own dtype and for fp32.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed * 2 + 1) {}
  std::uint64_t bits() {
    state_ = state_ * 6364136223846793005ULL + 1442695040888963407ULL;
    return state_ >> 33;
  }
  double uniform() { return static_cast<double>(bits()) / 1073741824.0 - 1.0; }
  std::int64_t below(std::int64_t n) { return static_cast<std::int64_t>(bits()) % n; }
  Tensor values(DType dtype, std::int64_t rows, std::int64_t cols, double range = 1) {
    Tensor t = tensor(dtype, rows, cols);
    for (double& x : t.v) x = round_to(dtype, round_bf16(range * uniform()));
    return t;
  }

 private:
  std::uint64_t state_;
};

class CpuBackend {
 public:
  explicit CpuBackend(int threads) : threads_(threads), workers_(threads) {}
  [[nodiscard]] std::string name() const { return "cpu, " + std::to_string(threads_) + " threads"; }

  View put(const Tensor& t) {
    View view{nullptr, t.dtype, t.rows, t.cols};
    memory_.push_back(std::make_unique<std::byte[]>(view.bytes() + 1));
    view.data = memory_.back().get();
    for (std::size_t i = 0; i < t.v.size(); ++i) write(view, i, t.v[i]);
    return view;
  }

  // Room for an output, filled with a value no op may leave behind.
  View room(DType dtype, std::int64_t rows, std::int64_t cols) {
    return put(tensor(dtype, rows, cols, Values(static_cast<std::size_t>(rows * cols), -7777)));
  }

  Tensor get(const View& view) {
    Tensor t{view.dtype, view.rows, view.cols, Values(static_cast<std::size_t>(view.size()))};
    for (std::size_t i = 0; i < t.v.size(); ++i) t.v[i] = read(view, i);
    const auto* bytes = view.as<unsigned char>();
    for (std::size_t i = 0; i < view.bytes(); ++i)
      fingerprint_ = (fingerprint_ ^ bytes[i]) * 1099511628211ULL;
    return t;
  }

  template <class Op>
  void run(const Op& op) {
    cpu::run(op, workers_);
  }

  // Rounding of attention's probabilities to their storage, in units of fp32's eps: none here.
  [[nodiscard]] double attention_rounding(DType /*dtype*/) const { return 0; }

  // Of all bytes got so far.
  [[nodiscard]] std::uint64_t fingerprint() const { return fingerprint_; }

 private:
  static void write(const View& view, std::size_t i, double x) {
    switch (view.dtype) {
      case DType::kF32:
        view.as<float>()[i] = static_cast<float>(x);
        break;
      case DType::kI32:
        view.as<std::int32_t>()[i] = static_cast<std::int32_t>(x);
        break;
      case DType::kF16:
        view.as<std::uint16_t>()[i] = f16_bits(x);
        break;
      default:
        view.as<std::uint16_t>()[i] =
            static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(static_cast<float>(x)) >> 16);
    }
  }
  static double read(const View& view, std::size_t i) {
    switch (view.dtype) {
      case DType::kF32:
        return static_cast<double>(view.as<float>()[i]);
      case DType::kI32:
        return view.as<std::int32_t>()[i];
      case DType::kF16:
        return f16_value(view.as<std::uint16_t>()[i]);
      default:
        return static_cast<double>(
            std::bit_cast<float>(std::uint32_t{view.as<std::uint16_t>()[i]} << 16));
    }
  }

  int threads_;
  Workers workers_;
  std::vector<std::unique_ptr<std::byte[]>> memory_;
  std::uint64_t fingerprint_ = 14695981039346656037ULL;
};

// The same on a GPU: tensors are written and read through a host copy.
class CudaBackend {
 public:
  // compute_sms: multiprocessors that persistent kernels may fill; 0 = all.
  explicit CudaBackend(int compute_sms = 0)
      : device_(make_cuda_device({.compute_sms = compute_sms})),
        stream_(device_->make_stream("test", 0)) {}
  [[nodiscard]] std::string name() const { return device_->description(); }

  View put(const Tensor& t) {
    View view = host_.put(t);
    memory_.push_back(device_->alloc(view.bytes(), "test"));
    device_->copy(*stream_, memory_.back().data(), view.data, view.bytes());
    view.data = memory_.back().data();
    return view;
  }
  View room(DType dtype, std::int64_t rows, std::int64_t cols) {
    return put(tensor(dtype, rows, cols, Values(static_cast<std::size_t>(rows * cols), -7777)));
  }
  Tensor get(const View& view) {
    std::vector<std::byte> bytes(view.bytes());
    device_->copy(*stream_, bytes.data(), view.data, bytes.size());
    // hazard: the ops and the copy before the host reads
    stream_->sync();
    return host_.get({bytes.data(), view.dtype, view.rows, view.cols});
  }
  template <class Op>
  void run(const Op& op) {
    launch(*stream_, op);
  }
  [[nodiscard]] Device& device() { return *device_; }
  [[nodiscard]] CudaStream& stream() { return dynamic_cast<CudaStream&>(*stream_); }

  // cuDNN multiplies probabilities, and their gradients, in their storage dtype and does not say
  // how it rounds them: a whole unit in the last place, 2^-8 of each term in bf16 and 2^-11 in
  // fp16.
  [[nodiscard]] double attention_rounding(DType dtype) const {
    if (dtype == DType::kF16) return 1 << 12;
    return dtype == DType::kBF16 ? 1 << 15 : 0;
  }
  [[nodiscard]] std::uint64_t fingerprint() const { return host_.fingerprint(); }

 private:
  CpuBackend host_{1};
  std::unique_ptr<Device> device_;
  std::unique_ptr<Stream> stream_;
  std::vector<Buffer> memory_;
};

// Which backend this executable is for: on_cpu.cpp and on_cuda.cpp answer.
bool tests_cuda();

// On a GPU every body runs twice and must give the same bits: with all multiprocessors and with two
// for persistent kernels, whose blocks then have many tiles each.
template <class Body>
void on_cuda(const Body& body) {
  if (visible_cuda_devices() == 0) {
    WARN("no CUDA device is visible: skipped");
    return;
  }
  std::optional<std::uint64_t> expected;
  for (const int compute_sms : {0, 2}) {
    CudaBackend backend(compute_sms);
    INFO(backend.name() << ", compute_sms " << compute_sms);
    body(backend);
    if (!expected) expected = backend.fingerprint();
    CHECK(backend.fingerprint() == *expected);
  }
}

// Runs body(backend) everywhere. On the CPU all outputs must be bit-equal for 1, 2 and 3 threads.
template <class Body>
void on_every_backend(const Body& body) {
  if (tests_cuda()) return on_cuda(body);
  std::optional<std::uint64_t> expected;
  for (const int threads : {1, 2, 3}) {
    CpuBackend backend(threads);
    INFO(backend.name());
    body(backend);
    if (!expected) expected = backend.fingerprint();
    CHECK(backend.fingerprint() == *expected);
  }
}

constexpr DType kStorage[] = {DType::kF32, DType::kBF16, DType::kF16};

}  // namespace tandem::test
