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

  // y [tokens, out] = x [tokens, in] W^T in all three phases. `result`: dtype of y; `gradient`: of
  // d_y and what is multiplied with it.
  void linear(const std::string& name, std::int64_t tokens, std::int64_t out, std::int64_t in,
              DType result, DType gradient) {
    const View w = tensors_.normal(dtype_, out, in, kWeightScale);
    list_.push_back(candidate(name, "fwd",
                              ops::Gemm{.a = tensors_.normal(dtype_, tokens, in),
                                        .b = w,
                                        .c = tensors_.normal(result, tokens, out),
                                        .trans_b = true}));
    const View d_y = tensors_.normal(gradient, tokens, out);
    list_.push_back(candidate(name, "bwd_input",
                              ops::Gemm{.a = d_y,
                                        .b = tensors_.normal(gradient, out, in, kWeightScale),
                                        .c = tensors_.normal(gradient, tokens, in)}));
    list_.push_back(candidate(name, "bwd_weight",
                              ops::Gemm{.a = tensors_.normal(gradient, tokens, out),
                                        .b = tensors_.normal(gradient, tokens, in),
                                        .c = tensors_.normal(DType::kF32, out, in),
                                        .trans_a = true,
                                        .accumulate = true}));
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
  products.linear("qkv", d.tokens, d.qkv_width(), d.hidden, d.dtype, d.dtype);
  products.linear("attention out", d.tokens, d.hidden, d.q_width(), d.dtype, d.dtype);
  if (d.experts > 0)  // its gradients are fp32 in every dtype
    products.linear("router", d.tokens, d.experts, d.hidden, DType::kF32, DType::kF32);
  if (has_dense_layer(config.model)) {
    products.linear("mlp gate_up", d.tokens, 2 * d.dense_ffn, d.hidden, d.dtype, d.dtype);
    products.linear("mlp down", d.tokens, d.hidden, d.dense_ffn, d.dtype, d.dtype);
  }
  const std::int64_t chunk = std::clamp<std::int64_t>(config.train.loss_chunk_tokens, 1, d.tokens);
  products.linear("head chunk", chunk, d.vocab, d.hidden, DType::kF32, d.dtype);
  return measure(device, stream, d.dtype, repeats, products.take());
}

}  // namespace tandem::bench
