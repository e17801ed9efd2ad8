#!/usr/bin/env bash
# The same as a job of a Ray cluster that is already up (`ray up`, KubeRay, or `ray start` by hand).
#   RAY_ADDRESS=http://head:8265 launch/ray_submit.sh [SCALE] ARM [options of launch/run.sh]
# The driver runs on the cluster, so that this shell may end: `ray job logs -f ID` shows it, `ray job stop ID` ends it.
# Every node sees this repository, with its environment, under one path: this one, or REPRO_ROOT_ON_CLUSTER.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
: "${RAY_ADDRESS:?the address of the Ray dashboard, as in http://head:8265}" "${1:?which arm of params.yaml?}"
source launch/environment.sh
exec ray job submit --no-wait -- bash "${REPRO_ROOT_ON_CLUSTER:-$PWD}/launch/run.sh" "$@"
