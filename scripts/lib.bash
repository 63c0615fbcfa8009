# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034 # variables for scripts that source it
# What the scripts share. Sourced; sets the working directory to the root of the repository.

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
cd "$root" || exit
venv="$root/.venv"
export PATH="$venv/bin:$PATH"
jobs="${FOREBAY_JOBS:-$(nproc)}"

say() { printf 'forebay: %s\n' "$*" >&2; }
die() {
  say "$*"
  exit 1
}

# A GPU bundle that was copied here travels packed.
if [[ ! -d "$root/gpu-bundle" && -f "$root/gpu-bundle.tar.xz" ]]; then tar -xJf "$root/gpu-bundle.tar.xz" -C "$root"; fi

# A GPU bundle stands in for the packages of a machine that has no network.
bundle() {
  if [[ -n "${FOREBAY_BUNDLE:-}" ]]; then
    [[ -d "$FOREBAY_BUNDLE/include" ]] || die "FOREBAY_BUNDLE: $FOREBAY_BUNDLE has no include/: run 'make gpu-bundle' elsewhere and copy it here"
    (cd "$FOREBAY_BUNDLE" && pwd)
  elif [[ -d "$root/gpu-bundle/include" ]] && ! dpkg-query -W libboost-context1.81-dev >/dev/null 2>&1; then
    printf '%s\n' "$root/gpu-bundle"
  fi
}

# The commit that results name. A copied tree has no history; a bundle brought its own commit along.
commit() {
  if [[ -n "${FOREBAY_COMMIT:-}" ]]; then
    printf '%s\n' "$FOREBAY_COMMIT"
  else
    git -C "$root" describe --always --dirty --abbrev=12 --exclude '*' 2>/dev/null ||
      cat "${FOREBAY_BUNDLE:-$root/gpu-bundle}/commit" 2>/dev/null || echo unknown
  fi
}

has_gpu() { command -v nvidia-smi >/dev/null && nvidia-smi -L 2>/dev/null | grep -q '^GPU'; }

# The preset that the Python extension and the demo are built with: with CUDA where a GPU can use it.
main_preset() { if has_gpu; then echo cuda; else echo cpu; fi; }

# Prints the nvcc to build with: an installed toolkit (13.0 or newer), else the one in .venv. Fails when there is none.
find_nvcc() {
  local candidate
  if [[ "${FOREBAY_CUDA_TOOLKIT:-installed}" != wheels ]]; then
    for candidate in "$(command -v nvcc || true)" "${CUDA_HOME:+$CUDA_HOME/bin/nvcc}" /usr/local/cuda/bin/nvcc; do
      if [[ -x "$candidate" ]] && "$candidate" --version | grep -Eq 'release (1[3-9]|[2-9][0-9])\.'; then
        printf '%s\n' "$candidate"
        return
      fi
    done
  fi
  for candidate in "$venv"/lib/python3.*/site-packages/nvidia/cu13/bin/nvcc; do
    if [[ -x "$candidate" ]]; then
      printf '%s\n' "$candidate"
      return
    fi
  done
  return 1
}
