#!/usr/bin/env bash
# Runs the providers' own tests: `providers/test.sh [python|go|typescript|java|digitalocean|hetzner …]`, all of them unless named.
set -euo pipefail
cd "$(dirname "$0")"
[ $# -gt 0 ] || set -- python go typescript java digitalocean hetzner
for name in "$@"; do
  command=$(./prepare.sh "$name")
  echo "== $name"
  case $name in
    python) (cd python && "${command%% *}" -m pytest --quiet -p no:cacheprovider) ;;
    java) (cd java && mvn --batch-mode --quiet surefire:test) ;;
    typescript) (cd typescript && npm test --silent) ;;
    python-first | rust-first | go-first) ;; # Their tests are python's, the SDK's, go's, and the suite.
    go)
      packages="./sample ./first ./smoke github.com/grpc-ccm/grpc-ccm/providers/go/sdk"
      (cd go && GOWORK=off go vet $packages && GOWORK=off go test $packages)
      go/fresh.sh
      ;;
    digitalocean)
      (cd testapi && GOWORK=off go vet ./... && GOWORK=off go test ./...)
      (cd "$name" && GOWORK=off go vet ./... && GOWORK=off go test ./...)
      (cd "$name/openapicheck" && GOWORK=off go vet ./... && GOWORK=off go test ./...)
      ;;
    hetzner) (cd "$name" && GOWORK=off go vet ./... && GOWORK=off go test ./...) ;;
  esac
done
