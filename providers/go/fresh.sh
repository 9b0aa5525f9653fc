#!/usr/bin/env bash
# Shows that a module outside of this checkout builds on the SDK without `replace`, as after a release: the contract and the SDK are served from a module proxy that is a folder, what they
# need from the ordinary one. Whoever takes the SDK inherits no module of Kubernetes or of a cloud.
set -euo pipefail
cd "$(dirname "$0")"
work=$(mktemp -d)
trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT
path=github.com/grpc-ccm/grpc-ccm/providers/go
version=$(sed -n "s#^\t$path/contract \(v.*\)#\1#p" sdk/go.mod)
for module in contract sdk; do
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
        for file in files:
            whole = os.path.join(at, file)
            archive.write(whole, prefix + "/" + os.path.relpath(whole, folder))
ZIP
done
# A cache of its own, as what is served here is no release; what the ordinary cache has is taken from there.
GOPROXY="file://$work/proxy,file://$(go env GOMODCACHE)/cache/download,$(go env GOPROXY)"
export GOPROXY GOMODCACHE=$work/cache GONOSUMDB="$path/*" GOWORK=off GOFLAGS="-modcacherw -trimpath"
mkdir "$work/fresh"
cp first/main.go "$work/fresh"
cd "$work/fresh"
go mod init example.com/fresh
go get "$path/sdk@$version"
go mod tidy
go build -o fresh . && go vet .
if grep -q '^replace' go.mod || go list -m all | grep -E '^(k8s\.io|sigs\.k8s\.io|github\.com/aws)/'; then
  echo "a fresh module has a replace, or inherits what stands above" >&2
  exit 1
fi
echo "a fresh module builds on the SDK at $version"
