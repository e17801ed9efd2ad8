#!/usr/bin/env bash
# Submit configs/launch/run.sh as a job to a running Ray cluster (`ray up`, KubeRay, or a manual `ray start`).
#   RAY_ADDRESS=http://head:8265 configs/launch/ray_submit.sh --arm ARM --preset PRESET [options of configs/launch/run.sh]
# The driver runs on the cluster, so this shell may exit: `ray job logs -f ID` shows its log, `ray job stop ID` stops it.
# Every node must have this repository and its environment at the same path: this one, or REPRO_ROOT_ON_CLUSTER.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
fail() { echo "repro: $*" >&2; exit 1; }
(($#)) || fail "which arm of params.yaml? RAY_ADDRESS=http://head:8265 configs/launch/ray_submit.sh --arm ARM --preset PRESET"
[[ ${RAY_ADDRESS:-} =~ ^https?:// ]] || fail "RAY_ADDRESS is ${RAY_ADDRESS:-not set}: set it to the Ray dashboard's address, such as http://head:8265"
source configs/launch/environment.sh
python -m repro.verl "$@" --check >/dev/null # checks arm, preset and options before anything is submitted
python - <<'END' || fail "no Ray dashboard answers at $RAY_ADDRESS: is the cluster up, and its port, 8265, reachable from here?"
import os, sys, urllib.error, urllib.request
try:
    urllib.request.urlopen(os.environ["RAY_ADDRESS"].rstrip("/") + "/api/version", timeout=20)
except urllib.error.HTTPError:
    pass  # it answers; `ray job submit` reports any error
except (OSError, ValueError):
    sys.exit(1)
END
exec ray job submit --no-wait -- bash "${REPRO_ROOT_ON_CLUSTER:-$PWD}/configs/launch/run.sh" "$@"
