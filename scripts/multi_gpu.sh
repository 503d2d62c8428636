#!/usr/bin/env bash
# On a machine with several GPUs: builds with CUDA and NCCL, then shows that layouts agree with one
# rank, that the modes of overlap give equal bits, that killed and stopped ranks end the job, that
# checkpoints move between numbers of GPUs, and prints the tables of overlap and transports.
#   ./scripts/multi_gpu.sh [CMAKE_OPTION...] [-- --parts layouts,faults --rounds 3 --out DIR ...]
# TANDEM names a program that is built already.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

for argument in "$@"; do
  case "$argument" in -h|--help) exec python3 "$root/scripts/multi_gpu" --help ;; esac
done
options=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do
  [[ "$1" == -D* ]] || fail "unknown argument $1: those of CMake begin with -D, others follow --"
  options+=("$1"); shift
done
[ $# -eq 0 ] || shift
python3 "$root/scripts/multi_gpu" --check-only "${TANDEM:-tandem}" "$@"
[ "$(gpus)" -gt 1 ] || fail "this machine has $(gpus) GPUs, this script needs two or more"
if [ -z "${TANDEM:-}" ]; then
  build build-gpu -DCMAKE_BUILD_TYPE=Release -DTANDEM_CUDA=ON "${options[@]}"
  TANDEM="$root/build-gpu/tandem"
fi
"$TANDEM" version
# Powers of two up to eight: the layouts the script knows.
count="$(gpus)"; for n in 8 4 2; do [ "$count" -lt $n ] || { count=$n; break; }; done
export NCCL_NVLS_ENABLE="${NCCL_NVLS_ENABLE:-0}"
exec python3 "$root/scripts/multi_gpu" "$TANDEM" --gpus "$count" "$@"
