#include "simd.h"
#include "split.h"
#include "tandem/base/rng.h"
#include "tandem/ops/cpu.h"

namespace tandem::cpu {

void run(const ops::InitNormal& op, Workers& workers) {
  with_element(op.out, "init", [&]<class T>(Tag<T>) {
    for_blocks(workers, op.out.size(), [&](std::int64_t begin, std::int64_t end) {
      struct Piece;
      float* values = scratch<Piece>(end - begin);
      philox_normals(op.seed, op.stream, op.begin + begin, end - begin, op.scale, values);
      for_lanes(end - begin, [&](std::int64_t i, auto lanes) {
        store(op.out.as<T>() + begin + i, load(values + i, lanes), lanes);
      });
    });
  });
}

}  // namespace tandem::cpu
