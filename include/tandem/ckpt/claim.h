// One run at a time writes below a checkpoint directory, and a run learns before its first step
// whether it can.
#pragma once

#include <memory>
#include <string>

namespace tandem {

// Holds a checkpoint directory for one run by a lock (flock) on the file .lock in it. The lock ends
// with the process, however that ends; the file stays and holds nobody up.
class CheckpointClaim {
 public:
  // Makes the directory where it is missing. Never waits. Throws Error(kBadInput) when another run
  // holds the directory, naming its process. One that cannot be made or only be read is claimed as
  // far as that goes: reading needs no more, and a trial (below) tells before anything is written.
  explicit CheckpointClaim(const std::string& dir);
  ~CheckpointClaim();
  CheckpointClaim(const CheckpointClaim&) = delete;
  CheckpointClaim& operator=(const CheckpointClaim&) = delete;

  // Why the directory could not be locked though it can be written, as on file systems without
  // locks; empty: it is locked.
  [[nodiscard]] const std::string& warning() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Does in small what a save does, so that it fails where a save would: the rank that leads makes a
// folder, every rank writes a file there, and the one that leads removes all. Call the three in
// turn with the ranks in step. They throw Error(kBadInput) with errno's text and the path.
void begin_trial(const std::string& dir);
void write_trial(const std::string& dir, int rank);
void end_trial(const std::string& dir);

}  // namespace tandem
