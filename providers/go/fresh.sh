#!/usr/bin/env bash
# Shows that modules outside of this checkout build on the SDK, and on the bridge, without `replace`, as after a release. A folder serves as module proxy for the contract, the SDK and the
# bridge; their dependencies come from the module cache or the ordinary proxy. A module on the SDK must inherit no module of Kubernetes or of AWS. A module on the bridge must inherit none of AWS.
set -euo pipefail
cd "$(dirname "$0")"
here=$PWD
work=$(mktemp -d)
trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT
path=github.com/grpc-ccm/grpc-ccm/providers/go
version=$(sed -n "s#^\t$path/contract \(v.*\)#\1#p" sdk/go.mod)
for module in contract sdk bridge; do
  at=$work/proxy/$path/$module/@v
  mkdir -p "$at"
  echo "$version" >"$at/list"
  echo "{\"Version\":\"$version\"}" >"$at/$version.info"
  cp "$module/go.mod" "$at/$version.mod"
  python3 - "$module" "$path/$module@$version" "$at/$version.zip" <<'ZIP'
import os, sys, zipfile
folder, prefix, name = sys.argv[1:]
with zipfile.ZipFile(name, "w") as archive:
    for at, folders, files in os.walk(folder):
        # A folder with its own go.mod is another module.
        folders[:] = [one for one in folders if not os.path.exists(os.path.join(at, one, "go.mod"))]
        for file in files:
            whole = os.path.join(at, file)
            archive.write(whole, prefix + "/" + os.path.relpath(whole, folder))
ZIP
done
# A separate cache, because these modules are no release. Their dependencies come from the ordinary cache's downloads if it has them.
GOPROXY="file://$work/proxy,file://$(go env GOMODCACHE)/cache/download,$(go env GOPROXY)"
export GOPROXY GOMODCACHE=$work/cache GONOSUMDB="$path/*" GOWORK=off GOFLAGS="-modcacherw -trimpath"
# fresh MODULE MAIN FORBIDDEN: builds a new module with this main on MODULE, and fails if it inherits a module that FORBIDDEN matches.
fresh() {
  mkdir "$work/$1" && cd "$work/$1"
  cp "$here/$2" main.go
  go mod init "example.com/$1"
  go get "$path/$1@$version"
  go mod tidy
  go build -o fresh . && go vet .
  if grep -q '^replace' go.mod || go list -m all | grep -E "^($3)/"; then
    echo "a fresh module on the $1 has a replace, or inherits what stands above" >&2
    exit 1
  fi
  echo "a fresh module builds on the $1 at $version"
}
fresh sdk first/main.go 'k8s\.io|sigs\.k8s\.io|github\.com/aws'
fresh bridge bridge/template/main.go 'github\.com/aws|k8s\.io/cloud-provider-aws'
