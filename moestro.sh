#!/usr/bin/env bash
# Sets up, builds, tests and shows moestro on Debian 12. Run it without arguments for help.
set -euo pipefail
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")"

# Everything that is installed, in one place. Debian packages to build and test:
BUILD_PACKAGES=(
  g++                  # C++20 compiler
  cmake                # build system
  ninja-build          # runs the build
  ccache               # makes the second build fast
  libfmt-dev           # text formatting
  nlohmann-json3-dev   # JSON
  libtomlplusplus-dev  # TOML: run files
  libcli11-dev         # command line
  libdnnl-dev          # oneDNN: matrix products on CPUs
  libgtest-dev         # tests
  libgmock-dev         # matchers for tests
  librapidcheck-dev    # property tests
  libbenchmark-dev     # benchmarks
  python3              # checkers among the tests
  python3-venv         # the environment that holds torch
)
# Debian packages of the fuzzers:
FUZZ_PACKAGES=(
  clang                # compiler with libFuzzer
  libclang-rt-14-dev   # libFuzzer itself, sanitizers
)
# Debian packages of the demo:
DEMO_PACKAGES=(
  fortunes             # English text to train on
)
# From the Python package index, into .venv (libtorch is part of it; the Python side is not used):
TORCH_VERSION=2.13.0

say() { printf 'moestro.sh: %s\n' "$*" >&2; }
fail() { say "$*"; exit 1; }
reject() { say "$*"; exit 2; }  # wrong arguments

usage() {
  cat <<'HELP'
Usage: ./moestro.sh <verb>

  build                  install what is missing, build build/release/moestro
  test [--preset NAME]   build and run the tests; presets: release (default), dev,
                         lean (nothing optional), asan, tsan (sanitizers, quick tests only)
  demo                   build, then train a small model on English text (about a minute on two cores)
  fuzz [SECONDS]         feed mutated files to every reader, each for so long (default: 60)
  clean                  remove all that was built
  help                   this page

It installs Debian packages (as root or through sudo) and torch into .venv; it says what, and
installs nothing twice.
HELP
}

as_root() {
  if [ "$(id -u)" -eq 0 ]; then
    "$@"
  elif command -v sudo >/dev/null; then
    sudo "$@"
  else
    fail "installing packages needs root: run as root, install sudo, or install these yourself: ${missing[*]}"
  fi
}

apt_get() {
  as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=300 -o Dpkg::Use-Pty=0 "$@"
}

warn_unless_debian_12() {
  local name
  name=$(. /etc/os-release 2>/dev/null && echo "${ID:-unknown} ${VERSION_ID:-}") || name=unknown
  [ "$name" = "debian 12" ] || say "made for Debian 12, this is $name: package names may differ"
}

