#!/bin/bash
# Trains on two machines of eight GPUs each, one process a GPU: sbatch docs/cluster/slurm.sh
# Not tried on a real cluster. Change what is site-specific: partition, account, modules, paths.
#SBATCH --job-name=esnlm
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=8
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=8
#SBATCH --time=12:00:00
#SBATCH --signal=TERM@180
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=%x-%j.log

# A folder that every machine sees: the run directory and the token stores lie there.
SHARED=/shared/$USER
RUN=$SHARED/runs/esn_65536

cd "$SHARED/esnlm" || exit 2
source "$SHARED/environment/bin/activate"

# Every task is a process of the one run. esnlm finds the others by what SLURM sets. A task takes the GPU of its number on
# the machine, so ask for GPUs with --gpus-per-node, and not with --gpus-per-task, which hides the others from it.
srun python train.py --config configs/esn_at_scale/esn.yaml \
    --run "$RUN" \
    --data.train "$SHARED/stores/train" \
    --data.validation "$SHARED/stores/dev" \
    --model.reservoir.state_size 65536 \
    --compute.precision tf32 \
    --wait 600
status=$?

# 75: it was stopped, as SLURM asks for 180 s before the time is over, and has saved. 76: a process was lost.
# The same command goes on from the newest checkpoint in both cases.
if [ "$status" -eq 75 ] || [ "$status" -eq 76 ]; then
    scontrol requeue "$SLURM_JOB_ID"
    exit 0
fi
[ "$status" -eq 0 ] || exit "$status"

srun python eval_blimp.py --run "$RUN" --data "$SHARED/blimp"
