#include "tandem/comm/comm.h"

namespace tandem {

std::string_view name_of(AllToAllPath path) {
  switch (path) {
    case AllToAllPath::kPlain:
      return "plain";
    case AllToAllPath::kWindow:
      return "window";
    case AllToAllPath::kPadded:
      return "padded";
    case AllToAllPath::kPaddedCopies:
      return "padded_copies";
  }
  return "?";
}

}  // namespace tandem
