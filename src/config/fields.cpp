#include "fields.h"

#include <fmt/core.h>

#include <cmath>

namespace tandem::config {
namespace {

template <class E>
constexpr Choice choice(std::string_view name, E value) {
  return {name, static_cast<int>(value)};
}

constexpr Choice kQkNorms[] = {choice("none", QkNorm::kNone), choice("per_head", QkNorm::kPerHead),
                               choice("full", QkNorm::kFull)};
constexpr Choice kAuxLosses[] = {choice("per_layer", AuxLossKind::kPerLayer),
                                 choice("pooled", AuxLossKind::kPooled)};
constexpr Choice kEventModes[] = {choice("per_direction", EventMode::kPerDirection),
                                  choice("shared", EventMode::kShared)};
constexpr Choice kLrSchedules[] = {choice("constant", LrSchedule::kConstant),
                                   choice("cosine", LrSchedule::kCosine),
                                   choice("wsd", LrSchedule::kWsd)};
constexpr Choice kDataKinds[] = {choice("text", DataKind::kText),
                                 choice("megatron", DataKind::kMegatron),
                                 choice("synthetic", DataKind::kSynthetic)};
constexpr Choice kDevices[] = {choice("auto", DeviceChoice::kAuto),
                               choice("cpu", DeviceChoice::kCpu),
                               choice("cuda", DeviceChoice::kCuda)};
constexpr Choice kComms[] = {choice("auto", CommChoice::kAuto), choice("nccl", CommChoice::kNccl),
                             choice("staged", CommChoice::kStaged)};
constexpr Choice kAllToAlls[] = {choice("auto", AllToAllChoice::kAuto),
                                 choice("plain", AllToAllChoice::kPlain),
                                 choice("window", AllToAllChoice::kWindow)};
constexpr Choice kLogFormats[] = {choice("text", LogFormat::kText),
                                  choice("json", LogFormat::kJson),
                                  choice("megatron", LogFormat::kMegatron)};
constexpr Choice kSpreads[] = {choice("exact", LayerSpread::kExact),
                               choice("spread", LayerSpread::kSpread)};
constexpr Choice kDTypes[] = {choice("fp32", DType::kF32), choice("bf16", DType::kBF16),
                              choice("fp16", DType::kF16)};

template <class E>
FieldRef one_of(E& target, std::span<const Choice> choices) {
  return ChoiceRef{
      &target, [](const void* t) { return static_cast<int>(*static_cast<const E*>(t)); },
      [](void* t, int value) { *static_cast<E*>(t) = static_cast<E>(value); }, choices};
}

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr Range kPositive{kLeastFp32, kMostFp32}, kNotNegative{0, kMostFp32};
constexpr Range kBelowOne{0, 1, false, true};  // [0, 1)
// Of the decay of a mean that is kept in fp32, where a little more would be 1.
constexpr Range kDecay{0, 0.99999994};
static_assert(static_cast<float>(kDecay.high) < 1.0F);
constexpr Range kAny{-kInfinity, kInfinity};
constexpr Range kUnsigned{0, 0x1p64, false, true};
// A loss scale and the gradients it multiplies are fp32 on their way.
constexpr Range kLossScale{kLeastLossScale, kMostLossScale};

// Products of these limits, and sums of two, stay inside the integers they are computed in.
constexpr Range kSteps{1, 1e9}, kStepsOrNone{0, 1e9}, kMicroBatch{1, 1 << 20}, kThreads{0, 1024};
constexpr Range kGlobalBatch{1, 1 << 30}, kTokens{1, 1 << 30};
constexpr Range kLayers{1, 10000}, kHidden{1, 1 << 20}, kFfn{1, 1 << 26}, kHeads{1, 1 << 16};
constexpr Range kExperts{0, 1 << 16}, kTopk{1, 1 << 16}, kLayersOrNone{0, 10000},
    kStages{1, 1 << 12}, kRanks{1, 1 << 18}, kVocab{2, 1 << 26};

void add_model(std::vector<Field>& all, ModelConfig& m) {
  const auto add = [&](std::string_view key, FieldRef ref, Range range, std::string_view unit,
                       std::string_view doc) {
    all.push_back({"model", key, ref, range, unit, doc});
  };
  add("preset", &m.preset, kAny, "",
      "A published model whose values become the defaults of this section: `qwen3-30b-a3b`, "
      "`qwen3-235b-a22b`, `mixtral-8x7b` or `olmoe-1b-7b`; empty for none");
  add("layers", &m.layers, kLayers, "layers", "Transformer layers");
  add("hidden", &m.hidden, kHidden, "elements", "Width of the residual stream");
  add("heads", &m.heads, kHeads, "heads", "Query heads");
  add("kv_heads", &m.kv_heads, kHeads, "heads", "Key and value heads; divides `heads`");
  add("head_dim", &m.head_dim, kHeads, "elements", "Width of one head; even");
  add("dense_ffn", &m.dense_ffn, kFfn, "elements", "Inner width of the SwiGLU of dense layers");
  add("experts", &m.experts, kExperts, "experts",
      "Experts of a MoE layer; 0 makes every layer dense");
  add("topk", &m.topk, kTopk, "experts", "Experts that a token is sent to");
  add("moe_ffn", &m.moe_ffn, kFfn, "elements", "Inner width of the SwiGLU of one expert");
  add("first_k_dense", &m.first_k_dense, kLayersOrNone, "layers", "So many first layers are dense");
  add("moe_every", &m.moe_every, kLayers, "layers",
      "Of the other layers, counted from 0, layer i is MoE where i + 1 is a multiple of this");
  add("moe_pattern", &m.moe_pattern, {0, 1}, "",
      "One entry per layer, 1 for MoE and 0 for dense; replaces the two keys above; empty for "
      "none");
  add("vocab", &m.vocab, kVocab, "tokens", "Size of the vocabulary; at least 256 for text");
  add("rope_theta", &m.rope_theta, kPositive, "", "Base of the rotary position angles");
  add("norm_eps", &m.norm_eps, kPositive, "", "Added to the mean square in every RMSNorm");
  add("qk_norm", one_of(m.qk_norm, kQkNorms), kAny, "",
      "RMSNorm of queries and keys: over each head, over the full projection, or none");
  add("norm_topk_prob", &m.norm_topk_prob, kAny, "",
      "Scale the probabilities of a token's chosen experts to sum to 1");
  add("tied_embeddings", &m.tied_embeddings, kAny, "", "The head uses the embedding matrix");
  add("aux_loss", one_of(m.aux_loss, kAuxLosses), kAny, "",
      "Load-balancing loss: a product per layer as Megatron defines it, or one over all layers "
      "together as Hugging Face does");
  add("aux_loss_coef", &m.aux_loss_coef, kNotNegative, "", "Weight of the load-balancing loss");
  add("z_loss_coef", &m.z_loss_coef, kNotNegative, "",
      "Weight of the router's z-loss, the mean squared log-sum-exp of its logits");
  add("init_std", &m.init_std, kPositive, "", "Standard deviation of initial weights");
}

void add_parallel(std::vector<Field>& all, ParallelConfig& p) {
  const auto add = [&](std::string_view key, FieldRef ref, Range range, std::string_view unit,
                       std::string_view doc) {
    all.push_back({"parallel", key, ref, range, unit, doc});
  };
  add("pp", &p.pp, kStages, "ranks", "Pipeline stages");
  add("vpp", &p.vpp, kStages, "chunks",
      "Chunks of layers per stage; above 1 the pipeline interleaves");
  add("dp", &p.dp, {0, kRanks.high}, "ranks",
      "Data-parallel ranks; 0 for the number of ranks over `pp`");
  add("ep", &p.ep, kRanks, "ranks",
      "Ranks that share the experts of a layer; divides `dp` and `model.experts`");
  add("microbatch_group", &p.microbatch_group, {0, kGlobalBatch.high}, "micro-batches",
      "Micro-batches a chunk runs before the next chunk does, with `vpp` above 1; 0 for `pp`");
  add("partition", &p.partition, kLayersOrNone, "layers",
      "Layers of each of the `pp` x `vpp` virtual stages, in model order; empty for even");
  add("spread", one_of(p.spread, kSpreads), kAny, "",
      "`exact`: layers must divide over the virtual stages; `spread`: some get one more");
}

void add_overlap(std::vector<Field>& all, OverlapConfig& o) {
  const auto add = [&](std::string_view key, FieldRef ref, std::string_view doc) {
    all.push_back({"overlap", key, ref, kAny, "", doc});
  };
  add("enabled", &o.enabled,
      "Run the forward of one micro-batch beside the backward of another, so that one computes "
      "while the other waits for its expert all-to-all");
  add("delay_wgrad", &o.delay_wgrad,
      "Weight gradients of attention and experts are steps of their own, moved to where they hide "
      "communication");
  add("events", one_of(o.events, kEventModes),
      "One pair of events for each direction, or one for both (slower; shows the false waits)");
}

void add_train(std::vector<Field>& all, TrainConfig& t) {
  const auto add = [&](std::string_view key, FieldRef ref, Range range, std::string_view unit,
                       std::string_view doc) {
    all.push_back({"train", key, ref, range, unit, doc});
  };
  add("device", one_of(t.device, kDevices), kAny, "", "Where the model runs; `auto` prefers a GPU");
  add("dtype", one_of(t.dtype, kDTypes), kAny, "",
      "Storage of parameters and activations; router, softmax, norms, loss and optimizer are fp32");
  add("steps", &t.steps, kSteps, "steps", "Optimizer steps of the whole run");
  add("micro_batch", &t.micro_batch, kMicroBatch, "sequences", "Sequences per micro-batch");
  add("global_batch", &t.global_batch, kGlobalBatch, "sequences",
      "Sequences per step over all ranks; a multiple of `micro_batch` x `parallel.dp`");
  add("seq_len", &t.seq_len, kTokens, "tokens", "Length of a sequence");
  add("seed", &t.seed, kUnsigned, "", "Seed of the initial weights and of the sample order");
  add("loss_chunk_tokens", &t.loss_chunk_tokens, kTokens, "tokens",
      "Tokens whose logits exist at one time");
  add("eval_every", &t.eval_every, kStepsOrNone, "steps",
      "Steps between evaluations on held-out data; 0 for never");
  add("eval_batches", &t.eval_batches, kMicroBatch, "micro-batches",
      "Length of an evaluation, per data-parallel rank; every evaluation takes the same held-out "
      "samples, some of them again where there are fewer");
  add("cpu_threads", &t.cpu_threads, kThreads, "threads",
      "Compute threads of a rank on the CPU device; 0 shares the cores among this host's ranks");
  add("comm", one_of(t.comm, kComms), kAny, "",
      "What carries GPU memory between ranks: NCCL, or copies through host memory (`staged`), by "
      "which ranks can share a GPU; `auto` prefers NCCL");
  add("alltoall", one_of(t.alltoall, kAllToAlls), kAny, "",
      "How NCCL carries expert all-to-alls: between the buffers themselves (`plain`), or through "
      "memory registered on all GPUs (`window`), which the rows are packed into; `auto` is "
      "`plain`, the faster one where it was measured");
  add("nccl_max_ctas", &t.nccl_max_ctas, {0, 64}, "blocks",
      "Thread blocks a transfer of NCCL may take from the GPU; 0 for NCCL's own choice");
  add("compute_sms", &t.compute_sms, {0, 1024}, "multiprocessors",
      "How much of a GPU the experts' products on Hopper's tensor cores may fill, so that "
      "transfers find room beside them; 0 for all. cuBLAS, which has the others, takes no notice");
  add("watchdog_s", &t.watchdog_s, {1, 1e9}, "s",
      "The run ends when nothing moves for so long; its start has a minute more, saves, "
      "evaluations, reading data and its end four times as long; building programs does not count");
  add("alltoall_delay_us", &t.alltoall_delay_us, {0, 1e9}, "us",
      "Modelled network time added to every expert all-to-all");
  add("deterministic", &t.deterministic, kAny, "",
      "GPUs: the same numbers in every run on machines alike; false lets attention be faster");
  add("poison_memory", &t.poison_memory, kAny, "",
      "Fill freed activations, and before a step the gradients of experts, with NaN: a read shows");
}

void add_data(std::vector<Field>& all, DataConfig& d) {
  const auto add = [&](std::string_view key, FieldRef ref, Range range, std::string_view doc) {
    all.push_back({"data", key, ref, range, "", doc});
  };
  add("kind", one_of(d.kind, kDataKinds), kAny,
      "Bytes of text files, Megatron `.bin`/`.idx` token files, or a made-up learnable sequence");
  add("train", &d.train, kAny,
      "Files to train on: paths of text files, or prefixes of `.bin`/`.idx` pairs");
  add("valid", &d.valid, kAny,
      "Held-out files; empty holds out the end of `train` by `valid_fraction` or `split`");
  add("valid_fraction", &d.valid_fraction, kBelowOne,
      "Share of text held out at the end of `train` where `valid` is empty");
  add("split", &d.split, kAny,
      "Weights of training, validation and test documents, which stay whole, for Megatron files "
      "where `valid` is empty");
}

void add_optimizer(std::vector<Field>& all, OptimizerConfig& o) {
  const auto add = [&](std::string_view key, FieldRef ref, Range range, std::string_view unit,
                       std::string_view doc) {
    all.push_back({"optimizer", key, ref, range, unit, doc});
  };
  add("lr", &o.lr, kNotNegative, "", "Highest learning rate");
  add("min_lr", &o.min_lr, kNotNegative, "", "Learning rate at the end of a decay");
  add("warmup_steps", &o.warmup_steps, kStepsOrNone, "steps",
      "The rate rises linearly over these steps");
  add("schedule", one_of(o.schedule, kLrSchedules), kAny, "",
      "After the warm-up: constant, cosine, or stable with a linear decay at the end (`wsd`)");
  add("decay_steps", &o.decay_steps, kStepsOrNone, "steps",
      "Cosine: length of the decay, 0 for up to the last step; wsd: length of the final decay, 0 "
      "for a tenth of the run");
  add("beta1", &o.beta1, kDecay, "", "AdamW: decay of the mean gradient");
  add("beta2", &o.beta2, kDecay, "", "AdamW: decay of the mean squared gradient");
  add("eps", &o.eps, kPositive, "", "AdamW: added to the root of the mean squared gradient");
  add("weight_decay", &o.weight_decay, kNotNegative, "",
      "AdamW: decoupled weight decay of matrices; norms are never decayed");
  add("decay_embeddings", &o.decay_embeddings, kAny, "", "Decay the embedding and the head too");
  add("clip", &o.clip, kNotNegative, "", "Highest global gradient norm; 0 for no clipping");
  add("loss_scale", &o.loss_scale, {0, kMostLossScale}, "",
      "fp16: fixed factor that keeps gradients in range, a power of two from 2^-16 on; 0 for a "
      "dynamic one");
  add("initial_loss_scale", &o.initial_loss_scale, kLossScale, "",
      "fp16: dynamic loss scale of the first step, a power of two");
  add("min_loss_scale", &o.min_loss_scale, kLossScale, "",
      "fp16: least dynamic loss scale, a power of two; gradients that overflow at it end the run");
  add("loss_scale_window", &o.loss_scale_window, kSteps, "steps",
      "fp16: steps in a row without overflow after which the dynamic loss scale doubles");
  add("loss_scale_hysteresis", &o.loss_scale_hysteresis, kSteps, "steps",
      "fp16: the overflow since the last such window with which the loss scale begins to halve");
}

void add_checkpoint(std::vector<Field>& all, CheckpointConfig& c) {
  const auto add = [&](std::string_view key, FieldRef ref, Range range, std::string_view unit,
                       std::string_view doc) {
    all.push_back({"checkpoint", key, ref, range, unit, doc});
  };
  add("dir", &c.dir, kAny, "", "Folder of the checkpoints; empty for none");
  add("every", &c.every, kStepsOrNone, "steps", "Steps between checkpoints; 0 for only at the end");
  add("keep", &c.keep, {2, 1e9}, "checkpoints", "Newest complete checkpoints to keep");
  add("resume", &c.resume, kAny, "", "Continue from the newest complete checkpoint in `dir`");
}

void add_logging(std::vector<Field>& all, LoggingConfig& l) {
  const auto add = [&](std::string_view key, FieldRef ref, Range range, std::string_view unit,
                       std::string_view doc) {
    all.push_back({"logging", key, ref, range, unit, doc});
  };
  add("format", one_of(l.format, kLogFormats), kAny, "",
      "Form of the lines of steps and evaluations");
  add("every", &l.every, kSteps, "steps", "Steps between progress lines");
  add("metrics", &l.metrics, kAny, "",
      "File that gets a JSON line with each progress line and each evaluation; empty for none");
  add("tensorboard", &l.tensorboard, kAny, "",
      "Folder for TensorBoard event files; empty for none");
  add("trace", &l.trace, kAny, "", "Prefix of Chrome trace files; empty for none");
  add("trace_begin", &l.trace_begin, kStepsOrNone, "step", "First traced step, counted from 0");
  add("trace_steps", &l.trace_steps, kStepsOrNone, "steps", "Number of traced steps");
  add("profile_begin", &l.profile_begin, kStepsOrNone, "step",
      "First step of the window in which NVIDIA's profilers record, counted from 0");
  add("profile_steps", &l.profile_steps, kStepsOrNone, "steps",
      "Length of that window, in which every node is also a named range; 0 for none. GPUs only");
}

// Short and exact: 0, 1048576, 2^64, 1e-37.
std::string limit_text(double limit) {
  int exponent = 0;
  const bool whole = std::trunc(limit) == limit;
  if (std::frexp(limit, &exponent) == 0.5 && (!whole || limit > 1e10))
    return fmt::format("2^{}", exponent - 1);
  return whole && limit < 1e10 ? fmt::format("{:.0f}", limit) : fmt::format("{}", limit);
}

}  // namespace

std::vector<Field> fields(RunConfig& config) {
  std::vector<Field> all;
  add_model(all, config.model);
  add_parallel(all, config.parallel);
  add_overlap(all, config.overlap);
  add_train(all, config.train);
  add_data(all, config.data);
  add_optimizer(all, config.optimizer);
  add_checkpoint(all, config.checkpoint);
  add_logging(all, config.logging);
  return all;
}

std::string Range::text() const {
  if (low == -kInfinity) return "";
  return fmt::format("in {}{}, {}{}", open_low ? '(' : '[', limit_text(low), limit_text(high),
                     open_high ? ')' : ']');
}

std::string_view ChoiceRef::name() const {
  const int value = get(target);
  for (const Choice& c : choices)
    if (c.value == value) return c.name;
  return "?";
}

std::string Field::type() const {
  struct Namer {
    std::string operator()(bool*) const { return "bool"; }
    std::string operator()(int*) const { return "integer"; }
    std::string operator()(std::uint64_t*) const { return "integer"; }
    std::string operator()(double*) const { return "number"; }
    std::string operator()(std::string*) const { return "string"; }
    std::string operator()(std::vector<int>*) const { return "list of integers"; }
    std::string operator()(std::vector<std::string>*) const { return "list of strings"; }
    std::string operator()(const ChoiceRef& c) const {
      std::string text;
      for (const Choice& choice : c.choices)
        text += fmt::format("{}`{}`", text.empty() ? "" : ", ", choice.name);
      return text;
    }
  };
  return std::visit(Namer{}, ref);
}

}  // namespace tandem::config
