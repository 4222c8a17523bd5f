#!/bin/bash
#SBATCH --job-name=cliptune
#SBATCH --ntasks-per-node=1
#SBATCH --exclusive
#SBATCH --output=state/%x-%j.log
#SBATCH --open-mode=append
# A stage that is preempted, or whose time is over in two minutes, saves a checkpoint; queued again, it resumes from it.
#SBATCH --requeue
#SBATCH --signal=B:TERM@120

# sbatch --nodes 2 --gpus-per-node 8 infra/launch/slurm.sh train@paraclip; RANKS are those of a machine without GPUs.
gpus=${SLURM_GPUS_PER_NODE##*:}
export PET_NNODES=$SLURM_NNODES PET_NPROC_PER_NODE=${gpus:-${RANKS:-1}}
PET_MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export PET_MASTER_ADDR PET_MASTER_PORT=$((20000 + SLURM_JOB_ID % 10000))

# shellcheck disable=SC2016
srun --kill-on-bad-exit=1 bash -c 'PET_NODE_RANK=$SLURM_NODEID exec "$0" -m components.cli.node "$1"' \
  "${PYTHON:-.venv/bin/python}" "$1" &
step=$!
stopped=
trap 'stopped=yes; kill -TERM "$step"' TERM
wait "$step"
status=$?
# A signal interrupts `wait`.
while kill -0 "$step" 2>/dev/null; do
  wait "$step"
  status=$?
done
# A preempted stage gets the signal itself. Its status is 128 + SIGTERM, or 128 + SIGKILL if one machine ended before the other.
scontrol show job "$SLURM_JOB_ID" | grep -q 'PreemptTime=[0-9]' && stopped=yes
[ "$status" -eq 143 ] && stopped=yes
# Not of scancel, after which it no longer runs.
if [ "$status" -ne 0 ] && [ -n "$stopped" ] && [ "$(squeue --noheader --jobs "$SLURM_JOB_ID" --format %T)" = RUNNING ]; then
  scontrol requeue "$SLURM_JOB_ID"
fi
exit "$status"
