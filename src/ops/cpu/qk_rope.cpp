// What is done to the q and k columns of qkv [T, q + 2 kv] before attention: QK norm and RoPE.
#include <vector>

#include "norm_row.h"
#include "tandem/ops/cpu.h"

namespace tandem::cpu {
namespace {

void check_qkv(const View& qkv, const ops::HeadShape& shape, const char* what) {
  TANDEM_CHECK(qkv.cols == (shape.heads + 2 * shape.kv_heads) * shape.head_dim,
               "{}: columns of qkv", what);
  TANDEM_CHECK(shape.seq_len > 0, "{}: seq_len", what);
  TANDEM_CHECK(qkv.rows % shape.seq_len == 0, "{}: rows of qkv are whole sequences of {}", what,
               shape.seq_len);
}

// The pieces of a row that are normalised on their own: q pieces, then k pieces.
struct Pieces {
  std::int64_t q_count, k_count, q_width, k_width;
  Pieces(const ops::HeadShape& s, bool full)
      : q_count(full ? 1 : s.heads),
        k_count(full ? 1 : s.kv_heads),
        q_width(full ? s.heads * s.head_dim : s.head_dim),
        k_width(full ? s.kv_heads * s.head_dim : s.head_dim) {}
  [[nodiscard]] std::int64_t count() const { return q_count + k_count; }
  [[nodiscard]] bool is_q(std::int64_t i) const { return i < q_count; }
  [[nodiscard]] std::int64_t width(std::int64_t i) const { return is_q(i) ? q_width : k_width; }
  [[nodiscard]] std::int64_t begin(std::int64_t i) const {
    return is_q(i) ? i * q_width : q_count * q_width + (i - q_count) * k_width;
  }
};

template <class Op>
void check_qk(const Op& op, const View& qkv, const Pieces& pieces) {
  check_qkv(qkv, op.shape, "qk norm");
  const std::int64_t width = (op.shape.heads + op.shape.kv_heads) * op.shape.head_dim;
  expect(op.raw, qkv.dtype, qkv.rows, width, "qk norm: raw");
  expect_vector(op.w_q, qkv.dtype, pieces.q_width, "qk norm: w_q");
  expect_vector(op.w_k, qkv.dtype, pieces.k_width, "qk norm: w_k");
  expect(op.rstd, DType::kF32, qkv.rows, pieces.count(), "qk norm: rstd");
}

// cos and sin of every position and pair, [seq_len][2][half].
struct RopeTable {
  std::int64_t seq_len = 0, head_dim = 0;
  double theta = 0;
  std::vector<float> values;

