#!/usr/bin/env bash
# One arm at one paper scale, on the GPUs of the Ray cluster in RAY_ADDRESS, or of this node if there is none.
#   launch/run.sh [SCALE] ARM [--seed N] [--nodes N] [--gpus N] [--data DIR] [--runs DIR] [--profile DIR] [KEY=VALUE …]
# SCALE defaults to that of params.yaml, as does -. Running the same command again resumes from the last checkpoint.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
(($#)) || { echo "repro: which arm of params.yaml? launch/run.sh [SCALE] ARM" >&2; exit 1; }
source launch/environment.sh
exec python -m repro.paper_scale run "$@"
