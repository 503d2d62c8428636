#include <algorithm>

#include "tandem/base/error.h"
#include "tandem/base/rng.h"
#include "tandem/model/params.h"

namespace tandem {
void init_values(const Param& param, std::uint64_t seed, std::int64_t begin, std::int64_t count,
                 float* out) {
  TANDEM_CHECK(begin >= 0, "{}: first element", param.name);
  TANDEM_CHECK(count >= 0, "{}: number of elements", param.name);
  TANDEM_CHECK(begin + count <= param.global_size, "{}: past the tensor's end", param.name);
  if (param.init_std == 0.0) {
    std::fill_n(out, count, param.fill);
    return;
  }
  philox_normals(seed, stream_id(param.name.c_str()), begin, count, param.init_std, out);
}

}  // namespace tandem
