#!/usr/bin/env bash
# Tokens per second of the demo model on one rank: Tandem and PyTorch, turn by turn, so that both
# see the same machine.
#
#   scripts/peers/compare_demo.sh [ROUNDS] [STEPS]
#
# PyTorch runs twice per round: with the configuration's micro-batch, and with its fastest setting
# among those tried first. Needs an idle machine, build/tandem, data/kjv.txt (scripts/run.sh makes
# both) and Debian's python3-torch; libopenblas0-openmp makes PyTorch faster and is used if there.
source "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
rounds="${1:-5}" steps="${2:-12}" threads="${THREADS:-2}" tandem="${TANDEM:-$root/build/tandem}"
python=/usr/bin/python3  # Debian's own: packages installed by apt are for no other

count ROUNDS "$rounds" 1
count STEPS "$steps" 3  # the first two are not measured
count THREADS "$threads" 1
[ $# -le 2 ] || fail "unknown argument $3: there are ROUNDS and STEPS"
[ -x "$tandem" ] || fail "$tandem is missing: run scripts/run.sh first, or set TANDEM"
[ -s "$root/data/kjv.txt" ] || fail "data/kjv.txt is missing: run scripts/run.sh first"
"$python" -c 'import torch' 2>/dev/null || fail "PyTorch is missing: apt-get install python3-torch"

# Debian's OpenBLAS knows no processor newer than itself and then falls back to kernels from 2004.
# PyTorch gets the ones that fit; OPENBLAS_CORETYPE in the environment wins.
fitting_kernels() {
  if grep -qw avx512f /proc/cpuinfo; then echo SkylakeX
  elif grep -qw avx2 /proc/cpuinfo; then echo Haswell
  fi
}
kernels="${OPENBLAS_CORETYPE:-$(fitting_kernels)}"
torch_env=(OMP_WAIT_POLICY=passive "OMP_NUM_THREADS=$threads")
[ -z "$kernels" ] || torch_env+=("OPENBLAS_CORETYPE=$kernels")
# One thread pool for PyTorch and its matrix products instead of two that fight for the cores.
openmp="/usr/lib/$(uname -m)-linux-gnu/openblas-openmp"
[ ! -d "$openmp" ] || torch_env+=("LD_LIBRARY_PATH=$openmp")

scratch="$(mktemp -d)"
trap 'rm -rf "$scratch"' EXIT
cd "$root"

# Median tokens per second of the lines of JSON on stdin, without the first two steps.
median_rate() {
  "$python" -c '
import json, statistics, sys
rates = [json.loads(line)["tokens-per-second"] for line in sys.stdin]
print(round(statistics.median(rates[2:])))'
}

run_tandem() {
  rm -f "$scratch/metrics.jsonl"
  "$tandem" train configs/demo.json parallel.pp=1 parallel.vpp=1 parallel.dp=1 parallel.ep=1 \
    train.steps="$steps" train.cpu_threads="$threads" train.eval_every=0 checkpoint.every=0 \
    checkpoint.dir= logging.tensorboard= logging.metrics="$scratch/metrics.jsonl" \
    >"$scratch/tandem.log" 2>&1 || { cat "$scratch/tandem.log" >&2; fail "tandem failed"; }
  median_rate <"$scratch/metrics.jsonl"
}

# run_torch STEPS OPTION...
run_torch() {
  local count="$1"; shift
  env "${torch_env[@]}" "$python" scripts/peers/torch_demo.py --steps "$count" --skip 2 \
    --threads "$threads" "$@" >"$scratch/torch.json"
  "$python" -c 'import json, sys; print(round(json.load(sys.stdin)["tokens-per-second"]))' \
    <"$scratch/torch.json"
}

# fastest OPTIONS...: each argument is one set of options; prints the fastest.
fastest() {
  local best="" best_rate=0 rate options
  for options in "$@"; do
    # shellcheck disable=SC2086
    rate="$(run_torch 5 $options)"
    say "PyTorch tried with $options: $rate tokens/s" >&2
    if [ "$rate" -gt "$best_rate" ]; then best="$options" best_rate="$rate"; fi
  done
  echo "$best"
}

say "$threads threads, $rounds rounds of $steps steps; PyTorch with ${torch_env[*]}"
same="$(fastest "--dispatch sorted" "--dispatch index" "--dispatch sorted --attention fused")"
free="$(fastest "$same" "$same --micro-batch 8" "$same --micro-batch 16" "$same --micro-batch 32" \
                "--dispatch sorted --micro-batch 32")"

for ((round = 1; round <= rounds; ++round)); do
  a="$(run_tandem)"
  # shellcheck disable=SC2086
  b="$(run_torch "$steps" $same)"
  # shellcheck disable=SC2086
  c="$(run_torch "$steps" $free)"
  say "round $round: Tandem $a, PyTorch same micro-batch $b, PyTorch at its best $c tokens/s"
  echo "$a $b $c" >>"$scratch/rounds"
done

"$python" - "$scratch/rounds" "$same" "$free" <<'PYTHON'
import statistics, sys
path, same, free = sys.argv[1:]
columns = [statistics.median(map(int, c)) for c in zip(*(line.split() for line in open(path)))]
tandem, torch_same, torch_free = columns
print(f"Tandem                         {tandem:8.0f} tokens/s")
print(f"PyTorch, same micro-batch      {torch_same:8.0f} tokens/s  Tandem is {tandem / torch_same:.2f} x  ({same})")
print(f"PyTorch, its fastest setting   {torch_free:8.0f} tokens/s  Tandem is {tandem / torch_free:.2f} x  ({free})")
PYTHON
