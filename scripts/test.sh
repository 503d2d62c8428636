#!/usr/bin/env bash
# Installs, builds, and runs every test this machine can run. Options of CMake go to it (and stay until
# others are given), all other arguments to ctest:
#   ./scripts/test.sh -L unit
#   ./scripts/test.sh -DTANDEM_CUDA=OFF     does not compile the CUDA code where a toolkit is installed
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

options=() selection=()
for argument in "$@"; do
  case "$argument" in
    -D*=*) options+=("$argument") ;;
    *) selection+=("$argument") ;;
  esac
done

install "${build_packages[@]}" "${test_packages[@]}"
# ctest passes over what it does not know and then runs every test.
before="" help="$(ctest --help)"
known="$(tr -s ' ,=[' '\n' <<<"$help")"
# The options that a word follows, as in "-L <regex>"; the help does not show it of the last two.
with_word="$(grep -oE -- '-[A-Za-z-]+ (<|\[|until)' <<<"$help" | cut -d' ' -f1) \
  --tests-information --test-load"
for argument in "${selection[@]}"; do
  case "$argument" in
    -j[0-9]*) ;;
    # The name as it stands (no pattern); ctest writes a value it may do without as [=format].
    -*) grep -qxF -- "${argument%%=*}" <<<"$known" ||
      fail "unknown option $argument: see ctest --help" ;;
    *) [[ "$before" == -* && " ${with_word//$'\n'/ } " == *" $before "* ]] ||
      fail "unknown argument $argument: -L and -R choose tests" ;;
  esac
  before="$argument"
done
say "building (Release, with tests)"
build build-test -DCMAKE_BUILD_TYPE=Release -DTANDEM_TESTS=ON "${options[@]}"

skipped="$(ctest --test-dir "$root/build-test" -N -L gpu 2>/dev/null | sed -n 's/^Total Tests: //p')"
say "running the tests"
if [ "$(gpus)" -eq 0 ] && [ "${skipped:-0}" -gt 0 ]; then
  say "$skipped tests skipped: they need a GPU and this machine has none"
fi
exec ctest --test-dir "$root/build-test" --no-tests=error --output-on-failure -j "$(nproc)" \
  "${selection[@]}"
