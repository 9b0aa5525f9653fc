#!/usr/bin/env bash
# Runs provider-conformance, all of it, against the providers of this folder: `providers/conformance.sh [python|go|typescript|java …]`, all of them unless named. What follows `--` goes to
# provider-conformance: `providers/conformance.sh python -- --only 'instances/*'`.
set -euo pipefail
cd "$(dirname "$0")/.."
names=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do
  names+=("$1")
  shift
done
[ "${1:-}" != -- ] || shift
[ ${#names[@]} -gt 0 ] || names=(python go typescript java)

target=${CARGO_TARGET_DIR:-$PWD/target}
# The binaries may be there already: a test has built them.
if [ -z "${CONFORMANCE_BIN:-}" ]; then
  cargo build --quiet -p provider-mock -p provider-sdk --features provider-sdk/conformance --bins
  CONFORMANCE_BIN=$(cd "$target/debug" && pwd)
fi
PATH=$CONFORMANCE_BIN:$PATH

directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
wrong=0
for name in "${names[@]}"; do
  command=$(providers/prepare.sh "$name")
  # The cloud of providers/suite.yaml, new for each.
  export STATE=$directory/$name.json
  n=0
  for zone in a b c a b c; do
    provider-mock file --state "$STATE" instance add "node-$n" --zone "zone-$zone" --region region-1 --type mock.large --address "InternalIP=10.1.0.$((n + 1))" >/dev/null
    n=$((n + 1))
  done
  provider-mock file --state "$STATE" instance add stopped-0 --zone zone-a --region region-1 --type mock.small --address InternalIP=10.2.0.1 >/dev/null
  provider-mock file --state "$STATE" instance stop stopped-0
  cat >"$STATE.catalogue.json" <<'END'
{"clusters": {"kubernetes": "203.0.113.10"},
 "volumes": {"disk-1": {"topology.kubernetes.io/zone": "zone-a", "topology.kubernetes.io/region": "region-1"}}}
END
  run() {
    local options=$1
    shift
    provider-conformance --config providers/suite.yaml "$@" \
      --command "exec $command --endpoint {endpoint} --state '$STATE' $options 2>>'$directory/$name.log'" || wrong=1
  }
  echo "== $name"
  run "" "$@"
  if [ $# -eq 0 ]; then
    echo "== $name, where load balancers take time"
    run "--provisioning-ms 1500" --only load-balancers/ensure-pending --only load-balancers/ensure-handle-early --only load-balancers/delete-pending
  fi
  if [ "$wrong" = 1 ] && [ -n "${KEEP_LOG:-}" ]; then
    cp "$directory/$name.log" "$KEEP_LOG"
  fi
done
exit "$wrong"
