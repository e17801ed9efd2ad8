"""One package per experiment: its computation, its tables, its plots; its stage stands in dvc.yaml."""
