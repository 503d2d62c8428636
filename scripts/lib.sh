# Shared by the scripts: checks what they are given, installs what is missing, configures, builds.
# Sourced, not run.
set -euo pipefail
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"

say() { printf '==> %s\n' "$*"; }
fail() { printf 'error: %s\n' "$*" >&2; exit 1; }

# count NAME VALUE LEAST: VALUE must be a whole number, LEAST (1 or more) at least.
count() {
  [[ "$2" =~ ^[1-9][0-9]{0,5}$ ]] && [ "$2" -ge "$3" ] ||
    fail "$1 $2: give a whole number, $3 or more"
}
# choices NAME "CHOICE..." "WORD...": there must be a word, and every word must be a choice.
choices() {
  local word
  [ -n "${3// /}" ] || fail "$1 is empty: choose from $2"
  for word in $3; do
    [[ " $2 " == *" $word "* ]] || fail "$1 $word: choose from $2"
  done
}
# overrides ARGUMENT...: each must look like one.
overrides() {
  local argument
  for argument in "$@"; do
    [[ "$argument" =~ ^[a-z0-9_]+\.[a-z0-9_]+= ]] ||
      fail "$argument is no override: they look like train.steps=50"
  done
}

# The Debian packages Tandem needs, and those its tests need besides.
build_packages=(g++ cmake ninja-build ccache libopenmpi-dev openmpi-bin libopenblas-dev libfmt-dev
                nlohmann-json3-dev libcli11-dev)
test_packages=(catch2 python3)
text_packages=(bible-kjv bible-kjv-text)

# install PACKAGE...: those that are not there yet; asks nothing.
install() {
  local missing=()
  for package in "$@"; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' ||
      missing+=("$package")
  done
  [ ${#missing[@]} -eq 0 ] && return
  command -v apt-get >/dev/null || fail "install these packages, then run again: ${missing[*]}"
  local admin=()
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || fail "run as root: apt-get install ${missing[*]}"
    admin=(sudo)
  fi
  say "installing ${missing[*]}"
  "${admin[@]}" apt-get update -qq || say "package lists could not be refreshed; using the old ones"
  "${admin[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
    "${missing[@]}" >/dev/null || fail "apt-get could not install: ${missing[*]}"
}

# How many GPUs this machine has.
gpus() { find /dev -maxdepth 1 -name 'nvidia[0-9]*' 2>/dev/null | wc -l; }

# build FOLDER CMAKE_OPTION...: configures and builds below the project's root.
build() {
  local folder="$root/$1"; shift
  mkdir -p "$folder"
  cmake -S "$root" -B "$folder" -G Ninja "$@" >"$folder/configure.log" 2>&1 || {
    cat "$folder/configure.log" >&2
    fail "configuring failed, see above"
  }
  ninja -C "$folder"
}

# Run by root, as in containers, mpirun wants to be told that this is meant; and small machines
# have fewer cores than ranks.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1
# Ranks talk through shared memory; containers often forbid the kernel's single-copy path.
export OMPI_MCA_btl_vader_single_copy_mechanism=none