  void prepare(const ops::HeadShape& shape, double base) {
    if (seq_len == shape.seq_len && head_dim == shape.head_dim && theta == base) return;
    seq_len = shape.seq_len;
    head_dim = shape.head_dim;
    theta = base;
    const std::int64_t half = head_dim / 2;
    values.resize(static_cast<std::size_t>(seq_len * 2 * half));
    for (std::int64_t j = 0; j < half; ++j) {
      const double rate =
          std::pow(theta, -2.0 * static_cast<double>(j) / static_cast<double>(head_dim));
      for (std::int64_t p = 0; p < seq_len; ++p) {
        const double angle = static_cast<double>(p) * rate;
        values[static_cast<std::size_t>((2 * p) * half + j)] = static_cast<float>(std::cos(angle));
        values[static_cast<std::size_t>((2 * p + 1) * half + j)] =
            static_cast<float>(std::sin(angle));
      }
    }
  }
};

template <class T>
void rotate(T* head, const float* cosine, const float* sine, float direction, std::int64_t half) {
  for_lanes(half, [&](std::int64_t j, auto lanes) {
    const Vec a = load(head + j, lanes), b = load(head + half + j, lanes);
    const Vec c = load(cosine + j, lanes), s = load(sine + j, lanes) * direction;
    store(head + j, a * c - b * s, lanes);
    store(head + half + j, b * c + a * s, lanes);
  });
}

}  // namespace

void run(const ops::QkNormFwd& op, Workers& workers) {
  const Pieces pieces(op.shape, op.full);
  check_qk(op, op.qkv, pieces);
  const std::int64_t width = op.raw.cols;
  with_element(op.qkv, "qk norm: qkv", [&]<class T>(Tag<T>) {
    for_rows(workers, op.qkv.rows, 3 * width, [&](std::int64_t t) {
      T* row = op.qkv.as<T>() + t * op.qkv.cols;
      std::copy_n(row, width, op.raw.as<T>() + t * width);
      for (std::int64_t i = 0; i < pieces.count(); ++i) {
        T* x = row + pieces.begin(i);
        const float rstd = inverse_rms(x, pieces.width(i), op.eps);
        op.rstd.as<float>()[t * pieces.count() + i] = rstd;
        apply_norm(x, (pieces.is_q(i) ? op.w_q : op.w_k).as<T>(), rstd, x, pieces.width(i));
      }
    });
  });
}

void run(const ops::QkNormBwd& op, Workers& workers) {
  const Pieces pieces(op.shape, op.full);
  check_qk(op, op.d_qkv, pieces);
  expect_vector(op.d_w_q, DType::kF32, pieces.q_width, "qk norm backward: d_w_q");
  expect_vector(op.d_w_k, DType::kF32, pieces.k_width, "qk norm backward: d_w_k");
  const std::int64_t width = op.raw.cols, w_width = pieces.q_width + pieces.k_width;
  struct Both;
  float* d_w = scratch<Both>(w_width);
  std::copy_n(op.d_w_q.as<float>(), pieces.q_width, d_w);
  std::copy_n(op.d_w_k.as<float>(), pieces.k_width, d_w + pieces.q_width);
  with_element(op.d_qkv, "qk norm backward: d_qkv", [&]<class T>(Tag<T>) {
    sum_over_rows(workers, op.d_qkv.rows, w_width, d_w, [&](std::int64_t t, float* partial) {
      for (std::int64_t i = 0; i < pieces.count(); ++i) {
        T* d = op.d_qkv.as<T>() + t * op.d_qkv.cols + pieces.begin(i);
        norm_backward<T>(d, op.raw.as<T>() + t * width + pieces.begin(i),
                         (pieces.is_q(i) ? op.w_q : op.w_k).as<T>(),
                         op.rstd.as<float>()[t * pieces.count() + i], nullptr, d,
                         pieces.is_q(i) ? partial : partial + pieces.q_width, pieces.width(i));
      }
    });
  });
  std::copy_n(d_w, pieces.q_width, op.d_w_q.as<float>());
  std::copy_n(d_w + pieces.q_width, pieces.k_width, op.d_w_k.as<float>());
}

void run(const ops::Rope& op, Workers& workers) {
  check_qkv(op.qkv, op.shape, "rope");
  TANDEM_CHECK(op.shape.head_dim % 2 == 0, "rope: head_dim is even");
  if (op.qkv.rows == 0) return;
  // The table of the last shape stays with the thread: layers ask for the same one again and again.
  thread_local RopeTable table;
  table.prepare(op.shape, op.theta);
  const float* values = table.values.data();
  const std::int64_t half = op.shape.head_dim / 2, rotated = op.shape.heads + op.shape.kv_heads;
  with_element(op.qkv, "rope: qkv", [&]<class T>(Tag<T>) {
    for_rows(workers, op.qkv.rows, 2 * rotated * half, [&](std::int64_t t) {
      const float* cosine = values + (t % op.shape.seq_len) * 2 * half;
      for (std::int64_t h = 0; h < rotated; ++h)
        rotate(op.qkv.as<T>() + t * op.qkv.cols + h * 2 * half, cosine, cosine + half,
               op.inverse ? -1.0F : 1.0F, half);
    });
  });
}

}  // namespace tandem::cpu
