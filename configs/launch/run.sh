#!/usr/bin/env bash
# One run of an arm, on the GPUs of the Ray cluster in RAY_ADDRESS, or of this node if there is none.
#   configs/launch/run.sh --arm ARM --preset PRESET [options of python -m repro.verl] [KEY=VALUE …]
# Without --preset it is the scale of params.yaml, or with --model your own model. The same command again resumes.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
(($#)) || { echo "repro: which arm of params.yaml? configs/launch/run.sh --arm ARM --preset PRESET" >&2; exit 1; }
source configs/launch/environment.sh
exec python -m repro.verl "$@"
