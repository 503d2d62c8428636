// Rectangles of a View as fp32 panels: fp32 storage is used in place, 16-bit storage goes
// through a spare buffer that the caller provides.
#pragma once

#include "blas.h"
#include "simd.h"

namespace tandem::cpu {

struct Rect {
  std::int64_t row, col, rows, cols;
  [[nodiscard]] std::int64_t size() const { return rows * cols; }
};

// The rectangle for reading. `spare` holds at least rect.size() floats.
inline Panel read_panel(const View& view, Rect rect, float* spare) {
  const std::int64_t first = rect.row * view.cols + rect.col;
  if (view.dtype == DType::kF32) return {view.as<float>() + first, view.cols};
  with_element(view, "panel", [&]<class T>(Tag<T>) {
    const T* from = view.as<T>() + first;
    for (std::int64_t i = 0; i < rect.rows; ++i)
      for_lanes(rect.cols, [&](std::int64_t j, auto lanes) {
        store(spare + i * rect.cols + j, load(from + i * view.cols + j, lanes), lanes);
      });
  });
  return {spare, rect.cols};
}

// Where to write the rectangle; finish_panel() then brings it home.
inline Panel write_panel(const View& view, Rect rect, float* spare) {
  if (view.dtype == DType::kF32)
    return {view.as<float>() + rect.row * view.cols + rect.col, view.cols};
  return {spare, rect.cols};
}

inline void write_rect(const View& view, Rect rect, Panel panel) {
  const std::int64_t first = rect.row * view.cols + rect.col;
  with_element(view, "panel", [&]<class T>(Tag<T>) {
    T* to = view.as<T>() + first;
    for (std::int64_t i = 0; i < rect.rows; ++i)
      for_lanes(rect.cols, [&](std::int64_t j, auto lanes) {
        store(to + i * view.cols + j, load(panel.data + i * panel.stride + j, lanes), lanes);
      });
  });
}

inline void finish_panel(const View& view, Rect rect, Panel panel) {
  if (view.dtype != DType::kF32) write_rect(view, rect, panel);
}

}  // namespace tandem::cpu
