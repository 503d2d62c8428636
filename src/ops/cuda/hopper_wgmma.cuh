// Hopper's warpgroup product: 64 x 256 or 64 x 192 outputs, 16 deep, operands in shared memory.
// Private.
//
// Both operands are bf16 or both f16, in boxes of 64 elements = 128-byte rows with TMA's 128-byte
// swizzle, 1024-byte aligned. "Straight" operands have the depth along the row, "crossed" ones
// across: the row is then the output's row (left operand) or column (right operand), 64 of them a
// box.
#pragma once

#include <cstdint>
#include <type_traits>

#include "hopper_ptx.cuh"
#include "kernel.cuh"

namespace tandem::cuda::hopper {

inline constexpr int kBoxRow = 64;                       // elements of one box row: 128 bytes
inline constexpr int kBoxBytes = kBoxRow * kBoxRow * 2;  // of a box of 64 rows

// Thread t of a warpgroup holds, for every 8 columns j, rows 16 (t / 32) + t % 32 / 4 + {0, 8} and
// columns 8 j + 2 (t % 4) + {0, 1}: v[4 j + 2 * {row} + {column}].
template <int Cols>
struct Outputs {
  float v[Cols / 2];
};

// Where an operand begins and how its 8-row groups and boxes follow each other. The last bit
// pattern says 128-byte swizzle; fields are in units of 16 bytes.
template <bool Crossed>
__device__ __forceinline__ std::uint64_t operand(const void* at) {
  constexpr std::uint64_t kNextGroup = 8 * 128 / 16;
  constexpr std::uint64_t kNextBox = Crossed ? kBoxBytes / 16 : 1;  // straight: not used
  return std::uint64_t{(shared_address(at) & 0x3FFFF) >> 4} | kNextBox << 16 | kNextGroup << 32 |
         std::uint64_t{1} << 62;
}

// How far the next 16 of the depth are: 16 elements along the row, or 16 rows.
template <bool Crossed>
inline constexpr std::uint64_t kNextDepth = Crossed ? 16 * 128 / 16 : 16 * 2 / 16;

#define TANDEM_OUTPUT_8(i)                                                                      \
  "+f"(d.v[i]), "+f"(d.v[(i) + 1]), "+f"(d.v[(i) + 2]), "+f"(d.v[(i) + 3]), "+f"(d.v[(i) + 4]), \
      "+f"(d.v[(i) + 5]), "+f"(d.v[(i) + 6]), "+f"(d.v[(i) + 7])
#define TANDEM_OUTPUT_32(i) \
  TANDEM_OUTPUT_8(i), TANDEM_OUTPUT_8((i) + 8), TANDEM_OUTPUT_8((i) + 16), TANDEM_OUTPUT_8((i) + 24)

#define TANDEM_NAMES_96                                                         \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, " \
  "%17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, " \
  "%47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, " \
  "%62, %63, %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, " \
  "%77, %78, %79, %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, " \
  "%92, %93, %94, %95"
#define TANDEM_NAMES_128                                                               \
  TANDEM_NAMES_96                                                                      \
      ", "                                                                             \
      "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, "     \
      "%109, %110, %111, %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, " \
      "%122, %123, %124, %125, %126, %127"

// The instruction; `type` is what PTX calls the operands' type, the numbers are those of the
// operands behind the outputs.
#define TANDEM_MULTIPLY_16(cols, type, names, a, b, c, e, f, ...)                           \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" c                                       \
               ", 0;\n"                                                                     \
               "wgmma.mma_async.sync.aligned.m64n" cols "k16.f32." type "." type " {" names \
               "}, "                                                                        \
               "%" a ", %" b ", p, 1, 1, %" e ", %" f ";\n}"                                \
               : __VA_ARGS__                                                                \
               : "l"(left), "l"(right), "r"(static_cast<int>(keep)), "n"(LeftCrossed),      \
                 "n"(RightCrossed))
#define TANDEM_MULTIPLY_256(type)                                                      \
  TANDEM_MULTIPLY_16("256", type, TANDEM_NAMES_128, "128", "129", "130", "131", "132", \
                     TANDEM_OUTPUT_32(0), TANDEM_OUTPUT_32(32), TANDEM_OUTPUT_32(64),  \
                     TANDEM_OUTPUT_32(96))
#define TANDEM_MULTIPLY_192(type)                                                 \
  TANDEM_MULTIPLY_16("192", type, TANDEM_NAMES_96, "96", "97", "98", "99", "100", \
                     TANDEM_OUTPUT_32(0), TANDEM_OUTPUT_32(32), TANDEM_OUTPUT_32(64))

// d = left right + (keep ? d : 0), asynchronously.
template <class T, bool LeftCrossed, bool RightCrossed, int Cols>
__device__ __forceinline__ void multiply_16(Outputs<Cols>& d, std::uint64_t left,
                                            std::uint64_t right, bool keep) {
  static_assert(std::is_same_v<T, bf16> || std::is_same_v<T, f16>);
  static_assert(Cols == 256 || Cols == 192);
  constexpr bool kBf16 = std::is_same_v<T, bf16>;
  if constexpr (Cols == 256 && kBf16) {
    TANDEM_MULTIPLY_256("bf16");
  } else if constexpr (Cols == 256) {
    TANDEM_MULTIPLY_256("f16");
  } else if constexpr (kBf16) {
    TANDEM_MULTIPLY_192("bf16");
  } else {
    TANDEM_MULTIPLY_192("f16");
  }
}

#undef TANDEM_MULTIPLY_192
#undef TANDEM_MULTIPLY_256
#undef TANDEM_MULTIPLY_16
#undef TANDEM_NAMES_128
#undef TANDEM_NAMES_96
#undef TANDEM_OUTPUT_32
#undef TANDEM_OUTPUT_8

// The compiler may not move accesses to the outputs across: wgmma writes them behind its back.
template <int Cols>
__device__ __forceinline__ void pin(Outputs<Cols>& d) {
#pragma unroll
  for (int i = 0; i < Cols / 2; ++i) asm volatile("" : "+f"(d.v[i])::"memory");
}

// Between other accesses to the outputs and the first product that uses them.
__device__ __forceinline__ void begin_products() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
// Ends a group of products.
__device__ __forceinline__ void commit_products() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
// Until at most Pending groups are still running.
template <int Pending>
__device__ __forceinline__ void wait_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(Pending) : "memory");
}

}  // namespace tandem::cuda::hopper
