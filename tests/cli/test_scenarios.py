"""Every scenario in the folder ends as its README says: in virtual time, with its faults and expectations."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import pytest

from .conftest import SCENARIOS, Cli

ENDS = {"lost-majority.toml": 3}
#: Minutes of training, or of a thousand peers: `make soak` runs them.
LONG = ("fedcref-mnist.toml", "thousand-sensors.toml")


def parameters() -> list[object]:
    files = sorted(SCENARIOS.glob("**/*.toml"))
    return [
        pytest.param(file, id=file.stem, marks=pytest.mark.soak if file.name in LONG else pytest.mark.slow)
        for file in files
    ]


@pytest.mark.parametrize("file", parameters())
def test_ends_as_its_readme_says(file: Path, cli: Cli) -> None:
    if file.stem.startswith("fedcref") and importlib.util.find_spec("torch") is None:
        pytest.skip("autoencoders need torch: pip install 'p2pclust[models]'")
    if file.stem == "fedcref-mnist" and not Path(os.environ.get("P2PCLUST_DATA", ""), "mnist.npz").is_file():
        pytest.skip("mnist is not here: p2pclust data fetch mnist")
    ended = cli("run", file, "--backend", "simulated", "--out", "out")
    assert ended.code == ENDS.get(file.name, 0), ended.out[-2000:] + ended.err
    if ended.code == 0:
        assert " NO " not in ended.out
