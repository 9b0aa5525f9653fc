#!/usr/bin/env bash
# Tries a provider on a real account: `CLOUD=hetzner providers/smoke.sh`; with YES=1 it does not ask. The program is go/smoke. A cloud can be tried if its folder has a smoke.json.
set -euo pipefail
cd "$(dirname "$0")"
clouds=$(echo */smoke.json | sed 's,/smoke.json,,g')
[ -n "${CLOUD:-}" ] && [ -f "$CLOUD/smoke.json" ] || {
  echo "CLOUD=${CLOUD:-} is not known; use one of: $clouds" >&2
  exit 2
}
work=$(realpath -m "${CARGO_TARGET_DIR:-../target}")/providers
(cd go && GOWORK=off go build -trimpath -buildvcs=false -o "$work/smoke" ./smoke) || {
  echo "smoke could not be built: is the Go module proxy reachable?" >&2
  exit 1
}
# Report missing settings before the build of the provider.
"$work/smoke" --config "$CLOUD/smoke.json"
command=$(./prepare.sh "$CLOUD")
# shellcheck disable=SC2086 # The command may have arguments.
exec "$work/smoke" --config "$CLOUD/smoke.json" ${YES:+--yes} -- $command