# Installs those of the given packages that are missing.
install_packages() {
  missing=()
  local package
  for package in "$@"; do
    if [ "$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null)" != installed ]; then
      missing+=("$package")
    fi
  done
  [ ${#missing[@]} -gt 0 ] || return 0
  warn_unless_debian_12
  command -v apt-get >/dev/null || fail "no apt-get here; install these yourself: ${missing[*]}"
  say "installing Debian packages: ${missing[*]}"
  # Package lists are fetched only where there are none, or where they turn out to be stale.
  if ! compgen -G '/var/lib/apt/lists/*_Packages*' >/dev/null; then
    apt_get update
  fi
  apt_get install -y --no-install-recommends "${missing[@]}" ||
    { apt_get update && apt_get install -y --no-install-recommends "${missing[@]}"; } ||
    fail "could not install: ${missing[*]}"
}

# pip writes INSTALLER once all files of the package are there.
has_torch() { compgen -G ".venv/lib/python3*/site-packages/torch-$TORCH_VERSION*.dist-info/INSTALLER" >/dev/null; }

install_torch() {
  has_torch && return 0
  say "installing torch $TORCH_VERSION into .venv (about 200 MB)"
  # Ctrl-C leaves an environment without pip, or half of torch. A link goes, not what it leads to; a mount
  # point stays.
  if ! .venv/bin/python -m pip --version >/dev/null 2>&1 ||
    compgen -G ".venv/lib/python3*/site-packages/torch-$TORCH_VERSION*.dist-info" >/dev/null; then
    rm -rf .venv 2>/dev/null || true
    python3 -m venv .venv
  fi
  # The CPU build by name where the index has it, else what the index calls by the plain version.
  local pip=(.venv/bin/python -m pip install --no-input --disable-pip-version-check --no-deps)
  "${pip[@]}" "torch==$TORCH_VERSION+cpu" ||
    "${pip[@]}" "torch==$TORCH_VERSION" ||
    fail "could not install torch $TORCH_VERSION"
}

# Removes what was built while this folder was elsewhere, or copied along with another: CMake would go
# on in that one.
remove_foreign_build() {
  local folder=build/$1 home
  [ -e "$folder/CMakeCache.txt" ] || return 0
  home=$(sed -n 's/^CMAKE_HOME_DIRECTORY:INTERNAL=//p' "$folder/CMakeCache.txt")
  [ "$home" -ef . ] && return 0
  say "$folder was made for $home, this is $PWD: building anew"
  rm -rf "$folder"
}

# Builds one preset, or some targets of it; configures only when that is not done yet or the presets changed.
build() {
  local preset=$1 targets=(all)
  [ $# -eq 1 ] || targets=("${@:2}")
  install_packages "${BUILD_PACKAGES[@]}"
  case $preset in
    lean | tsan | fuzz) ;;
    *) install_torch ;;
  esac
  remove_foreign_build "$preset"
  if [ ! -e "build/$preset/build.ninja" ] || [ CMakePresets.json -nt "build/$preset/build.ninja" ]; then
    cmake --preset "$preset"
  fi
  cmake --build "build/$preset" -j "$(nproc)" --target "${targets[@]}"
}

run_tests() {
  local preset=release
  if [ "${1:-}" = --preset ]; then
    preset=${2:-}
    shift $(($# < 2 ? $# : 2))
  fi
  [ $# -eq 0 ] || reject "test takes only --preset NAME, got \"$1\""
  local select=()
  case $preset in
    release | dev | lean) ;;
    asan | tsan) select=(-L quick) ;;  # sanitizers are slow: only tests that are not
    *) reject "there is no preset \"$preset\"; there are release, dev, lean, asan, tsan" ;;
  esac
  build "$preset"
  ctest --test-dir "build/$preset" -j 2 --output-on-failure "${select[@]}"
}

fuzz() {
  local seconds=${1:-60} name
  [[ $seconds =~ ^[1-9][0-9]*$ && $# -le 1 ]] || reject "fuzz takes a number of seconds, got \"$*\""
  install_packages "${BUILD_PACKAGES[@]}" "${FUZZ_PACKAGES[@]}"
  build fuzz config_fuzz safetensors_fuzz
  mkdir -p build/fuzz/corpus/{config,safetensors}
  cp examples/models/*.json build/fuzz/corpus/config/
  for name in config safetensors; do
    say "fuzzing $name for $seconds s"
    # A failing input is left in build/fuzz.
    (cd build/fuzz && "tests/${name}_fuzz" -max_total_time="$seconds" -timeout=10 -print_final_stats=1 "corpus/$name")
  done
}

demo() {
  install_packages "${BUILD_PACKAGES[@]}" "${DEMO_PACKAGES[@]}"
  build release moestro
  sh examples/01_train/prepare_text.sh build/demo/text.txt
  exec build/release/moestro train examples/01_train/run.toml
}

verb=${1:-help}
[ $# -eq 0 ] || shift
if [ "$verb" != test ] && [ "$verb" != fuzz ] && [ $# -gt 0 ]; then
  reject "$verb takes no arguments, got \"$1\""
fi
case $verb in
  build)
    build release moestro
    say "built build/release/moestro"
    ;;
  test) run_tests "$@" ;;
  demo) demo ;;
  fuzz) fuzz "$@" ;;
  clean) rm -rf build ;;
  help | --help | -h) usage ;;
  *)
    usage >&2
    reject "there is no verb \"$verb\""
    ;;
esac
