"""Puts into a wheel, as repro/shipped, what the package reads outside src/: params.yaml and configs/ (repro.paths), and
what repro.replay needs: its notebook, and the table of what runs showed."""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py


class BuildWithSettings(build_py):
    """An editable installation reads them where they are."""

    def run(self):
        super().run()
        if not self.editable_mode:
            shipped = Path(self.build_lib, "repro", "shipped")
            shutil.copytree("configs", shipped / "configs", dirs_exist_ok=True)
            shutil.copy("params.yaml", shipped)
            (shipped / "tutorials").mkdir(exist_ok=True)
            shutil.copy("notebooks/tutorials/your_rollouts.ipynb", shipped / "tutorials")
            (shipped / "runs").mkdir(exist_ok=True)
            shutil.copy("runs/every_price.md", shipped / "runs")


setup(cmdclass={"build_py": BuildWithSettings})
