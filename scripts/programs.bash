# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Finds the programs that CMake listed in programs.tsv: those of a GPU bundle, or those built here. Sourced after
# lib.bash.

# A bundled program was built elsewhere: the profiles are those of this tree.
export FOREBAY_PROFILE_DIR="${FOREBAY_PROFILE_DIR:-$root/profiles}"

# Prints `name<TAB>path` of each program of a kind: bench, gpu-test or gpu-bench. Builds them unless a bundle brings them.
list_programs() {
  local kind="$1" bundled="${FOREBAY_BUNDLE:-$root/gpu-bundle}" preset=cuda target=gpu_programs base=""
  if [[ "$kind" == bench ]]; then
    preset="$(main_preset)"
    target=bench_programs
  fi
  local manifest="$root/build/$preset/programs.tsv"
  if [[ "$kind" == gpu-* && -f "$bundled/programs.tsv" && (-n "${FOREBAY_BUNDLE:-}" || ! -f "$manifest") ]]; then
    manifest="$bundled/programs.tsv"
    base="$bundled/"
    say "programs: bundled in $bundled"
  else
    if [[ "$preset" == cuda ]]; then scripts/setup --test --cuda; else scripts/setup; fi
    scripts/build "$preset" "$target" >&2
    say "programs: built in build/$preset"
  fi
  awk -F '\t' -v kind="$kind" -v base="$base" '$1 == kind { print $2 "\t" base $3 }' "$manifest"
}

# Ends the script with status 0 and a line that says so where there is no GPU.
need_gpu() {
  if ! has_gpu; then
    say "SKIPPED: no GPU here (nvidia-smi -L lists none), so no GPU program was run"
    exit 0
  fi
}

# run_benchmarks KIND DIR: runs each benchmark with a time limit; each writes DIR/<name>.json.
run_benchmarks() {
  local kind="$1" out="$2" limit_s="${FOREBAY_BENCH_TIMEOUT_S:-300}" programs name path ran=0 failed=()
  programs="$(list_programs "$kind")"
  mkdir -p "$out"
  FOREBAY_COMMIT="$(commit)"
  export FOREBAY_COMMIT
  while IFS=$'\t' read -r name path; do
    [[ -n "$name" ]] || continue
    say "$name"
    ran=$((ran + 1))
    timeout --kill-after=10 "$limit_s" "$path" --json "$out/$name.json" || failed+=("$name")
  done <<<"$programs"
  ((ran)) || die "no benchmark of kind $kind in the manifest"
  ((${#failed[@]} == 0)) || die "failed: ${failed[*]}"
  say "$ran results in $out"
}
