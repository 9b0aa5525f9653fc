#!/usr/bin/env bash
# Runs the commands of docs/provider-guide.md, which are its indented blocks (provider-sdk/tests/readme.rs compares the fenced blocks with files). It runs each as printed, in their order, in one
# shell and in a copy of the tracked files. It skips the command with `./my-provider`, the reader's own program. These things differ from a reader's shell: /tmp is a private directory, GOWORK is off, and cargo works in this checkout, reuses its target directory and installs debug builds.
# With CONFORMANCE_BIN the script does not call cargo, because the binaries exist. `providers/guide.sh list` prints the commands.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD guide=docs/provider-guide.md
commands() {
  awk '/^```/ { fenced = !fenced } !fenced && /^    / { print FNR "\t" substr($0, 5) }' "$root/$guide"
}
if [ "${1:-}" = list ]; then
  commands
  exit
fi
directory=$(realpath "$(mktemp -d)")
trap 'rm -rf "$directory"' EXIT
mkdir -p "$directory/tmp" "$directory/bin" "$directory/checkout"
git ls-files --cached -z | xargs -0 cp --parents --preserve=mode,timestamps --target-directory "$directory/checkout"
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
if [ -n "${CONFORMANCE_BIN:-}" ]; then
  target=$(dirname "$(realpath "$CONFORMANCE_BIN")")
  ln -s "$target/debug/provider-conformance" "$directory/bin/"
fi
ln -s "$target" "$directory/checkout/target"
export PATH=$directory/bin:$PATH GOWORK=off
cargo() {
  local verb=$1
  shift
  [ -z "${CONFORMANCE_BIN:-}" ] || { echo "skipped: CONFORMANCE_BIN has what \`cargo $verb\` makes"; return 0; }
  [ "$verb" != install ] || set -- --debug --root "$directory" "$@"
  (cd "$root" && CARGO_TARGET_DIR=$target command cargo "$verb" --quiet "$@")
}
# Expects this exit code of the command, and a line that begins with this text.
verdict() {
  local code=0
  eval "$3" >"$directory/said" 2>&1 || code=$?
  if [ "$code" = "$1" ] && grep -E "^$2" "$directory/said"; then
    return 0
  fi
  cat "$directory/said"
  return 1
}
run() {
  case $1 in
    *"--command './my-provider "*) echo "skipped: ./my-provider is the reader's own" ;;
    './my-cloud-provider check '*) TMPDIR=$directory/tmp verdict 1 'Rules that the cloud breaks' "$1" ;; # The guide says that this check ends with 1, because the fake is no real cloud.
    "provider-conformance "*) verdict 0 'machines 1\.0\.0: [1-9][0-9]* passed, 0 failed' "$1" ;;
    *) eval "$1" ;;
  esac
}
cd "$directory/checkout"
ran=0
while IFS=$'\t' read -r line command <&3; do
  echo "$guide:$line: $command"
  # Not in a subshell: a reader's `cd` and `export` hold for later commands. After `||` `set -e` has no effect: each line is one command, and its code counts.
  run "${command//\/tmp\//$directory/tmp/}" || { echo "$guide:$line failed: $command" >&2; exit 1; }
  ran=$((ran + 1))
done 3< <(commands)
[ "$ran" -gt 20 ] || { echo "$guide: only $ran commands were found" >&2; exit 1; }
[ "$PWD" = "$directory/checkout" ] || { echo "$guide leaves its reader in $PWD" >&2; exit 1; }
echo "the $ran commands of the guide work"
