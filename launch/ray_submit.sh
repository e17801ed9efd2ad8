#!/usr/bin/env bash
# The same as a job of a Ray cluster that is already up (`ray up`, KubeRay, or `ray start` by hand).
#   RAY_ADDRESS=http://head:8265 launch/ray_submit.sh [SCALE] ARM [options of launch/run.sh]
# The driver runs on the cluster, so that this shell may end: `ray job logs -f ID` shows it, `ray job stop ID` ends it.
# Every node sees this repository, with its environment, under one path: this one, or REPRO_ROOT_ON_CLUSTER.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
no() { echo "repro: $*" >&2; exit 1; }
(($#)) || no "which arm of params.yaml? RAY_ADDRESS=http://head:8265 launch/ray_submit.sh [SCALE] ARM"
[[ ${RAY_ADDRESS:-} =~ ^https?:// ]] || no "RAY_ADDRESS is ${RAY_ADDRESS:-not set}: give it the Ray dashboard's address, as in http://head:8265"
source launch/environment.sh
python -m repro.paper_scale overrides "$@" >/dev/null # scale, arm and options are right, before anything is submitted
python - <<'END' || no "no Ray dashboard answers at $RAY_ADDRESS: is the cluster up, and its port, 8265, reachable from here?"
import os, sys, urllib.error, urllib.request
try:
    urllib.request.urlopen(os.environ["RAY_ADDRESS"].rstrip("/") + "/api/version", timeout=20)
except urllib.error.HTTPError:
    pass  # it answers; `ray job submit` says what it thinks of us
except (OSError, ValueError):
    sys.exit(1)
END
exec ray job submit --no-wait -- bash "${REPRO_ROOT_ON_CLUSTER:-$PWD}/launch/run.sh" "$@"
