#!/bin/bash
# Checks config/slurm_example.sbatch without SLURM: that bash can read it, that its #SBATCH lines ask for what its text
# says, and, with a stand-in for srun, that it starts what it promises in both modes. Usage: slurm_example_test.sh SCRIPT
set -euo pipefail
script="$(realpath "$1")"
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
cd "$folder"

fail() {
  echo "FAILED: $1" >&2
  exit 1
}

expect() { # expect WHAT FOUND EXPECTED
  [[ "$2" == "$3" ]] || fail "$1: found '$2', expected '$3'"
}

# The value of an #SBATCH option, as sbatch reads it: the rest of a line from a # on is a comment.
option() {
  sed -n "s/^#SBATCH --$1=\([^ #]*\).*/\1/p" "$script"
}

bash -n "$script"
expect "the first line" "$(head -n 1 "$script")" "#!/bin/bash"
unknown="$(grep '^#SBATCH' "$script" | grep -vE '^#SBATCH --[a-z-]+(=[^ #]+)? +# .+' || true)"
expect "#SBATCH lines without one option and a comment" "$unknown" ""
late="$(sed -n '/^[^# ]/,$p' "$script" | grep '^#SBATCH' || true)"
expect "#SBATCH lines after the first command, which sbatch does not read" "$late" ""
nodes="$(option nodes)"
ntasks="$(option ntasks)"
per_node="$(option ntasks-per-node)"
cores="$(option cpus-per-task)"
expect nodes "$nodes" 2
expect "ntasks against nodes times ntasks-per-node" "$ntasks" $((nodes * per_node))
[[ "$(option output)" == *%j* ]] || fail "output: two jobs would share a log"
grep -q '^##SBATCH --signal=B:USR1@120 ' "$script" || fail "the signal before the limit is not explained"

# srun and scontrol write down how they were called; srun then does what SRUN_DOES says.
mkdir bin
mkfifo never  # nobody writes to it
cat >bin/srun <<'STUB'
#!/bin/bash
printf '%s\n' "$@" >srun.arguments
eval "${SRUN_DOES:-exit 0}"
STUB
cat >bin/scontrol <<'STUB'
#!/bin/bash
echo "$@" >scontrol.arguments
STUB
chmod +x bin/srun bin/scontrol

job() { # job MODE ARGUMENT...: runs the script as the batch script of job 42
  env -i PATH="$folder/bin:$PATH" MODE="$1" SRUN_DOES="${SRUN_DOES:-}" SLURM_JOB_ID=42 SLURM_NNODES="$nodes" \
    SLURM_NTASKS="$ntasks" SLURM_NTASKS_PER_NODE="$per_node" SLURM_CPUS_PER_TASK="$cores" bash "$script" "${@:2}"
}

status_of() { # status_of COMMAND...: its exit code
  local status=0
  "$@" >/dev/null 2>&1 || status=$?
  echo "$status"
}

started() { paste -sd ' ' srun.arguments; }

job ranks ./train --steps "3 4"
expect "srun of one task per rank" "$(started)" "--nodes=2 --kill-on-bad-exit=1 --ntasks=$ntasks \
--ntasks-per-node=$per_node --cpus-per-task=$cores --output=logs/42/rank_%t.log ./train --steps 3 4"
expect "an argument with a space" "$(tail -n 1 srun.arguments)" "3 4"
[[ -d logs/42 ]] || fail "the folder for logs is not there"

job launchers ./train --steps 3
expect "srun of one launcher per node" "$(started)" "--nodes=2 --kill-on-bad-exit=1 --ntasks=$nodes --ntasks-per-node=1 \
--cpus-per-task=$((per_node * cores)) --output=logs/42/node_%n.log ./lockstep run --nproc-per-node $per_node --log-dir logs/42 \
-- ./train --steps 3"

expect "exit code of the step" "$(SRUN_DOES='exit 7' status_of job ranks ./train)" 7
expect "exit code without a program" "$(status_of job ranks)" 2
expect "exit code for an unknown mode" "$(status_of job both ./train)" 2
[[ ! -e scontrol.arguments ]] || fail "a job that nobody interrupted was requeued"

# SIGUSR1 reaches the step, the step's own exit code counts, and the job is put back into the queue. The stand-in sends
# the signal to the script itself, so that nothing depends on time.
expect "exit code after SIGUSR1" \
  "$(SRUN_DOES='trap "exit 9" USR1; kill -USR1 $PPID; read -r -t 60 <>never' status_of job ranks ./train)" 9
expect "requeue after SIGUSR1" "$(cat scontrol.arguments)" "requeue 42"
echo "config/slurm_example.sbatch starts what it promises"
