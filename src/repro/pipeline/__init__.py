"""The pipeline behind dvc.yaml: what each stage depends on, how its notebook is run, why it runs again."""
