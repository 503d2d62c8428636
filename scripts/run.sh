#!/usr/bin/env bash
# Installs, builds, prepares text, and trains the demo with four ranks. Arguments are overrides:
#   ./scripts/run.sh train.steps=50
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

overrides "$@"
install "${build_packages[@]}" "${text_packages[@]}"
cuda=AUTO
[ "$(gpus)" -gt 0 ] || cuda=OFF   # nothing here would run its kernels: save the time to compile them
say "building (Release, CUDA $cuda)"
build build -DCMAKE_BUILD_TYPE=Release -DTANDEM_TESTS=OFF -DTANDEM_CUDA=$cuda

text="$root/data/kjv.txt"
if [ ! -s "$text" ]; then
  say "writing $text from Debian's bible-kjv"
  mkdir -p "$root/data"
  bible -f 'gen1:1-rev99:99' >"$text.part" || fail "the bible command failed: apt-get install --reinstall bible-kjv bible-kjv-text"
  mv "$text.part" "$text"
fi

say "training configs/demo.json on 4 ranks"
cd "$root"
exec mpirun -np 4 --bind-to none "$root/build/tandem" train configs/demo.json "$@"
