#include "non_finite.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <span>

namespace tandem {
namespace {

std::string slower(const RunConfig& config) {
  return fmt::format("Lower optimizer.lr, raise optimizer.warmup_steps, or {} optimizer.clip",
                     config.optimizer.clip > 0.0 ? "lower" : "set");
}

// NaN without the sign that it happens to have.
std::string figure(double x) {
  return std::isnan(x) ? "nan" : fmt::format("{:.4f}", x);
}

// The bits of the least absolute value that rounds to infinity in `storage`; NaN's lie above.
std::uint32_t infinite_from(DType storage) {
  constexpr float kF16 = 65520.0F;
  constexpr std::uint32_t kBF16 = 0x7F7F8000U, kF32 = 0x7F800000U;
  if (storage == DType::kF16) return std::bit_cast<std::uint32_t>(kF16);
  return storage == DType::kBF16 ? kBF16 : kF32;
}

enum class Sign { kAny, kNotNegative };

bool sound(float x, std::uint32_t infinite, Sign sign) {
  return (std::bit_cast<std::uint32_t>(x) & 0x7FFFFFFFU) < infinite &&
         (sign == Sign::kAny || x >= 0.0F);
}

// Whole blocks first: the check of a block is a loop without an exit, which becomes vector code.
std::size_t first_unsound(std::span<const float> values, std::uint32_t infinite, Sign sign) {
  // With its sign bit, a negative value lies above the infinite ones.
  const std::uint32_t counted = sign == Sign::kAny ? 0x7FFFFFFFU : 0xFFFFFFFFU;
  constexpr std::size_t kBlock = 4096;
  for (std::size_t begin = 0; begin < values.size(); begin += kBlock) {
    const auto block = values.subspan(begin, std::min(kBlock, values.size() - begin));
    std::uint32_t most = 0;
    for (const float x : block) most = std::max(most, std::bit_cast<std::uint32_t>(x) & counted);
    if (most < infinite) continue;
    for (std::size_t i = 0; i < block.size(); ++i)
      if (!sound(block[i], infinite, sign)) return begin + i;
  }
  return values.size();
}

std::string value_text(float x, DType storage, Sign sign) {
  if (std::isnan(x)) return "nan";
  if (std::isinf(x)) return "infinite";
  if (sign == Sign::kNotNegative && x < 0.0F)
    return fmt::format("{}, a negative mean of squares", x);
  return fmt::format("{}, infinite in {}", x, name_of(storage));
}

// The loss scale is applied after the forward pass: it cannot have spoilt the loss.
std::string way_out_of_fp16(const LossScaler& scaler, double loss) {
  if (!scaler.active()) return "";
  if (!std::isfinite(loss)) return "; or set train.dtype=bf16, whose range is that of fp32";
  return fmt::format(
      "; the loss scale was {}: give fp16 a lower optimizer.loss_scale or "
      "optimizer.min_loss_scale, or set train.dtype=bf16, whose range is that of fp32",
      scaler.scale());
}

// The coefficients of the router's losses that are set; "" where none is.
std::string router_losses(const ModelConfig& model) {
  std::string text;
  const auto add = [&](const char* key, double value) {
    if (value > 0.0) text += fmt::format("{}{} = {}", text.empty() ? "" : " and ", key, value);
  };
  if (model.experts > 0) {
    add("model.aux_loss_coef", model.aux_loss_coef);
    add("model.z_loss_coef", model.z_loss_coef);
  }
  return text;
}

std::string way_out(const NonFiniteStep& step, const RunConfig& config, bool parameter,
                    bool nowhere) {
  std::string text = step.index == 0
                         ? "No update has been made yet: look at model.init_std and at the data"
                         : slower(config);
  if (parameter && step.index > 0) {
    text = update_advice(step.newest, config);
    if (step.newest)
      text += fmt::format(
          "; {}the run goes on from {}, or, where that folder is removed, from an earlier "
          "checkpoint",
          config.checkpoint.resume ? "" : "with checkpoint.resume=true ",
          checkpoint_path(config.checkpoint.dir, *step.newest));
  }
  const std::string losses = router_losses(config.model);
  if (nowhere && !losses.empty())
    text += fmt::format(
        "; where every value is finite and the norm of the gradients is not, the gradients are too "
        "large: lower {}",
        losses);
  return text;
}

}  // namespace

std::string first_non_finite(const std::vector<StatePiece>& pieces, DType storage) {
  for (const StatePiece& piece : pieces) {
    const auto find = [&](const char* part, std::span<const float> values, DType as,
                          Sign sign = Sign::kAny) {
      const std::size_t at = first_unsound(values, infinite_from(as), sign);
      if (at == values.size()) return std::string();
      return fmt::format("{}: element {} of {} is {}", piece.name,
                         piece.begin + static_cast<std::int64_t>(at), part,
                         value_text(values[at], as, sign));
    };
    for (const std::string& found :
         {find("master", piece.master, storage), find("m", piece.m, DType::kF32),
          find("v", piece.v, DType::kF32, Sign::kNotNegative)})
      if (!found.empty()) return found;
  }
  return "";
}

std::string update_advice(std::optional<std::int64_t> newest, const RunConfig& config) {
  return fmt::format("An update since {} brought it. {}",
                     newest ? fmt::format("step {}, the newest checkpoint,", *newest) : "the start",
                     slower(config));
}

std::string describe(const NonFiniteStep& step, const RunConfig& config, const LossScaler& scaler) {
  std::string places;
  bool parameter = false;
  for (std::size_t rank = 0; rank < step.places.size(); ++rank) {
    if (step.places[rank].empty()) continue;
    places += fmt::format("\n  rank {}: {}", rank, step.places[rank]);
    parameter = parameter || step.places[rank].starts_with(kParameterPlace);
  }
  return fmt::format(
      "step {}: loss {} and gradient norm {} are not both finite{}. First non-finite "
      "values:{}\n{}{}",
      step.index + 1, figure(step.loss), figure(step.grad_norm),
      parameter ? "" : "; the parameters were left as they were",
      places.empty() ? " none found in a second run" : places,
      way_out(step, config, parameter, places.empty()), way_out_of_fp16(scaler, step.loss));
}

}  // namespace tandem
