"""A running peer clusters and measures nothing: the rooms it imports must stay light."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize("room", ["p2pclust.clustering", "p2pclust.metrics"])
def test_importing_loads_nothing_heavy(room):
    heavy = "{'torch', 'sklearn', 'scipy', 'networkx', 'pydantic', 'typer', 'rich'}"
    code = f"import sys, {room}; print(sorted({heavy} & {{name.split('.')[0] for name in sys.modules}}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
