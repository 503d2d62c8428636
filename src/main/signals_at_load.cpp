// The handlers of `tandem train` are there before the shared libraries start, which takes a
// multiple of the time until then: a job's first signal may come while its ranks still load.
#include <string_view>

#include "tandem/train/signals.h"

namespace tandem {
namespace {

void on_load(int argc, char** argv, char** /*environment*/) {
  if (argc > 1 && std::string_view(argv[1]) == "train") install_signal_handlers();
}

// What the loader calls in an executable before any constructor of a library.
__attribute__((section(".preinit_array"), used)) void (*const kOnLoad)(int, char**,
                                                                       char**) = on_load;

}  // namespace
}  // namespace tandem
