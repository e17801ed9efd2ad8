#!/usr/bin/env bash
# configs/launch/run.sh under SLURM, on all nodes of the job; submit it from the root of the repository.
#   sbatch --nodes=2 configs/launch/slurm.sh --arm ARM --preset PRESET [options of configs/launch/run.sh]
# An interrupted job is requeued and resumes from the last checkpoint, and so is one that reaches its time limit.
#SBATCH --job-name=repro
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=64
#SBATCH --mem=0
#SBATCH --exclusive
#SBATCH --time=48:00:00
#SBATCH --requeue
#SBATCH --signal=B:USR1@600
#SBATCH --open-mode=append
set -euo pipefail
fail() { echo "repro: $*" >&2; exit 1; }
how="sbatch --nodes=2 configs/launch/slurm.sh --arm ARM --preset PRESET, from the root of the repository"
[[ ${SLURM_SUBMIT_DIR:-} && ${SLURM_JOB_NODELIST:-} ]] || fail "this script must run as a SLURM job: $how"
[[ -f $SLURM_SUBMIT_DIR/configs/launch/environment.sh ]] || fail "$SLURM_SUBMIT_DIR is not the root of the repository: $how"
(($#)) || fail "which arm of params.yaml? $how"
cd "$SLURM_SUBMIT_DIR"
source configs/launch/environment.sh
source configs/launch/requeue.sh
gpus=${SLURM_GPUS_ON_NODE:-8} cpus=${SLURM_CPUS_PER_TASK:-64}

mapfile -t hosts < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
python -m repro.verl "$@" --nodes "${#hosts[@]}" --gpus "$gpus" --check >/dev/null # ends the job if an argument is wrong

# One token for Ray's nodes, whose home folders may differ; RAY_AUTH_MODE=disabled does without.
export RAY_AUTH_MODE=${RAY_AUTH_MODE:-token} RAY_AUTH_TOKEN=${RAY_AUTH_TOKEN:-$(python -c 'import uuid; print(uuid.uuid4().hex)')}

# Ray: the head on the first node, a worker on each of the others; they exit with the job.
on() { srun --nodes=1 --ntasks=1 --cpus-per-task="$cpus" --overlap -w "$@"; }
address=$(on "${hosts[0]}" hostname --ip-address | awk '{print $1}'):6379
start() { on "$1" ray start --block --num-gpus="$gpus" --num-cpus="$cpus" "${@:2}" & }
start "${hosts[0]}" --head --node-ip-address="${address%:*}" --port="${address##*:}"
sleep 10 # let the head start first
for host in "${hosts[@]:1}"; do
  start "$host" --address="$address"
done
export RAY_ADDRESS=$address
for _ in $(seq 60); do # until every node has joined
  joined=$(timeout 60 python -c 'import ray; ray.init(log_to_driver=False); print(sum(n["Alive"] for n in ray.nodes()))' 2>/dev/null || echo 0)
  ((joined == ${#hosts[@]})) && break
  jobs %1 >/dev/null 2>&1 || break # the head has exited
  sleep 5
done
((joined == ${#hosts[@]})) || { echo "only $joined of ${#hosts[@]} nodes joined the Ray cluster" >&2; exit 1; }

until_limit configs/launch/run.sh "$@" --nodes "${#hosts[@]}" --gpus "$gpus"
