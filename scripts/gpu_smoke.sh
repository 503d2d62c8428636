#!/usr/bin/env bash
# On a machine with a GPU: builds with CUDA, runs the GPU tests, and compares small runs: GPU with
# CPU, overlap with none, freed memory poisoned with none, four ranks that share the GPU with one, a
# checkpoint taken across devices.
#   ./scripts/gpu_smoke.sh [CMAKE_OPTION...]      e.g. -DTANDEM_CUDNN_ROOT=/path/to/nvidia/cudnn
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

for option in "$@"; do
  [[ "$option" == -D?* ]] || fail "unknown argument $option: CMake's options begin with -D"
done
[ "$(gpus)" -gt 0 ] || fail "this machine has no GPU: run scripts/test.sh instead"
build build-gpu -DCMAKE_BUILD_TYPE=Release -DTANDEM_TESTS=ON -DTANDEM_CUDA=ON "$@"
tandem="$root/build-gpu/tandem"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
"$tandem" version

ctest --test-dir "$root/build-gpu" -L gpu --output-on-failure

# run NAME ARGUMENT...: 20 steps of the smoke model; its losses go to $work/NAME.
run() {
  local name="$1"; shift
  "$@" logging.format=json model.layers=4 >"$work/$name.log" 2>&1 ||
    { cat "$work/$name.log" >&2; fail "run $name failed"; }
  sed -n 's/.*"lm loss": \([0-9.e+-]*\).*/\1/p' "$work/$name.log" >"$work/$name"
}
# close A B LIMIT: the largest relative difference of two runs' losses must stay below LIMIT.
close() {
  paste "$work/$1" "$work/$2" | awk -v limit="$3" -v names="$1 and $2" '
    { d = $1 / $2 - 1; if (d < 0) d = -d; if (d > worst) worst = d }
    END { printf "%-32s largest relative difference %.2e (limit %s)\n", names, worst, limit
          exit NR == 20 && worst <= limit ? 0 : 1 }' || fail "$1 and $2 differ"
}
smoke=("$tandem" train "$root/configs/smoke.json")
one=(parallel.pp=1 parallel.dp=1 parallel.ep=1)
run cpu "${smoke[@]}" "${one[@]}" train.device=cpu
run gpu "${smoke[@]}" "${one[@]}" train.device=cuda
close gpu cpu 1e-4
run gpu_bf16 "${smoke[@]}" "${one[@]}" train.device=cuda train.dtype=bf16
close gpu_bf16 gpu 1e-2
run gpu_fp16 "${smoke[@]}" "${one[@]}" train.device=cuda train.dtype=fp16
close gpu_fp16 gpu 1e-2
run gpu_auto "${smoke[@]}" "${one[@]}" train.device=auto
close gpu_auto gpu 0
for change in overlap.enabled=false overlap.events=shared overlap.delay_wgrad=false \
  train.poison_memory=true; do
  run "$change" "${smoke[@]}" "${one[@]}" train.device=cuda train.dtype=bf16 "$change"
  close "$change" gpu_bf16 0
done
# half FROM TO: ten steps on one device, saved, and ten more on the other; against twenty on the GPU.
run whole "${smoke[@]}" "${one[@]}" train.device=cuda optimizer.schedule=constant
half() {
  local saved=(optimizer.schedule=constant "checkpoint.dir=$work/$1-$2")
  run "first_$1" "${smoke[@]}" "${one[@]}" "train.device=$1" "${saved[@]}" train.steps=10
  run "then_$2" "${smoke[@]}" "${one[@]}" "train.device=$2" "${saved[@]}"
  cat "$work/first_$1" "$work/then_$2" >"$work/$1-$2-losses"
  close "$1-$2-losses" whole "$3"
}
half cuda cuda 0
half cpu cuda 1e-4
half cuda cpu 1e-4
# Values that are not finite go through the router and the experts until the step has ended.
code=0
"${smoke[@]}" "${one[@]}" train.device=cuda train.dtype=fp16 model.init_std=1e4 \
  >"$work/overflow.log" 2>&1 || code=$?
[ "$code" -eq 4 ] || { cat "$work/overflow.log" >&2; fail "a run that overflows ends with $code, not 4"; }
say "a run that overflows ends with 4: $(grep -m 1 'rank 0: ' "$work/overflow.log")"
run four_ranks mpirun -np 4 --bind-to none "${smoke[@]}" parallel.pp=2 parallel.vpp=2 \
  parallel.dp=2 parallel.ep=2 train.device=cuda
close four_ranks gpu 1e-5
say "all agree"
