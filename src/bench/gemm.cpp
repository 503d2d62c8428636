// The dense products of a model, as its node bodies launch them.
#include <algorithm>

#include "benches.h"
#include "tandem/model/slot.h"
#include "tensors.h"

namespace tandem::bench {
namespace {

constexpr double kWeightScale = 0.02;

class Products {
 public:
  Products(Tensors& tensors, DType dtype) : tensors_(tensors), dtype_(dtype) {}

  // y [tokens, out] = x [tokens, in] W^T; `result`: dtype of y.
  void forward(const std::string& name, std::int64_t tokens, std::int64_t out, std::int64_t in,
               DType result) {
    list_.push_back(candidate(name, "fwd",
                              ops::Gemm{.a = tensors_.normal(dtype_, tokens, in),
                                        .b = tensors_.normal(dtype_, out, in, kWeightScale),
                                        .c = tensors_.normal(result, tokens, out),
                                        .trans_b = true}));
  }

  // d_x = d_y W and d_W (f32) += d_y^T x; `accumulate` false: d_W = d_y^T x.
  void backward(const std::string& name, std::int64_t tokens, std::int64_t out, std::int64_t in,
                bool accumulate = true) {
    list_.push_back(candidate(name, "bwd_input",
                              ops::Gemm{.a = tensors_.normal(dtype_, tokens, out),
                                        .b = tensors_.normal(dtype_, out, in, kWeightScale),
                                        .c = tensors_.normal(dtype_, tokens, in)}));
    list_.push_back(candidate(name, "bwd_weight",
                              ops::Gemm{.a = tensors_.normal(dtype_, tokens, out),
                                        .b = tensors_.normal(dtype_, tokens, in),
                                        .c = tensors_.normal(DType::kF32, out, in),
                                        .trans_a = true,
                                        .accumulate = accumulate}));
  }

  void linear(const std::string& name, std::int64_t tokens, std::int64_t out, std::int64_t in) {
    forward(name, tokens, out, in, dtype_);
    backward(name, tokens, out, in);
  }

  // Logits are fp32. Where the storage is narrower, their gradient comes in two halves, side by
  // side.
  void router(std::int64_t tokens, std::int64_t experts, std::int64_t hidden) {
    const bool halves = dtype_ != DType::kF32;
    forward("router", tokens, experts, hidden, DType::kF32);
    backward("router", tokens, halves ? 2 * experts : experts, hidden, !halves);
  }

  std::vector<Candidate> take() { return std::move(list_); }

 private:
  Tensors& tensors_;
  const DType dtype_;
  std::vector<Candidate> list_;
};

bool has_dense_layer(const ModelConfig& model) {
  for (int layer = 0; layer < model.layers; ++layer)
    if (!model.is_moe(layer)) return true;
  return false;
}

}  // namespace

Measured bench_gemm(Device& device, Stream& stream, const RunConfig& config, int repeats) {
  const ModelDims d = make_dims(config);
  Tensors tensors(device, stream);
  Products products(tensors, d.dtype);
  products.linear("qkv", d.tokens, d.qkv_width(), d.hidden);
  products.linear("attention out", d.tokens, d.hidden, d.q_width());
  if (d.experts > 0) products.router(d.tokens, d.experts, d.hidden);
  if (has_dense_layer(config.model)) {
    products.linear("mlp gate_up", d.tokens, 2 * d.dense_ffn, d.hidden);
    products.linear("mlp down", d.tokens, d.hidden, d.dense_ffn);
  }
  const std::int64_t chunk = std::clamp<std::int64_t>(config.train.loss_chunk_tokens, 1, d.tokens);
  products.forward("head chunk", chunk, d.vocab, d.hidden, DType::kF32);
  products.backward("head chunk", chunk, d.vocab, d.hidden);
  tensors.fill_all();
  return measure(device, stream, d.dtype, repeats, products.take());
}

}  // namespace tandem::bench
