#include "json_report.h"

#include <fmt/core.h>

#include "tandem/base/atomic_file.h"

namespace tandem {

bool instead_of_tables(const std::string& json) {
  return json == "-";
}

JsonWriter begin_report(const char* command, const RunConfig& config) {
  const ParallelConfig& p = config.parallel;
  JsonWriter json(1);
  json.begin_object().key("command").value(command);
  json.key("layout").begin_object().key("ranks").value(config.world());
  json.key("pp").value(p.pp).key("dp").value(p.dp).key("ep").value(p.ep);
  json.key("expert_dp").value(p.dp / p.ep).key("vpp").value(p.vpp);
  json.key("global_batch").value(config.train.global_batch);
  json.key("micro_batch").value(config.train.micro_batch);
  json.key("microbatches").value(config.microbatches()).end_object();
  return json;
}

void end_report(JsonWriter& report, const std::string& file) {
  put_report(report.end_object().str() + "\n", file);
}

void put_report(const std::string& text, const std::string& file) {
  if (instead_of_tables(file))
    fmt::print("{}", text);
  else
    replace_file(file, text);
}

}  // namespace tandem
