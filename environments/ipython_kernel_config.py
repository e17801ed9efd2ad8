"""IPython of .venv reads this (`make setup`): an edit of a module counts in the next cell, in the same kernel.
Only where an editor has started the kernel for a session: a notebook that a stage executes loads each module once.
"""

import os

if "JPY_SESSION_NAME" in os.environ or "VSCODE_PID" in os.environ:
    c.InteractiveShellApp.exec_lines = ["%load_ext autoreload", "%autoreload 2"]  # noqa: F821, by IPython
