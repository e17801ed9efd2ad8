#!/usr/bin/env bash
# One arm at one paper scale as a job of a Ray cluster that is already up (`ray up`, KubeRay, or `ray start` by hand).
#   RAY_ADDRESS=http://head:8265 launch/ray_submit.sh SCALE ARM [--nodes N] [--gpus N] [--seed N] [KEY=VALUE …]
# The driver runs on the cluster, so that this shell may end: `ray job logs -f ID` shows it, `ray job stop ID` ends it.
# Every node needs the environment, and checkpoints/ and data/ on a shared file system; submitting it again resumes.
set -euo pipefail
: "${RAY_ADDRESS:?the address of the Ray dashboard, as in http://head:8265}"
: "${1:?which paper scale?}" "${2:?which arm?}"
cd "$(dirname "$0")/.."

# The repository as the nodes see it; else this folder is uploaded, without what is large.
remote=${REPRO_ROOT_ON_CLUSTER:-}
if [[ -n $remote ]]; then
  exec ray job submit --no-wait -- bash "$remote/launch/run.sh" "$@"
fi
exec ray job submit --no-wait --working-dir . \
  --runtime-env-json '{"excludes": [".git", ".venv", "results", "checkpoints", "data", "build", "reports"], "env_vars": {"PYTHONPATH": "src"}}' \
  -- bash launch/run.sh "$@"
