#!/usr/bin/env bash
# The same under SLURM, on as many nodes as the job has; submit it from the root of the repository.
#   sbatch --nodes=2 launch/slurm.sh [SCALE] ARM [options of launch/run.sh]
# A job that is cut short is put back in the queue and goes on from the last checkpoint.
#SBATCH --job-name=repro
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=64
#SBATCH --mem=0
#SBATCH --exclusive
#SBATCH --time=48:00:00
#SBATCH --requeue
#SBATCH --open-mode=append
set -euo pipefail
no() { echo "repro: $*" >&2; exit 1; }
how="sbatch --nodes=2 launch/slurm.sh [SCALE] ARM, from the root of the repository"
[[ ${SLURM_SUBMIT_DIR:-} && ${SLURM_JOB_NODELIST:-} ]] || no "this script is a job of SLURM's: $how"
[[ -f $SLURM_SUBMIT_DIR/launch/environment.sh ]] || no "$SLURM_SUBMIT_DIR is not the root of the repository: $how"
(($#)) || no "which arm of params.yaml? $how"
cd "$SLURM_SUBMIT_DIR"
source launch/environment.sh
gpus=${SLURM_GPUS_ON_NODE:-8} cpus=${SLURM_CPUS_PER_TASK:-64}

mapfile -t hosts < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
python -m repro.paper_scale overrides "$@" --nodes "${#hosts[@]}" --gpus "$gpus" >/dev/null # ends the job if one is wrong

# Ray: the head on the first node, a worker on each of the others; they end with the job.
on() { srun --nodes=1 --ntasks=1 --cpus-per-task="$cpus" --overlap -w "$@"; }
address=$(on "${hosts[0]}" hostname --ip-address | awk '{print $1}'):6379
start() { on "$1" ray start --block --num-gpus="$gpus" --num-cpus="$cpus" "${@:2}" & }
start "${hosts[0]}" --head --node-ip-address="${address%:*}" --port="${address##*:}"
sleep 10 # the head first
for host in "${hosts[@]:1}"; do
  start "$host" --address="$address"
done
export RAY_ADDRESS=$address
for _ in $(seq 60); do # until every node has joined
  joined=$(timeout 60 python -c 'import ray; ray.init(log_to_driver=False); print(sum(n["Alive"] for n in ray.nodes()))' 2>/dev/null || echo 0)
  ((joined == ${#hosts[@]})) && break
  jobs %1 >/dev/null 2>&1 || break # the head has ended
  sleep 5
done
((joined == ${#hosts[@]})) || { echo "only $joined of ${#hosts[@]} nodes joined the Ray cluster" >&2; exit 1; }

launch/run.sh "$@" --nodes "${#hosts[@]}" --gpus "$gpus"
