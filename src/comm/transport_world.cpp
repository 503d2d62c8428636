#include "transport_world.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "gpu_comms.h"
#include "transport_comm.h"

namespace tandem {
namespace {

std::byte* bytes_of(std::string& text) {
  return reinterpret_cast<std::byte*>(text.data());
}
const std::byte* bytes_of(const std::string& text) {
  return reinterpret_cast<const std::byte*>(text.data());
}

// What one rank passed to make_comm, to be compared with what the others passed.
std::string request_of(const std::vector<int>& members, const std::string& name, CommKind kind) {
  constexpr const char* kKinds[] = {"", " staged", " by NCCL"};
  return fmt::format("{} [{}]{}", name, fmt::join(members, ","), kKinds[static_cast<int>(kind)]);
}

}  // namespace

std::unique_ptr<Comm> TransportWorld::make_comm(const std::vector<int>& members,
                                                const std::string& name,
                                                const CommOptions& options) {
  const std::string request = request_of(members, name, options.kind);
  const std::vector<std::string> requests = gather(request);
  std::vector<bool> seen(static_cast<std::size_t>(size()), false);
  for (const int member : members) {
    TANDEM_CHECK(member >= 0, "group {}: ranks of the world", request);
    TANDEM_CHECK(member < size(), "group {}: ranks of the world", request);
    const auto at = static_cast<std::size_t>(member);
    TANDEM_CHECK(!seen[at], "group {}: rank {} is listed twice", request, member);
    seen[at] = true;
    TANDEM_CHECK(requests[at] == request, "rank {} and rank {} name different groups", member,
                 rank());
  }
  TANDEM_CHECK(seen[static_cast<std::size_t>(rank())], "rank {} is not in its own group {}", rank(),
               request);
  auto transport = make_transport(members);
  std::string label = fmt::format("{}@rank{}: ranks {}", name, rank(), fmt::join(members, ","));
  switch (options.kind) {
    case CommKind::kStaged:
      return make_staged_comm(std::move(transport), std::move(label));
    case CommKind::kNccl:
      return make_nccl_comm(*transport, std::move(label), options, abort_state());
    case CommKind::kHost:
      break;
  }
  return std::make_unique<TransportComm>(std::move(transport), std::move(label));
}

void TransportWorld::barrier() {
  (void)gather_numbers(0);
}

std::vector<double> TransportWorld::gather_numbers(double value) {
  std::vector<double> all(static_cast<std::size_t>(size()));
  host_.all_gather(reinterpret_cast<const std::byte*>(&value),
                   reinterpret_cast<std::byte*>(all.data()), sizeof(value));
  return all;
}

double TransportWorld::sum(double value) {
  double total = 0;
  for (const double x : gather_numbers(value)) total += x;
  return total;
}

double TransportWorld::max(double value) {
  const std::vector<double> all = gather_numbers(value);
  double best = all[0];
  for (const double x : all) {
    if (std::isnan(x) || x > best) best = x;
  }
  return best;
}

std::string TransportWorld::broadcast(const std::string& bytes, int root) {
  TANDEM_CHECK(root >= 0, "broadcast root");
  TANDEM_CHECK(root < size(), "broadcast root");
  const bool sender = rank() == root;
  // Sizes first: a receiver must know what to expect.
  const auto length = static_cast<std::size_t>(
      gather_numbers(static_cast<double>(bytes.size()))[static_cast<std::size_t>(root)]);
  std::string result = sender ? bytes : std::string(length, '\0');
  std::vector<Outgoing> sends;
  std::vector<Incoming> recvs;
  if (sender) {
    for (int p = 0; p < size(); ++p) {
      if (p != root) sends.push_back({p, bytes_of(bytes), length});
    }
  } else {
    recvs.push_back({root, bytes_of(result), length});
  }
  host_.transport().exchange(sends, recvs);
  return result;
}

std::vector<std::string> TransportWorld::gather(const std::string& bytes) {
  const std::vector<double> lengths = gather_numbers(static_cast<double>(bytes.size()));
  std::vector<std::string> all(lengths.size());
  std::vector<Outgoing> sends;
  std::vector<Incoming> recvs;
  for (int p = 0; p < size(); ++p) {
    std::string& place = all[static_cast<std::size_t>(p)];
    if (p == rank()) {
      place = bytes;
      continue;
    }
    place.resize(static_cast<std::size_t>(lengths[static_cast<std::size_t>(p)]));
    sends.push_back({p, bytes_of(bytes), bytes.size()});
    recvs.push_back({p, bytes_of(place), place.size()});
  }
  host_.transport().exchange(sends, recvs);
  return all;
}

}  // namespace tandem
