#!/bin/bash
#SBATCH --job-name={{ name }}
#SBATCH --nodes={{ nodes }}
#SBATCH --ntasks-per-node=1
{% if gpus %}
#SBATCH --gpus-per-node={{ gpus }}
{% endif %}
#SBATCH --exclusive
#SBATCH --output=state/launch/%x-%j.log
#SBATCH --open-mode=append
# A stage that is preempted, or whose time is over in two minutes, saves a checkpoint; queued again, it goes on from it.
#SBATCH --requeue
#SBATCH --signal=B:TERM@120

export PET_NNODES={{ nodes }} PET_NPROC_PER_NODE={{ processes }}
PET_MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export PET_MASTER_ADDR PET_MASTER_PORT=$((20000 + SLURM_JOB_ID % 10000))

# shellcheck disable=SC2016
srun --kill-on-bad-exit=1 bash -c 'PET_NODE_RANK=$SLURM_NODEID exec {{ python }} -m components.launching.node {{ stage }}' &
step=$!
trap 'kill -TERM "$step"' TERM
wait "$step"
status=$?
# A signal interrupts `wait`.
while kill -0 "$step" 2>/dev/null; do
  wait "$step"
  status=$?
done
# The stage was stopped (128 + SIGTERM), and not by scancel.
if [ "$status" -eq 143 ] && [ "$(squeue --noheader --jobs "$SLURM_JOB_ID" --format %T)" = RUNNING ]; then
  scontrol requeue "$SLURM_JOB_ID"
fi
exit "$status"
