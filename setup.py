"""Puts into a wheel, as repro/shipped, what the package reads outside src/: params.yaml and configs/ (repro.paths), and
the notebook of repro.replay."""

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


setup(cmdclass={"build_py": BuildWithSettings})
