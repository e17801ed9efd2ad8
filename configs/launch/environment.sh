# Sourced by the other scripts, from the root of the repository: selects a Python with this project installed, that of
# the shell (the conda environment of environment.yml) or of .venv.
if ! python -c 'import repro' 2>/dev/null; then
  if [[ -f .venv/bin/activate ]]; then source .venv/bin/activate; fi
  python -c 'import repro' 2>/dev/null || { echo "repro: $PWD: no Python here has this project: environment.yml says how to make one" >&2; exit 1; }
fi
export REPRO_ROOT=$PWD TOKENIZERS_PARALLELISM=false RAY_USAGE_STATS_ENABLED=0
