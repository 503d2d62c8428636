// Causal grouped-query attention as matrix products on blocks of query rows. A block of rows
// [first, end) sees keys [0, end): blocks above the diagonal are never touched, and the keys above
// the diagonal of the last square are masked.
#include "panel.h"
#include "split.h"
#include "tandem/ops/cpu.h"

namespace tandem::cpu {
namespace {

constexpr std::int64_t kBlock = 64;  // query rows

struct Scores;
struct HeadCopies;
struct KeyGradients;

// One head of one sequence: where its rectangles lie in qkv and out.
struct Head {
  std::int64_t sequence, head, kv_head;
  ops::HeadShape shape;

  [[nodiscard]] Rect at(std::int64_t column_head, std::int64_t first, std::int64_t end) const {
    return {sequence * shape.seq_len + first, column_head * shape.head_dim, end - first,
            shape.head_dim};
  }
  [[nodiscard]] Rect q(std::int64_t first, std::int64_t end) const { return at(head, first, end); }
  [[nodiscard]] Rect k() const { return at(shape.heads + kv_head, 0, shape.seq_len); }
  [[nodiscard]] Rect v() const {
    return at(shape.heads + shape.kv_heads + kv_head, 0, shape.seq_len);
  }
};

float scale_of(const ops::HeadShape& shape) {
  return 1.0F / std::sqrt(static_cast<float>(shape.head_dim));
}

template <class Op>
std::int64_t check_shapes(const Op& op) {
  const ops::HeadShape& s = op.shape;
  TANDEM_CHECK(s.kv_heads > 0, "attention: kv_heads");
  TANDEM_CHECK(s.heads % s.kv_heads == 0, "attention: heads per kv head");
  TANDEM_CHECK(s.seq_len > 0, "attention: seq_len");
  TANDEM_CHECK(op.qkv.cols == (s.heads + 2 * s.kv_heads) * s.head_dim, "attention: columns");
  TANDEM_CHECK(op.qkv.rows % s.seq_len == 0, "attention: rows are whole sequences");
  expect(op.out, op.qkv.dtype, op.qkv.rows, s.heads * s.head_dim, "attention: out");
  expect(op.lse, DType::kF32, op.qkv.rows, s.heads, "attention: lse");
  return op.qkv.rows / s.seq_len;
}

// Rows of scores lie whole vectors apart, so that loops over them have no tails.
std::int64_t whole_vectors(std::int64_t n) {
  return (n + kLanes - 1) / kLanes * kLanes;
}

// Hides the scores behind the diagonal up to the next whole vector, whose end it returns: they
// will become e^-inf = 0. What lies beyond becomes 0 at once.
std::int64_t mask_row(float* score, std::int64_t visible, std::int64_t width) {
  const std::int64_t end = whole_vectors(visible);
  std::fill(score + visible, score + end, -std::numeric_limits<float>::infinity());
  std::fill(score + end, score + width, 0.0F);
  return end;
}

// A row of scores becomes e^(score - max) with zeros behind the diagonal. Returns the sum and sets
// lse.
float softmax_row(float* score, std::int64_t visible, std::int64_t width, float& lse) {
  const std::int64_t n = mask_row(score, visible, width);
  const float largest = max_of(score, n);
  const float total = exp_of(score, largest, score, n);
  lse = largest + std::log(total);
  return total;
}

void scale_row(float* x, float factor, std::int64_t n) {
  for_lanes(n,
            [&](std::int64_t i, auto lanes) { store(x + i, load(x + i, lanes) * factor, lanes); });
}

void head_forward(const ops::AttentionFwd& op, const Head& head) {
  const std::int64_t seq = op.shape.seq_len, dim = op.shape.head_dim;
  float* scores = scratch<Scores>(kBlock * whole_vectors(seq));
  float* spare = scratch<HeadCopies>(2 * seq * dim + 2 * kBlock * dim);
  const Panel k = read_panel(op.qkv, head.k(), spare);
  const Panel v = read_panel(op.qkv, head.v(), spare + seq * dim);
  float* q_spare = spare + 2 * seq * dim;
  for (std::int64_t first = 0; first < seq; first += kBlock) {
    const std::int64_t end = std::min(seq, first + kBlock), rows = end - first;
    const Panel p{scores, whole_vectors(end)};
    const Rect rect = head.q(first, end);
    const Panel q = read_panel(op.qkv, rect, q_spare);
    const Panel out = write_panel(op.out, rect, q_spare + kBlock * dim);
    sgemm(false, true, rows, end, dim, scale_of(op.shape), q, k, false, p);
    float total[kBlock];
    for (std::int64_t i = 0; i < rows; ++i)
      total[i] = softmax_row(p.data + i * p.stride, first + i + 1, p.stride,
                             op.lse.as<float>()[(rect.row + i) * op.shape.heads + head.head]);
    sgemm(false, false, rows, dim, end, 1, p, v, false, out);
    for (std::int64_t i = 0; i < rows; ++i)
      scale_row(out.data + i * out.stride, 1.0F / total[i], dim);
    finish_panel(op.out, rect, out);
  }
}

float dot(const float* a, const float* b, std::int64_t n) {
  Vec total{};
  for_lanes(n,
            [&](std::int64_t i, auto lanes) { total += load(a + i, lanes) * load(b + i, lanes); });
  return sum(total);
}

// From a row of scores and of d_p: p = e^(score - lse) and d_score = p (d_p - delta), zeros behind
// the diagonal.
void backward_row(float* score, float* d_p, float lse, float delta, std::int64_t visible,
                  std::int64_t width) {
  const std::int64_t n = mask_row(score, visible, width);
  std::fill(d_p + visible, d_p + width, 0.0F);
  for_lanes(n, [&](std::int64_t j, auto lanes) {
    const Vec p = exp(load(score + j, lanes) - lse);
    store(d_p + j, p * (load(d_p + j, lanes) - delta), lanes);
    store(score + j, p, lanes);
  });
}

struct KeyPanels {
  Panel k, v, d_k, d_v;
};

void block_backward(const ops::AttentionBwd& op, const Head& head, const KeyPanels& keys,
                    std::int64_t first, float* spare) {
  const std::int64_t seq = op.shape.seq_len, dim = op.shape.head_dim;
  const std::int64_t end = std::min(seq, first + kBlock), rows = end - first;
  const std::int64_t stride = whole_vectors(end);
  const float scale = scale_of(op.shape);
  float* scores = scratch<Scores>(2 * kBlock * stride);
  const Panel p{scores, stride}, d_s{scores + kBlock * stride, stride};
  const Rect rect = head.q(first, end);
  const Panel q = read_panel(op.qkv, rect, spare);
  const Panel out = read_panel(op.out, rect, spare + kBlock * dim);
  const Panel d_out = read_panel(op.d_out, rect, spare + 2 * kBlock * dim);
  const Panel d_q = write_panel(op.d_qkv, rect, spare + 3 * kBlock * dim);
  sgemm(false, true, rows, end, dim, scale, q, keys.k, false, p);
  sgemm(false, true, rows, end, dim, 1, d_out, keys.v, false, d_s);
  for (std::int64_t i = 0; i < rows; ++i) {
    const float delta = dot(out.data + i * out.stride, d_out.data + i * d_out.stride, dim);
    const float lse = op.lse.as<float>()[(rect.row + i) * op.shape.heads + head.head];
    backward_row(p.data + i * stride, d_s.data + i * stride, lse, delta, first + i + 1, stride);
  }
  sgemm(true, false, end, dim, rows, 1, p, d_out, true, keys.d_v);
  sgemm(true, false, end, dim, rows, scale, d_s, q, true, keys.d_k);
  sgemm(false, false, rows, dim, end, scale, d_s, keys.k, false, d_q);
  finish_panel(op.d_qkv, rect, d_q);
}

// All heads that share one kv head, one after the other: their key gradients add up in order.
void kv_head_backward(const ops::AttentionBwd& op, std::int64_t sequence, std::int64_t kv_head) {
  const std::int64_t seq = op.shape.seq_len, dim = op.shape.head_dim;
  const std::int64_t shared = op.shape.heads / op.shape.kv_heads;
  float* spare = scratch<HeadCopies>(2 * seq * dim + 4 * kBlock * dim);
  float* gradients = scratch<KeyGradients>(2 * seq * dim);
  const Head any{sequence, kv_head * shared, kv_head, op.shape};
  const KeyPanels keys{read_panel(op.qkv, any.k(), spare),
                       read_panel(op.qkv, any.v(), spare + seq * dim),
                       {gradients, dim},
                       {gradients + seq * dim, dim}};
  std::fill_n(gradients, 2 * seq * dim, 0.0F);
  for (std::int64_t j = 0; j < shared; ++j)
    for (std::int64_t first = 0; first < seq; first += kBlock)
      block_backward(op, {sequence, kv_head * shared + j, kv_head, op.shape}, keys, first,
                     spare + 2 * seq * dim);
  write_rect(op.d_qkv, any.k(), keys.d_k);
  write_rect(op.d_qkv, any.v(), keys.d_v);
}

}  // namespace

void run(const ops::AttentionFwd& op, Workers& workers) {
  const std::int64_t sequences = check_shapes(op), heads = op.shape.heads;
  const std::int64_t shared = heads / op.shape.kv_heads;
  for_each_piece(workers, sequences * heads, [&](std::int64_t i) {
    head_forward(op, {i / heads, i % heads, i % heads / shared, op.shape});
  });
}

void run(const ops::AttentionBwd& op, Workers& workers) {
  const std::int64_t sequences = check_shapes(op), kv_heads = op.shape.kv_heads;
  expect(op.d_out, op.qkv.dtype, op.out.rows, op.out.cols, "attention backward: d_out");
  expect(op.d_qkv, op.qkv.dtype, op.qkv.rows, op.qkv.cols, "attention backward: d_qkv");
  for_each_piece(workers, sequences * kv_heads,
                 [&](std::int64_t i) { kv_head_backward(op, i / kv_heads, i % kv_heads); });
}

}  // namespace tandem::cpu
