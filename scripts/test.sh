#!/usr/bin/env bash
# Installs, builds, and runs every test this machine can run. Arguments go to ctest:
#   ./scripts/test.sh -L unit
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

install "${build_packages[@]}" "${test_packages[@]}"
say "building (Release, with tests)"
build build-test -DCMAKE_BUILD_TYPE=Release -DTANDEM_TESTS=ON

skipped="$(ctest --test-dir "$root/build-test" -N -L gpu 2>/dev/null | sed -n 's/^Total Tests: //p')"
say "running the tests"
[ "$(gpus)" -gt 0 ] || say "${skipped:-0} tests skipped: they need a GPU and this machine has none"
exec ctest --test-dir "$root/build-test" --output-on-failure -j "$(nproc)" "$@"
