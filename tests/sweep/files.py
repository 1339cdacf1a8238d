"""Small sweep files, and processes that sweep."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

JOB = """
title = "A small sweep"
measure = "job"
[grid]
overlay = ["ring", "star"]
peers = 5
seed = "0:3"
[data]
source = "gaussians"
options = { n_rows = 60, n_clusters = 2, n_features = 2 }
[job]
clusters = 2
max_rounds = 3
tol = 0.0
"""

MIXING = """
title = "Another"
measure = "mixing"
[grid]
overlay = ["ring", { kind = "small-world", neighbours = 4, rewire = 0.5 }]
peers = [8, 9]
seed = [0, 1]
"""


def written(folder: Path, text: str = JOB, name: str = "small.toml") -> Path:
    """Write a sweep file."""
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def dying(text: str) -> tuple[str, float]:
    """Do what a cell does that takes all memory."""
    os._exit(9)


def begun(folder: Path, file: Path, *options: str) -> subprocess.Popen[str]:
    """Begin a sweep as a process of its own, that writes into ``out``."""
    command = [
        sys.executable,
        "-m",
        "p2pclust",
        "topology",
        "sweep",
        str(file),
        "--out",
        "out",
        "--no-report",
        *options,
    ]
    return subprocess.Popen(
        command,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"COLUMNS": "300"},
    )
