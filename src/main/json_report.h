// What commands write for --json: one object. In those of plan, schedule and check numbers are in
// SI units that their names end with (bytes, _s, _per_s).
#pragma once

#include <string>

#include "tandem/base/json_writer.h"
#include "tandem/config/config.h"

namespace tandem {

// "-" means standard output, and no tables there.
bool instead_of_tables(const std::string& json);

// An object that is open, with the command and the layout of its config.
JsonWriter begin_report(const char* command, const RunConfig& config);

// Ends the object and writes it. Throws Error(kBadInput) where that is impossible.
void end_report(JsonWriter& report, const std::string& file);

// Writes an object that is text already, likewise.
void put_report(const std::string& text, const std::string& file);

}  // namespace tandem
