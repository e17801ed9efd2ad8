# Sourced by slurm.sh: `until_limit COMMAND…` runs it; ten minutes before the job's time limit SLURM sends USR1 (slurm.sh
# asks for it), and the job is put back into the queue, where it goes on from the last checkpoint.
# Not after the command has ended by itself: a run that is finished, or that failed, is not started again.
until_limit() {
  "$@" &
  local run=$! status=0 limit=
  trap 'limit=yes' USR1
  while true; do
    wait "$run" && status=0 || status=$?
    if [[ $limit ]]; then
      echo "repro: the time limit is near: job ${SLURM_JOB_ID:?} is requeued and resumes from the last checkpoint" >&2
      kill "$run" 2>/dev/null || true
      scontrol requeue "$SLURM_JOB_ID"
      return 0
    fi
    kill -0 "$run" 2>/dev/null || return "$status"
  done
}
