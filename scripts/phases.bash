# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2154 # lib.bash sets what is not set here
# How long each part of a script takes, and what ccache saved of it. Sourced after lib.bash; prints a table when the
# script ends, also when a phase fails.

phases=()
# Where ccache writes a line for each compilation, so that this script's can be told from all others.
export CCACHE_STATSLOG="$root/build/ccache.log"
mkdir -p "$root/build"
: >"$CCACHE_STATSLOG"

# phase NAME COMMAND...: runs the command and notes how long it took. Whatever the locale's decimal point is, the digits
# of EPOCHREALTIME are microseconds.
phase() {
  local name="$1" begin_us="${EPOCHREALTIME/[^0-9]/}" status=0
  shift
  say "$name"
  "$@" || status=$?
  phases+=("$(((${EPOCHREALTIME/[^0-9]/} - begin_us) / 100000))"$'\t'"$name")
  return "$status"
}

# Prints how many compilations ccache answered.
print_ccache() {
  command -v ccache >/dev/null || {
    say "ccache: not installed, so everything was compiled"
    return
  }
  local hits misses
  hits="$(grep -cE '^(direct|preprocessed)_cache_hit$' "$CCACHE_STATSLOG" || true)"
  misses="$(grep -c '^cache_miss$' "$CCACHE_STATSLOG" || true)"
  say "ccache: ${hits:-0} hits, ${misses:-0} misses"
}

print_phases() {
  local row tenths total=0
  for row in "${phases[@]}"; do
    tenths="${row%%$'\t'*}"
    total=$((total + tenths))
    printf 'forebay: %5d.%d s  %s\n' "$((tenths / 10))" "$((tenths % 10))" "${row#*$'\t'}"
  done >&2
  printf 'forebay: %5d.%d s  in all\n' "$((total / 10))" "$((total % 10))" >&2
  print_ccache
}
trap print_phases EXIT

# run_ctest PRESET NAME ARGUMENT...: runs the tests that were built with the preset, two at a time; counts them in
# build/results/ctest-NAME.xml and lists the slowest.
run_ctest() {
  local preset="$1" results="$root/build/results/ctest-$2.xml" status=0
  shift 2
  mkdir -p "$root/build/results"
  ctest --test-dir "build/$preset" --parallel 2 --output-on-failure --no-tests=error --output-junit "$results" "$@" ||
    status=$?
  "$venv/bin/python" scripts/slowest.py "$results"
  return "$status"
}
