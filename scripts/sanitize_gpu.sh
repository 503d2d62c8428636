#!/usr/bin/env bash
# On a machine with a GPU: compute-sanitizer over the CUDA kernels (the op tests) and, for memcheck,
# over a short training run. A table at the end; fails on any finding.
#   ./scripts/sanitize_gpu.sh [-t TOOLS] [-f FILTER] [-s SECONDS] [CMAKE_OPTION...]
#     -t  memcheck,racecheck,initcheck,synccheck (all): comma-separated; train: memcheck of a run
#     -f  Catch2 test names, as in "rms norm,swiglu", for every tool instead of its default
#     -s  time limit of each tool in seconds (600); one that is cut short counts as a failure
#   SANITIZER=path/to/compute-sanitizer, BUILD=folder of a build with tests (build-gpu)
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

tools=memcheck,racecheck,initcheck,synccheck,train
filter=""
limit=600
options=()
while getopts "t:f:s:D:h" option; do
  case "$option" in
    t) tools="$OPTARG" ;;
    f) filter="$OPTARG" ;;
    s) limit="$OPTARG" ;;
    D) options+=("-D$OPTARG") ;;
    *) sed -n '2,9s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 2 ;;
  esac
done
shift $((OPTIND - 1))
choices -t "memcheck racecheck initcheck synccheck train" "${tools//,/ }"
count -s "$limit" 1
[ $# -eq 0 ] || fail "unknown argument $1: CMake's options begin with -D"

[ "$(gpus)" -gt 0 ] || fail "this machine has no GPU"
sanitizer="${SANITIZER:-$(command -v compute-sanitizer || echo /usr/local/cuda/bin/compute-sanitizer)}"
[ -x "$sanitizer" ] || fail "no compute-sanitizer: it comes with the CUDA toolkit; or say SANITIZER=path"
build="${BUILD:-build-gpu}"
build "$build" -DCMAKE_BUILD_TYPE=Release -DTANDEM_TESTS=ON -DTANDEM_CUDA=ON "${options[@]}"
ops="$root/$build/tests/backends/backends_cuda"
tandem="$root/$build/tandem"
logs="$(mktemp -d)"
trap 'rm -rf "$logs"' EXIT

# Racecheck follows every access to shared memory and is some hundred times slower: one case for
# each kernel that shares memory between threads. The others have no barrier to get wrong.
racecheck_filter="rms norm,qk norm,attention,embedding,cross entropy,grouped gemm,sum and square sum,router,router loss,permutation,expert offsets"
# The others cost a few times the plain run: every case, without those of the CPU references, which
# use no GPU, and the one that measures what two streams do at the same time.
default_filter='~"*reference gradient"~"new numbers of rows*"'
# Initcheck: attention neither, because cuDNN's kernels read memory they have not written.
initcheck_filter="$default_filter"'~"attention"'
# Racecheck and synccheck report dozens of hazards in cuDNN's own kernels; ours are what is checked.
without_cudnn=(--kernel-name-exclude kns=cudnn)

failed=0
table=()
# check NAME COMMAND...: runs it under the time limit and adds a line to the table.
check() {
  local name="$1" log="$logs/$1.log" begin=$SECONDS code=0 verdict findings; shift
  say "$name"
  timeout --signal=KILL "$limit" "$@" >"$log" 2>&1 || code=$?
  findings="$(sed -n 's/.*\(ERROR\|RACECHECK\) SUMMARY: \([0-9]*\) \(errors\?\|hazards\?\).*/\2/p' "$log" | tail -1)"
  if [ "$code" -eq 137 ]; then verdict="cut short after $limit s"
  elif [ "$code" -eq 0 ] && [ "${findings:-none}" = 0 ]; then verdict="clean"
  elif [ -z "$findings" ]; then verdict="no summary, exit code $code"
  elif [ "$findings" = 0 ]; then verdict="no findings, but the program failed with $code"
  else verdict="FINDINGS"; fi
  if [ "$verdict" != clean ]; then
    failed=1
    grep -n -m 40 -A 12 '^========= \(Invalid\|Error\|Race\|Uninit\|Barrier\|Program\|Warning\)\|FAILED' "$log" ||
      tail -40 "$log"
  fi
  table+=("$(printf '%-28s %9s %7s s  %s' "$name" "${findings:--}" "$((SECONDS - begin))" "$verdict")")
}

common=(--error-exitcode 99 --print-limit 20 --report-api-errors no)
for tool in ${tools//,/ }; do
  case "$tool" in
    memcheck)
      check "memcheck ops" "$sanitizer" --tool memcheck --leak-check no "${common[@]}" \
        "$ops" "${filter:-$default_filter}" ;;
    racecheck)
      check "racecheck ops" "$sanitizer" --tool racecheck "${without_cudnn[@]}" "${common[@]}" \
        "$ops" "${filter:-$racecheck_filter}" ;;
    initcheck)
      check "initcheck ops" "$sanitizer" --tool initcheck "${common[@]}" \
        "$ops" "${filter:-$initcheck_filter}" ;;
    synccheck)
      check "synccheck ops" "$sanitizer" --tool synccheck "${without_cudnn[@]}" "${common[@]}" \
        "$ops" "${filter:-$default_filter}" ;;
    train)
      check "memcheck train" "$sanitizer" --tool memcheck --leak-check no "${common[@]}" \
        "$tandem" train "$root/configs/smoke.json" parallel.pp=1 parallel.dp=1 parallel.ep=1 \
        train.device=cuda train.dtype=bf16 train.steps=3 train.watchdog_s="$limit" ;;
  esac
done

say "compute-sanitizer"
printf '%-28s %9s %9s  %s\n' what findings time verdict
printf '%s\n' "${table[@]}"
exit "$failed"
