// What is printed reaches its reader, or the command fails.
#pragma once

namespace tandem {

// Call first: standard input and error that were closed become /dev/null, so that no file of the
// run takes their number; a write beyond the limit of file sizes (ulimit -f) fails and is told as
// others are, instead of killing. Says so and returns false where standard output is closed.
bool open_standard_streams();

// Flushes standard output. Returns `code`, or, where output was lost in a command that went well
// otherwise, says so and returns that of ExitCode::kBadInput. Ends the process with that code where
// nobody reads and a thread is stuck in writing.
int with_output_written(int code);

}  // namespace tandem
