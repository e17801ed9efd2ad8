"""The pipeline behind dvc.yaml: the dependencies of each stage, running its notebook, and why it is out of date."""
