#!/bin/bash
# Trains on a TPU v5e slice of 16 chips, which are four machines: bash docs/cluster/tpu.sh
# Not tried on a real slice. The four machines need a folder that all see: here a Filestore share, mounted at /shared.
set -e
NAME=esnlm ZONE=us-west4-a SHARE=10.0.0.2:/shared

on_all_workers() {
    gcloud compute tpus tpu-vm ssh "$NAME" --zone="$ZONE" --worker=all --command="$1"
}

gcloud compute tpus tpu-vm create "$NAME" --zone="$ZONE" --accelerator-type=v5litepod-16 --version=v2-alpha-tpuv5-lite
# However the script ends, the slice is given back: also where the training was stopped (75) or lost a machine (76). The same
# command then makes a new slice, and the run goes on from its newest checkpoint.
trap 'gcloud compute tpus tpu-vm delete "$NAME" --zone="$ZONE" --quiet' EXIT

on_all_workers "sudo apt-get install --yes nfs-common && sudo mkdir --parents /shared && sudo mount $SHARE /shared"
on_all_workers "python3 -m venv ~/environment && ~/environment/bin/pip install 'jax[tpu]' '/shared/esnlm[plots]'"

# The same command on every machine. JAX finds the others by what the slice's metadata say.
on_all_workers "cd /shared && ~/environment/bin/esnlm train --config configs/esn_at_scale/esn.yaml \
    --run /shared/runs/esn_16384 \
    --data.train /shared/stores/train \
    --data.validation /shared/stores/dev \
    --model.reservoir.state_size 16384 \
    --compute.precision bf16 --coordinator auto"

on_all_workers "cd /shared && ~/environment/bin/esnlm blimp --run /shared/runs/esn_16384 --data /shared/blimp --coordinator auto"
