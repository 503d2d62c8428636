#include <fmt/format.h>

#include <iterator>

#include "tandem/schedule/program.h"

namespace tandem {
namespace {

using Out = fmt::memory_buffer;

void put(Out& out, std::string_view text) {
  out.append(text.data(), text.data() + text.size());
}

void put_number(Out& out, std::string_view prefix, int number) {
  put(out, prefix);
  const fmt::format_int digits(number);
  out.append(digits.data(), digits.data() + digits.size());
}

void put_field(Out& out, std::string_view prefix, int number) {
  if (number >= 0) put_number(out, prefix, number);
}

void put_event(Out& out, const EventId& event) {
  put(out, " ");
  put(out, name_of(event.dir));
  put(out, ":");
  put(out, name_of(event.lane));
}

void put_use(Out& out, const Slot& slot, Access access) {
  constexpr std::string_view prefixes[] = {" r:", " w:", " a:"};
  put(out, prefixes[static_cast<int>(access)]);
  put(out, name_of(slot.kind));
  put_number(out, ".c", slot.chunk);
  put_field(out, ".m", slot.microbatch);
  put_field(out, ".l", slot.layer);
  put_field(out, "@", slot.buffer);
}

// An event of the instruction's own direction needs no direction in front.
void put_event_instr(Out& out, const Instr& instr) {
  if (instr.event.dir != instr.dir) {
    put(out, " ");
    put(out, name_of(instr.dir));
  }
  put_event(out, instr.event);
}

void put_instr(Out& out, const Program& program, const Instr& instr) {
  put(out, name_of(instr.op));
  put(out, " ");
  put(out, name_of(instr.lane));
  if (instr.op == Op::kRecord || instr.op == Op::kWait) return put_event_instr(out, instr);
  put(out, " ");
  put(out, name_of(instr.dir));
  put_field(out, " c", instr.chunk);
  put_field(out, " m", instr.microbatch);
  put_field(out, " l", instr.layer);
  if (instr.op == Op::kRun) {
    put(out, " ");
    put(out, name_of(instr.node));
    put(out, ".");
    put(out, name_of(instr.phase));
    if (instr.moe) put(out, " moe");
  }
  if (instr.op == Op::kHostWait) put_event(out, instr.event);
  if (instr.op == Op::kSend) put_number(out, " to ", instr.peer);
  if (instr.op == Op::kRecv) put_number(out, " from ", instr.peer);
  for (const SlotAccess& use : instr.uses)
    put_use(out, program.slots[static_cast<std::size_t>(use.slot)], use.access);
}

}  // namespace

std::string_view name_of(Op op) {
  constexpr std::string_view names[] = {"RUN",  "RECORD",    "WAIT",      "SEND",
                                        "RECV", "HOST_WAIT", "GRAD_SYNC", "OPT_STEP"};
  return names[static_cast<int>(op)];
}

std::string to_text(const Program& program, const Instr& instr) {
  Out out;
  put_instr(out, program, instr);
  return fmt::to_string(out);
}

std::string to_text(const Program& program) {
  Out out;
  fmt::format_to(std::back_inserter(out),
                 "program stage={} pp={} vpp={} microbatches={} buffers={}\n", program.stage,
                 program.pp, program.vpp, program.microbatches, program.num_buffers);
  for (const Instr& instr : program.instrs) {
    put_instr(out, program, instr);
    put(out, "\n");
  }
  return fmt::to_string(out);
}

std::uint64_t hash_of(const Program& program) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : to_text(program)) {
    hash ^= static_cast<unsigned char>(c);
    hash *= 0x100000001b3u;
  }
  return hash;
}

}  // namespace tandem
