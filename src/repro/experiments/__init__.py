"""One package per experiment: its computation, its tables, its plots; its stage is in dvc.yaml."""
