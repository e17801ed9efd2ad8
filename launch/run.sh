#!/usr/bin/env bash
# One arm at one paper scale, on the GPUs of the Ray cluster at hand (RAY_ADDRESS), or of this node if there is none.
#   launch/run.sh SCALE ARM [--seed N] [--nodes N] [--gpus N] [--data DIR] [--runs DIR] [--profile DIR] [KEY=VALUE …]
# SCALE "-" is the one that params.yaml names. The same command again resumes from the last checkpoint.
set -euo pipefail
cd "$(dirname "$0")/.."
PYTHON=${PYTHON:-python}

scale=${1:?which paper scale? python -m repro.paper_scale list} arm=${2:?which arm of params.yaml?}
shift 2
if [[ $scale == - ]]; then scale=$("$PYTHON" -c 'from repro import settings; print(settings.load().scale)'); fi

export TOKENIZERS_PARALLELISM=false RAY_USAGE_STATS_ENABLED=0 REPRO_ROOT=$PWD
exec "$PYTHON" -m repro.paper_scale run "$scale" "$arm" "$@"
