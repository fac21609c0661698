#!/usr/bin/env bash
# The front door and the package installer, on a scratch tree with stand-ins for everything that they call.
# front_door_test.sh SOURCE_TREE
set -euo pipefail
tree=$1
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
failures=0

begin() { # name: a fresh scratch tree whose stand-ins note how they were called
  name=$1
  rm -rf "${scratch:?}"/*
  mkdir -p "$scratch/tree/tools" "$scratch/bin"
  cp "$tree/lockstep" "$scratch/tree/"
  cp "$tree/tools/install-packages" "$scratch/tree/tools/"
  printf '# a comment\nbuild alpha the first\nbuild beta the second thing\ntest gamma the third\n' >"$scratch/tree/tools/packages.txt"
  : >"$scratch/calls"
  : >"$scratch/installed"
  for tool in bash env cat tail dirname readlink mkdir touch grep awk sort xargs mktemp rm flock printf chmod cp echo; do
    ln -s "$(type -P "$tool")" "$scratch/bin/$tool"
  done
  stand_in id 'echo ${FAKE_UID:-0}'
  stand_in dpkg-query 'grep -qx "${@: -1}" '"$scratch/installed"' && printf installed'
  stand_in apt-get 'for word; do case $word in alpha|beta|gamma) echo $word >>'"$scratch/installed"' ;; esac; done'
  stand_in cmake "mkdir -p build/release/bin; touch build/release/build.ninja"
  stand_in ninja "case \$* in *-n*) [ -x $scratch/tree/build/release/bin/lockstep ] && echo 'ninja: no work to do.' ;;
    *) cp $scratch/command $scratch/tree/build/release/bin/lockstep ;; esac; true"
  printf '#!%s\nprintf "<%%s>" "$@"\nexit 7\n' "$(command -v bash)" >"$scratch/command"
  chmod +x "$scratch/command"
}

stand_in() { # tool body
  rm -f "$scratch/bin/$1"
  printf '#!%s\necho "%s $*" >>%s\n%s\n' "$(command -v bash)" "$1" "$scratch/calls" "$2" >"$scratch/bin/$1"
  chmod +x "$scratch/bin/$1"
}

run() { # command...: keeps its output, errors and exit code
  code=0
  PATH=$scratch/bin "$@" >"$scratch/output" 2>"$scratch/errors" </dev/null || code=$?
}

expect() { # what condition...
  local what=$1
  shift
  "$@" && return
  printf 'FAILED %s: %s\nexit code %s\noutput: %s\nerrors: %s\ncalls: %s\n' "$name" "$what" "$code" \
    "$(cat "$scratch/output")" "$(cat "$scratch/errors")" "$(cat "$scratch/calls")"
  failures=$((failures + 1))
}
holds() { grep -qF -- "$2" "$scratch/$1"; }
lacks() { ! holds "$1" "$2"; }

begin 'a fresh machine: installs, configures, builds, forwards'
run "$scratch/tree/lockstep" run --env 'A=b c' '' -- './it self'
expect 'the command gets every word as it was' [ "$(cat "$scratch/output")" = '<run><--env><A=b c><><--><./it self>' ]
expect "the exit code is the command's" [ "$code" = 7 ]
expect 'says what is installed and why' holds errors 'beta                   the second thing'
expect 'updates the lists first' holds calls 'apt-get -o DPkg::Lock::Timeout=600 update'
expect 'installs what is missing' holds calls 'install -y --no-install-recommends alpha beta'
expect 'leaves the tests alone' lacks calls gamma
expect 'configures without tests' holds calls 'cmake --preset release -DLOCKSTEP_TESTS=OFF'

: >"$scratch/calls"
run "$scratch/tree/lockstep" again
expect 'the second time nothing is installed' lacks calls apt-get
expect 'nor looked for' lacks calls dpkg-query
expect 'nor configured' lacks calls cmake
expect 'nor built' lacks errors building
expect 'and the command runs' [ "$(cat "$scratch/output")" = '<again>' ]

begin 'a package is there already'
echo alpha >"$scratch/installed"
run "$scratch/tree/tools/install-packages" build
expect 'only the missing one is installed' holds calls 'recommends beta'
run "$scratch/tree/tools/install-packages" build test
expect 'another group brings its own' holds calls 'recommends gamma'

begin 'a package is provided by another'
stand_in dpkg-query 'case ${@: -1} in *Provides*) printf "installed omega, beta (= 2), psi,\nremoved alpha,\n" ;; esac'
run "$scratch/tree/tools/install-packages" build
expect 'only the other is installed' [ "$(grep -c 'recommends alpha$' "$scratch/calls")" = 1 ]

begin 'not root, with sudo'
stand_in sudo '"$@"'
FAKE_UID=1000 run "$scratch/tree/tools/install-packages" build
expect 'sudo is used' holds calls 'sudo env DEBIAN_FRONTEND=noninteractive apt-get'
expect 'and it works' [ "$code" = 0 ]

begin 'not root, no sudo'
FAKE_UID=1000 run "$scratch/tree/tools/install-packages" build
expect 'fails' [ "$code" = 1 ]
expect 'says why' holds errors 'installing packages needs root, and there is no sudo'
expect 'says what to do' holds errors 'hint: as root: apt-get install alpha beta'

begin 'not Debian'
rm "$scratch/bin/apt-get"
run "$scratch/tree/lockstep" train
expect 'fails' [ "$code" = 1 ]
expect 'says why' holds errors 'this is not Debian: apt-get is missing'

begin 'apt-get fails'
stand_in apt-get 'echo "E: no network"; exit 100'
run "$scratch/tree/lockstep" train
expect 'fails' [ "$code" = 1 ]
expect 'shows what it said' holds errors 'E: no network'
expect 'says which step' holds errors 'apt-get update failed'

begin 'configuring fails'
stand_in cmake 'echo "CMake Error: no compiler" >&2; exit 1'
run "$scratch/tree/lockstep" train
expect 'fails' [ "$code" = 1 ]
expect 'shows what it said' holds errors 'CMake Error: no compiler'

begin 'building fails'
stand_in ninja 'echo "error: expected ;"; case $* in *-n*) ;; *) exit 1 ;; esac'
run "$scratch/tree/lockstep" train
expect 'fails' [ "$code" = 1 ]
expect 'shows what it said' holds errors 'error: expected ;'
expect 'keeps standard output clean' [ ! -s "$scratch/output" ]

begin 'building is interrupted'
stand_in ninja 'case $* in *-n*) ;; *) kill -INT $PPID; exit 130 ;; esac'
run "$scratch/tree/lockstep" train
expect 'ends as Ctrl-C does' [ "$code" = 130 ]
expect 'says that it goes on' holds errors 'interrupted; the next ./lockstep goes on from here'
expect 'and does not speak of an error' lacks errors 'failed'

begin 'a tree that cannot be written'
run "$scratch/tree/lockstep" first
rm "$scratch/tree/build/lock"
mkdir "$scratch/tree/build/lock"  # root can write anywhere but here
: >"$scratch/calls"
run "$scratch/tree/lockstep" again
expect 'runs what is built' [ "$(cat "$scratch/output")" = '<again>' ]
expect 'and builds nothing' [ ! -s "$scratch/calls" ]
rm -r "$scratch/tree/build/release"
run "$scratch/tree/lockstep" again
expect 'fails where nothing is built' [ "$code" = 1 ]
expect 'says why' holds errors 'build: cannot be written, and nothing is built there; hint: clone'

begin 'from elsewhere, by a link, with a space in its path'
mv "$scratch/tree" "$scratch/my tree"
stand_in ninja "case \$* in *-n*) ;; *) cp $scratch/command '$scratch/my tree/build/release/bin/lockstep' ;; esac"
ln -s "$scratch/my tree/lockstep" "$scratch/link"
cd "$scratch/bin"
run "$scratch/link" doctor
cd "$scratch"
expect 'the command runs' [ "$(cat "$scratch/output")" = '<doctor>' ]
expect 'and the build is in the tree' [ -d "$scratch/my tree/build/release" ]

begin 'two at once'
run "$scratch/tree/lockstep" first
rm "$scratch/tree/build/release/bin/lockstep"
exec 8>"$scratch/tree/build/lock"
flock 8
PATH=$scratch/bin "$scratch/tree/lockstep" second >"$scratch/output" 2>"$scratch/errors" 8>&- &
waiting=$!
until holds errors 'waiting for another ./lockstep in this tree to finish building'; do kill -0 $waiting; done
expect 'the second waits' [ ! -x "$scratch/tree/build/release/bin/lockstep" ]
exec 8>&-
wait $waiting || code=$?
expect 'and then builds and runs' [ "$(cat "$scratch/output")" = '<second>' ]

begin 'an unknown group'
run "$scratch/tree/tools/install-packages" everything
expect 'is refused with the groups' holds errors 'the groups are: build test'

[ "$failures" -eq 0 ] && echo 'all as expected'
