"""Layers, beyond what import-linter sees, which leaves out a cycle through a package's own file, `__init__.py`."""

from graphlib import TopologicalSorter

import grimp


def test_no_file_imports_itself_by_way_of_others():
    """Imports inside functions count. CycleError lists the files of a cycle."""
    graph = grimp.build_graph("repro", cache_dir=None)
    TopologicalSorter({file: graph.find_modules_directly_imported_by(file) for file in graph.modules}).prepare()
