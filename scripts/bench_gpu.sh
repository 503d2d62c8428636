#!/usr/bin/env bash
# Figures of one GPU. Trains slices of two published models with the engine and with PyTorch in turn,
# so that both see the same machine: steps of one micro-batch and steps of eight, whose weight
# gradients add up. Then times products, attention and every op of their layers.
#
#   scripts/bench_gpu.sh --out FOLDER [OPTION...] [CMAKE_OPTION...]
#
#   --rounds N     turns of engine and PyTorch (2: about 5 minutes on an H200 for both slices)
#   --repeats N    timed micro-batches of a slice, in 2 or more steps, and executions of everything
#                  else (8)
#   --only WHAT    slices, or ops
#   --slices LIST  "A B", A or B: Qwen3-30B-A3B with 8 layers, Mixtral-8x7B with 4 (both)
#   --cudnn ROOT   where cuDNN's include and lib are, if it came with a Python package; PyTorch runs
#                  without it
#   --python EXE   the Python that has PyTorch (python3)
#
# FOLDER gets a JSON file per run, slices.json with the medians, and the tables as printed.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

out="" rounds=2 repeats=8 only="slices ops" slices="A B" cudnn="" python=python3
options=()
while [ $# -gt 0 ]; do
  case "$1" in
    --out|--rounds|--repeats|--only|--slices|--cudnn|--python)
      [ $# -ge 2 ] || fail "$1 wants a value"
      declare "${1#--}=$2"
      shift 2 ;;
    -D*) options+=("$1"); shift ;;
    *) fail "unknown option $1: see the top of scripts/bench_gpu.sh" ;;
  esac
done
[ -n "$out" ] || fail "--out FOLDER is missing: it gets the figures"
count --rounds "$rounds" 1
count --repeats "$repeats" 1
choices --only "slices ops" "$only"
choices --slices "A B" "$slices"
command -v "$python" >/dev/null || fail "--python $python: there is no such program"
[ -z "$cudnn" ] || [ -d "$cudnn/include" ] || fail "--cudnn $cudnn: it has no folder include"
[ "$(gpus)" -gt 0 ] || fail "this machine has no GPU: tandem bench with train.device=cpu needs none"
mkdir -p "$out"

[ -z "$cudnn" ] || options+=("-DTANDEM_CUDNN_ROOT=$cudnn")
build build-gpu -DCMAKE_BUILD_TYPE=Release -DTANDEM_TESTS=OFF -DTANDEM_CUDA=ON "${options[@]}"
# engine ARGUMENT...: tandem bench with cuDNN's libraries in reach, for this command alone.
engine_env=(env)
[ -z "$cudnn" ] || engine_env+=("LD_LIBRARY_PATH=$cudnn/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}")
engine() { "${engine_env[@]}" "$root/build-gpu/tandem" bench "$@"; }
without_cudnn() { env -u LD_LIBRARY_PATH "$@"; }
rm -f "$out"/engine-*-round*.json "$out"/torch-*-round*.json  # of an earlier run
torch=yes
without_cudnn "$python" -c 'import torch; assert torch.cuda.is_available()' 2>/dev/null || {
  torch=no
  say "$python has no PyTorch with CUDA: the engine runs alone"
}

one_rank=(parallel.pp=1 parallel.vpp=1 parallel.dp=1 parallel.ep=1 train.device=cuda
          train.dtype=bf16 train.seq_len=4096 train.deterministic=false
          optimizer.warmup_steps=1 checkpoint.dir= checkpoint.every=0)
# config_of SLICE: its file and layers, as arguments.
config_of() {
  case "$1" in
    A) config=("$root/configs/qwen3-30b-a3b.json" model.layers=8) ;;
    B) config=("$root/configs/mixtral-8x7b.json" model.layers=4) ;;
  esac
}

run_slices() {
  local slice batch in_step steps round config
  for round in $(seq "$rounds"); do
    for slice in $slices; do
      config_of "$slice"
      for batch in 1 2; do
        for in_step in 1 8; do
          say "round $round: slice $slice, micro-batch $batch, $in_step a step, engine"
          steps=$(((repeats + in_step - 1) / in_step))
          engine slice "${config[@]}" "${one_rank[@]}" "train.micro_batch=$batch" \
            "train.global_batch=$((in_step * batch))" --repeats $((steps < 2 ? 2 : steps)) \
            --json "$out/engine-$slice-mb$batch-step$in_step-round$round.json" | tail -n 1
        done
      done
      [ "$torch" = yes ] || continue
      say "round $round: slice $slice, PyTorch"
      without_cudnn "$python" "$root/scripts/peers/slice.py" "$slice" --repeats "$repeats" \
        --micro-batch 1,2 --micro-batches 1,8 \
        >"$out/torch-$slice-round$round.json" || {
        say "PyTorch failed, see above: the engine goes on alone"
        torch=no
      }
    done
  done
  without_cudnn python3 "$root/scripts/peers/slice_table.py" "$out" | tee "$out/slices.txt"
}

run_ops() {
  local slice name config
  for slice in $slices; do
    config_of "$slice"
    for name in gemm grouped attention layer; do
      say "slice $slice: bench $name"
      engine "$name" "${config[@]}" "${one_rank[@]}" train.micro_batch=1 train.global_batch=8 \
        --repeats "$repeats" \
        --json "$out/$name-$slice.json" | tee "$out/$name-$slice.txt"
    done
  done
}

for part in $only; do "run_$part"; done
say "the figures are in $out"
