# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# An MPS of a script's own, so that processes share the GPU at the same time. A client that was killed may leave it of
# no use: so each piece of work gets a new one. Sourced after lib.bash; the script ends it with `trap end_mps EXIT`.

mps_folder=""

# Status 1 where there is no MPS, or it does not start.
start_mps() {
  command -v nvidia-cuda-mps-control >/dev/null || return 1
  mps_folder="$(mktemp -d)"
  export CUDA_MPS_PIPE_DIRECTORY="$mps_folder" CUDA_MPS_LOG_DIRECTORY="$mps_folder"
  timeout 30 nvidia-cuda-mps-control -d </dev/null >/dev/null || {
    end_mps
    return 1
  }
}

end_mps() {
  [[ -n "$mps_folder" ]] || return 0
  local control
  control="$(cat "$mps_folder/nvidia-cuda-mps-control.pid" 2>/dev/null || true)"
  echo 'quit -t 10' | timeout 30 nvidia-cuda-mps-control >/dev/null 2>&1 || true
  if [[ -n "$control" ]] && ! timeout 10 tail --pid="$control" -f /dev/null; then
    say "MPS does not end, and is killed"
    kill -KILL "$control" 2>/dev/null || true
  fi
  rm -rf "$mps_folder"
  unset CUDA_MPS_PIPE_DIRECTORY CUDA_MPS_LOG_DIRECTORY
  mps_folder=""
}
