#!/usr/bin/env bash
# Runs provider-conformance against these providers: `providers/conformance.sh [python|python-first|rust-first|go|go-first|typescript|java|digitalocean|hetzner …]`, all of them unless named. Arguments after `--` go
# to provider-conformance: `providers/conformance.sh python -- --only 'instances/*'`. With several providers, JOBS of them (3 unless set) run in parallel, each with a separate cloud, and the script prints neither the checks that passed nor the skipped ones.
# After SIGINT or SIGTERM it ends when each suite has removed its objects; a second signal skips that.
set -euo pipefail
cd "$(dirname "$0")/.."
names=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do
  names+=("$1")
  shift
done
[ "${1:-}" != -- ] || shift
[ ${#names[@]} -gt 0 ] || names=(digitalocean hetzner java typescript python go python-first rust-first go-first)

target=${CARGO_TARGET_DIR:-$PWD/target}
# The binaries may exist already, because a test has built them.
if [ -z "${CONFORMANCE_BIN:-}" ]; then
  cargo build --locked --quiet -p provider-mock -p grpc-ccm-provider-conformance --bins
  CONFORMANCE_BIN=$(cd "$target/debug" && pwd)
fi
export PATH=$CONFORMANCE_BIN:$PATH

directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
declare -A running=()
interrupted=0
# Only this shell gets the terminal's signals (set -m): it signals each suite once, and the suite cleans up.
interrupt() {
  interrupted=1
  local pid # The trap may run within `next`, which has its own variable `pid`.
  for pid in "${!running[@]}"; do
    kill -INT -- "-$pid" 2>/dev/null || true
  done
}
trap interrupt INT TERM

# The cloud of suite.yaml.
cloud() {
  local n=0
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
}

# Starts the test API of a cloud with the objects of the cloud's suite.yaml, and puts its URL into $API. The test API gets no Ctrl-C of a terminal, because the suite needs it to clean up.
cloud_api() {
  export TESTAPI=$1-testapi
  (
    trap '' INT
    exec "$TESTAPI" serve --suite --address-file "$STATE" ${JOURNAL:+--journal "$JOURNAL"} >>"$STATE.log" 2>&1
  ) &
  api=$!
  until [ -s "$STATE" ]; do
    kill -0 "$api" || return 1
    sleep 0.05
  done
  API=$(cat "$STATE")
  export API
}

# Runs the suite against one provider. The exit code is that of the suite's last run that failed; 0 if none failed.
suite() {
  local name=$1 command=$2 worst=0
  shift 2
  # The suite in the foreground gets the signal too, and ends when it has cleaned up.
  trap 'worst=130' INT
  export STATE=$directory/$name.state
  run() {
    local config=$1 serve=$2
    shift 2
    [ "$worst" = 130 ] || provider-conformance --config "$config" "$@" --command "exec $command $serve 2>>'$directory/$name.log'" || worst=$?
  }
  echo "== $name"
  if [[ "$name" = *-first ]]; then
    local config
    case $name in
      python-first) config=providers/python/first.suite.yaml ;;
      rust-first) config=provider-sdk/examples/minimal.suite.yaml ;;
      go-first) config=providers/go/first/suite.yaml ;;
    esac
    printf 'node-%s,10.1.0.%s,8-cores,rack-a\n' 1 1 2 2 3 3 >"$STATE"
    run "$config" "'$STATE' {endpoint}" --allow-skipped "$@"
  elif [ -d "providers/$name/testapi" ]; then
    local api serve slow skip=()
    cloud_api "$command"
    case $name in
      digitalocean)
        export DIGITALOCEAN_TOKEN=dop_v1_test
        serve="--endpoint {endpoint} --api-url '$API' --region nyc1" slow='{"provision_ms": 1500, "delete_ms": 1500}'
        ;;
      hetzner)
        export HCLOUD_TOKEN=hcloud-test-token
        serve="--endpoint {endpoint} --api-url '$API/v1' --network cluster" slow='{"action_ms": 9500, "delete_actions": true}'
        # Hetzner's routes have only addresses as targets.
        skip=(--skip routes/gateway-is-listed)
        ;;
    esac
    run "providers/$name/suite.yaml" "$serve" "${skip[@]}" "$@"
    if [ $# -eq 0 ]; then
      echo "== $name, where load balancers take time"
      "$TESTAPI" ask "$API" PUT settings "$slow"
      run "providers/$name/suite.yaml" "$serve" \
        --only load-balancers/ensure-pending --only load-balancers/ensure-handle-early --only load-balancers/delete-pending --only load-balancers/ensure-of-remnants
    fi
    kill "$api"
  else
    cloud
    run providers/suite.yaml "--endpoint {endpoint} --state '$STATE'" "$@"
    if [ $# -eq 0 ]; then
      echo "== $name, where load balancers take time"
      run providers/suite.yaml "--endpoint {endpoint} --state '$STATE' --provisioning-ms 1500" \
        --only load-balancers/ensure-pending --only load-balancers/ensure-handle-early --only load-balancers/delete-pending --only load-balancers/ensure-of-remnants
    fi
  fi
  return "$worst"
}

wrong=0
ended() {
  local name=$1 code=$2
  [ "$code" = 0 ] || wrong=1
  if [ ${#names[@]} -gt 1 ]; then
    grep -vE '^pass |^skipped [0-9]+: ' "$directory/$name.out" || true
  fi
  if [ "$code" != 0 ] && [ -n "${KEEP_LOG:-}" ]; then
    cat "$directory/$name.log" >>"$KEEP_LOG" || true
  fi
}
# Waits until the suite of one provider ends. A signal only interrupts the wait.
next() {
  local pid='' code=0
  wait -n -p pid "${!running[@]}" || code=$?
  [ -n "${pid:-}" ] || return 0
  ended "${running[$pid]}" "$code"
  unset "running[$pid]"
}
for name in "${names[@]}"; do
  while [ ${#running[@]} -ge "${JOBS:-3}" ]; do next; done
  [ "$interrupted" = 0 ] || break
  command=$(providers/prepare.sh "$name")
  set -m
  if [ ${#names[@]} -gt 1 ]; then
    suite "$name" "$command" "$@" >"$directory/$name.out" 2>&1 &
  else
    suite "$name" "$command" "$@" &
  fi
  set +m
  running[$!]=$name
done
while [ ${#running[@]} -gt 0 ]; do next; done
[ "$interrupted" = 0 ] || exit 130
exit "$wrong"
