#!/usr/bin/env bash
# Makes a provider ready to run (python, go, typescript, java, digitalocean or hetzner; python-first, rust-first and go-first are those of the guide) and prints the command that serves it. Append `--state FILE --endpoint unix:///…` to it, or `FILE unix:///…` for a first provider (digitalocean and hetzner have other flags).
# It installs or builds the dependencies in pinned versions: those of Python under target/, the others where npm, Maven, Go and cargo keep theirs. The second time that takes a moment.
set -euo pipefail
cd "$(dirname "$0")"
work=${CARGO_TARGET_DIR:-$PWD/../target}
mkdir -p "$work/providers"
work=$(cd "$work/providers" && pwd)
fail() {
  echo "$1" >&2
  exit 1
}
# One at a time, because tests run in parallel. The output of children goes to stderr, so that stdout has only the command.
exec 8>"$work/lock" 9>&1 1>&2
flock 8
case ${1:-} in
  python | python-first)
    python=${PYTHON:-python3}
    command -v "$python" >/dev/null || fail "missing: Python 3.11 or newer (python3): install it from your distribution, or name it in PYTHON"
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || fail "too old: $("$python" --version): the provider in Python needs 3.11 or newer; name one in PYTHON"
    "$python" -c 'import venv, ensurepip' 2>/dev/null || fail "missing: the modules venv and ensurepip of Python (Debian: apt-get install python3-venv)"
    venv=$work/python
    wanted=$("$python" -c 'import sys; print(sys.executable, sys.version)' | cat - python/requirements*.txt | sha256sum)
    if [ "$(cat "$venv/stamp" 2>/dev/null)" != "$wanted" ]; then
      echo "installing what the provider in Python needs ..."
      rm -rf "$venv"
      "$python" -m venv "$venv"
      for requirements in requirements.txt requirements-dev.txt; do
        "$venv/bin/pip" install --quiet --disable-pip-version-check --require-hashes -r "python/$requirements" ||
          fail "python/$requirements could not be installed: is PyPI reachable?"
      done
      echo "$wanted" >"$venv/stamp"
    fi
    contract=$(sha256sum ../proto/cloudprovider/v1alpha1/*.proto python/generate.py "$venv/stamp")
    if [ ! -e python/cloudprovider ] || [ "$(cat "$venv/contract" 2>/dev/null)" != "$contract" ]; then
      "$venv/bin/python" python/generate.py
      echo "$contract" >"$venv/contract"
    fi
    file=provider.py
    [ "$1" = python ] || file=first.py
    echo "$venv/bin/python $PWD/python/$file" >&9
    ;;
  rust-first)
    # Use the build of the workspace's `cargo test`: another selection of crates would build their dependencies again.
    if [ -x "${CONFORMANCE_BIN:-}/examples/minimal" ]; then
      echo "$CONFORMANCE_BIN/examples/minimal" >&9
      exit
    fi
    command -v cargo >/dev/null || fail "missing: a Rust toolchain (cargo): install it from https://rustup.rs"
    (cd .. && cargo build --locked --quiet -p grpc-ccm-provider-sdk --example minimal) || fail "the provider of provider-sdk/examples/minimal.rs could not be built"
    echo "${work%/providers}/debug/examples/minimal" >&9
    ;;
  go | go-first)
    command -v go >/dev/null || fail "missing: Go 1.26 or newer (go): install it from https://go.dev/dl"
    version=$(go env GOVERSION | sed 's/^go//')
    [ "$(printf '%s\n' 1.26 "$version" | sort -V | head -n 1)" = 1.26 ] || fail "too old: Go $version: the provider in Go needs 1.26 or newer, from https://go.dev/dl"
    binary=$work/go-provider package=./sample
    [ "$1" = go ] || binary=$work/go-first package=./first
    (cd go && GOWORK=off go build -trimpath -buildvcs=false -o "$binary" "$package") || fail "the provider in Go could not be built: is the Go module proxy reachable?"
    echo "$binary" >&9
    ;;
  digitalocean | hetzner)
    command -v go >/dev/null || fail "missing: Go 1.26 or newer (go): install it from https://go.dev/dl"
    binary=$work/$1-provider
    (cd "$1" && GOWORK=off go build -trimpath -buildvcs=false -o "$binary" . && GOWORK=off go build -trimpath -buildvcs=false -o "$binary-testapi" ./testapi/cmd) ||
      fail "the provider of $1 could not be built: is the Go module proxy reachable?"
    echo "$binary" >&9
    ;;
  typescript)
    command -v npm >/dev/null || fail "missing: Node.js with npm (npm), 20 or newer: install it from https://nodejs.org or your distribution"
    node -e 'process.exit(Number(process.versions.node.split(".")[0]) < 20 ? 1 : 0)' || fail "too old: Node.js $(node --version): the provider in TypeScript needs 20 or newer, from https://nodejs.org"
    command -v flock >/dev/null || fail "missing: flock, which the provider in TypeScript locks its cloud with: install util-linux from your distribution"
    wanted=$(sha256sum typescript/package-lock.json)
    if [ ! -e typescript/node_modules ] || [ "$(cat "$work/typescript.npm" 2>/dev/null)" != "$wanted" ]; then
      echo "installing what the provider in TypeScript needs ..."
      (cd typescript && npm ci --loglevel=error --no-audit --no-fund --progress=false) || fail "typescript/package-lock.json could not be installed: is the npm registry reachable?"
      echo "$wanted" >"$work/typescript.npm"
    fi
    wanted=$(cat ../proto/cloudprovider/v1alpha1/*.proto typescript/{src,test}/*.ts typescript/*.json | sha256sum)
    if [ ! -e typescript/dist ] || [ "$(cat "$work/typescript.built" 2>/dev/null)" != "$wanted" ]; then
      (cd typescript && npm run --silent build)
      echo "$wanted" >"$work/typescript.built"
    fi
    echo "node $PWD/typescript/dist/src/provider.js" >&9
    ;;
  java)
    command -v javac >/dev/null || fail "missing: a JDK 17 or newer (javac): install it from your distribution (Debian: apt-get install openjdk-17-jdk-headless)"
    version=$(javac -version 2>&1 | sed 's/^javac \([0-9]*\).*/\1/')
    [ "$version" -ge 17 ] || fail "too old: a JDK $version: the provider in Java needs 17 or newer"
    command -v mvn >/dev/null || fail "missing: Maven (mvn): install it from your distribution (Debian: apt-get install maven)"
    command -v flock >/dev/null || fail "missing: flock, which the provider in Java locks its cloud with: install util-linux from your distribution"
    wanted=$(
      cat ../proto/cloudprovider/v1alpha1/*.proto java/pom.xml java/src/*/java/provider/*.java | sha256sum
      java -version 2>&1
    )
    java="java -XX:+UseSerialGC -XX:TieredStopAtLevel=1"
    if [ ! -e java/target/provider.jar ] || [ "$(cat "$work/java.built" 2>/dev/null)" != "$wanted" ]; then
      echo "building the provider in Java ..."
      (cd java && mvn --batch-mode --quiet -DskipTests package) || fail "the provider in Java could not be built: is Maven Central reachable?"
      # With its classes in an archive a process starts in a third of the time, and the suite starts some forty processes. The provider also works without the archive.
      rm -f "$work/java.jsa"
      once=$(mktemp -d)
      $java -Xlog:disable -XX:ArchiveClassesAtExit="$work/java.jsa" -jar java/target/provider.jar --state "$once/cloud.json" --endpoint "unix://$once/socket/p.sock" 2>/dev/null 8>&- 9>&- &
      for _ in $(seq 600); do
        { [ ! -S "$once/socket/p.sock" ] && kill -0 $! 2>/dev/null; } || break
        sleep 0.1
      done
      kill $! && wait $! || true
      rm -rf "$once"
      echo "$wanted" >"$work/java.built"
    fi
    echo "$java -Xlog:disable -XX:SharedArchiveFile=$work/java.jsa -jar $PWD/java/target/provider.jar" >&9
    ;;
  *) fail "give python, python-first, rust-first, go, go-first, typescript, java, digitalocean or hetzner" ;;
esac
