#include "tandem/base/dtype.h"

namespace tandem {

std::optional<DType> dtype_from_name(std::string_view name) {
  for (DType t : {DType::kF32, DType::kBF16, DType::kF16, DType::kI32, DType::kI64, DType::kU8})
    if (name_of(t) == name) return t;
  return std::nullopt;
}

}  // namespace tandem
