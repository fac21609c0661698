#!/bin/bash
# Checks tools/fuzz without fuzzing: its help, what it refuses, and that every name it offers is a target with inputs.
# Usage: tool_test.sh ROOT
set -euo pipefail
cd "$1"

fail() {
  echo "FAILED: $1" >&2
  exit 1
}

refused() { # refused TEXT ARGUMENT...: exit code 2, and TEXT on standard error alone
  local status=0 output
  output="$(tools/fuzz "${@:2}" 2>&1 >/dev/null)" || status=$?
  ((status == 2)) || fail "tools/fuzz ${*:2}: exit code $status, expected 2"
  [[ "$output" == *"$1"* ]] || fail "tools/fuzz ${*:2}: '$output' does not say '$1'"
}

names="$(cd tests/fuzz/corpus && echo *)"
[[ "$(tools/fuzz --help)" == *"Names: $names"* ]] || fail "--help does not name the targets"
refused "expected one of: $names" no_such_target
refused "one of: $names"
refused "--seconds: 'soon'" hostlist --seconds soon
refused "--seconds: '0'" hostlist --seconds=0
refused "--seconds needs a number" hostlist --seconds
refused "unknown flag --minutes" hostlist --minutes 1
refused "found hostlist and identity" hostlist identity

for name in $names; do
  grep -qE "^lockstep_fuzz\($name[ )]" tests/fuzz/CMakeLists.txt || fail "corpus/$name has no target"
done
for name in $(sed -n 's/^lockstep_fuzz(\([a-z_]*\).*/\1/p' tests/fuzz/CMakeLists.txt); do
  [[ -n "$(ls "tests/fuzz/corpus/$name")" ]] || fail "the target $name has no inputs"
done
echo "tools/fuzz offers: $names"
