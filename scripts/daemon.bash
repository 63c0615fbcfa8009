# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# A drive daemon of a script's own. Sourced after lib.bash; the script ends it with `trap end_daemon EXIT`.

daemon=""

# start_daemon LOG COMMAND...: starts one that listens at a new FOREBAY_DAEMON, which COMMAND must serve. Status 1 where
# it does not come up.
start_daemon() {
  local log="$1"
  shift
  FOREBAY_DAEMON="$(mktemp -u "${TMPDIR:-/tmp}/forebay-XXXXXX.sock")"
  export FOREBAY_DAEMON
  "$@" >"$log" 2>&1 &
  daemon=$!
  for ((i = 0; i < 300; ++i)); do
    [[ ! -S "$FOREBAY_DAEMON" ]] || return 0
    sleep 0.1
  done
  say "the daemon does not start: $(tail -n 1 "$log")"
  return 1
}

# Status 1 where it does not end by itself when it is asked to, and has to be killed.
end_daemon() {
  [[ -n "$daemon" ]] || return 0
  local status=0
  kill -TERM "$daemon" 2>/dev/null || true
  timeout 60 tail --pid="$daemon" -f /dev/null || {
    status=1
    say "the daemon does not end, and is killed"
    pkill -KILL -P "$daemon" 2>/dev/null || true
    kill -KILL "$daemon" 2>/dev/null || true
  }
  wait "$daemon" 2>/dev/null || true
  daemon=""
  unset FOREBAY_DAEMON
  return "$status"
}
