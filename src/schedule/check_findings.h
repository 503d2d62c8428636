// Where the parts of the checker put what they find. Texts are built for kept findings only, so a
// program with very many faults costs no more than a sound one.
#pragma once

#include <fmt/core.h>

#include <functional>
#include <string>
#include <vector>

#include "tandem/schedule/check.h"

namespace tandem::checking {

class Findings {
 public:
  Findings(CheckReport& report, int max_findings)
      : report_(report), max_(static_cast<std::size_t>(max_findings < 0 ? 0 : max_findings)) {}

  template <class Describe>  // () -> std::string
  void add(Finding::Kind kind, int stage, Describe&& describe) {
    ++report_.total_findings;
    if (report_.findings.size() < max_) report_.findings.push_back({kind, stage, describe()});
  }

 private:
  CheckReport& report_;
  std::size_t max_;
};

// "stage 1 line 12 [RUN compute F ...]"; the line is the one in to_text(program).
std::string locate(const Program& program, std::int32_t instr);

// Races, lifetimes, events, token counts of one stage; counts waits and records.
void check_order(const Program& program, Findings& findings, CheckReport& report);

// Sends against receives, collectives against each other; over all stages.
void check_transfers(const std::vector<Program>& by_stage, Findings& findings);
void check_collectives(const std::vector<Program>& by_stage, Findings& findings);

// Runs all stages with rendezvous transfers.
void check_progress(const std::vector<Program>& by_stage, Findings& findings);

}  // namespace tandem::checking
