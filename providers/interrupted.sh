#!/usr/bin/env bash
# Shows that an interrupted providers/conformance.sh ends when the suite has removed its objects, and not earlier. It sends SIGTERM as soon as a load balancer exists.
set -euo pipefail
cd "$(dirname "$0")"
./prepare.sh go >/dev/null
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
mkdir "$directory/tmp"
wrong() {
  echo "$1; it said:" >&2
  cat "$directory/said" >&2
  exit 1
}
TMPDIR=$directory/tmp ./conformance.sh go -- --only 'load-balancers/*' >"$directory/said" 2>&1 &
running=$!
until grep -qs '"handle"' "$directory"/tmp/*/go.state; do
  kill -0 "$running" 2>/dev/null || wrong "it ended before there was a load balancer"
  sleep 0.05
done
kill -TERM "$running"
code=0
wait "$running" || code=$?
[ "$code" = 130 ] || wrong "it ended with $code; right would be 130"
grep -q '^interrupted: the other checks did not run' "$directory/said" || wrong "it did not wait for the suite's end"
! grep -qi 'left behind' "$directory/said" || wrong "the suite left something in the cloud"
[ -z "$(ls -A "$directory/tmp")" ] || wrong "files are left: $(ls -A "$directory/tmp")"
echo "an interrupted run cleans up"
