// For those who must end a job whether or not anybody reads what they say.
#pragma once

namespace tandem {

// Whether standard error takes a few lines. Waits for its reader for a second; after a false, say
// nothing there: it would block, perhaps for ever.
[[nodiscard]] bool stderr_is_read();

}  // namespace tandem
