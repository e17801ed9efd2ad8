"""Jupyter of .venv reads this (`make setup`). Git tells a changed file by its size, before it leaves out what a run has
left in a notebook (.gitattributes): so it is asked after each save, and takes note where nothing else has changed.
"""

import subprocess


def noted(os_path: str, model: dict, contents_manager: object) -> None:
    """Where the cells are as git has them, so that `git status` is clean."""
    git = ("git", "-C", str(contents_manager.root_dir))
    same = subprocess.run([*git, "diff", "--quiet", "--", os_path], capture_output=True).returncode == 0
    if same and model["type"] == "notebook":
        subprocess.run([*git, "add", "--update", "--", os_path], capture_output=True)


c.FileContentsManager.post_save_hook = noted  # noqa: F821, by Jupyter
