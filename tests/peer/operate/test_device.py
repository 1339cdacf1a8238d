"""What a peer may take of its device; each limit in a process of its own, since none can be taken back."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from p2pclust.errors import UsageError
from p2pclust.peer.operate.device import fitness, restrain, taken_mb

linux = pytest.mark.skipif(sys.platform != "linux", reason="limits of Linux")


def in_a_process(program: str) -> str:
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    return ran.stdout.strip()


@pytest.mark.parametrize(
    ("mains", "cores", "up_mbit", "expected"),
    [
        (True, 8, None, 1.0), (True, 64, 1000.0, 1.0), (False, None, None, 0.3375), (True, 4, None, 0.85),
        (True, 8, 10.0, 0.9), (True, 8, 0.1, 0.7), (False, None, 0.001, 0.0375),
    ],
)  # fmt: skip
def test_fitness(mains: bool, cores: int | None, up_mbit: float | None, expected: float) -> None:
    assert fitness(mains=mains, cores=cores, up_mbit=up_mbit) == pytest.approx(expected)


def test_fitness_orders_devices() -> None:
    devices = [(False, None), (False, 4), (False, 64), (True, 1), (True, 8)]
    order = [fitness(mains=mains, cores=cores) for mains, cores in devices]
    assert order == sorted(order)
    assert fitness(mains=False, cores=None) == fitness(mains=False, cores=1)
    wider = [fitness(mains=True, cores=8, up_mbit=up) for up in (0.1, 0.3, 5.0, 80.0)]
    assert wider == sorted(set(wider))


def test_nothing_is_limited_unless_it_is_said() -> None:
    before = taken_mb()
    restrain({})
    restrain({"nice": 0, "cpus": None, "memory_mb": None})
    assert before == pytest.approx(taken_mb(), abs=50, nan_ok=True)


@linux
def test_it_steps_back_and_keeps_to_its_processors() -> None:
    told = in_a_process(
        "import os\n"
        "from p2pclust.peer.operate.device import restrain\n"
        "before = os.getpriority(os.PRIO_PROCESS, 0)\n"
        "restrain({'nice': 5, 'cpus': [min(os.sched_getaffinity(0))]})\n"
        "print(min(before + 5, 19) == os.getpriority(os.PRIO_PROCESS, 0), len(os.sched_getaffinity(0)))"
    )
    assert told == "True 1"


@linux
@pytest.mark.slow
def test_memory_beyond_the_limit_is_not_given_and_numpy_lives_within_it() -> None:
    told = in_a_process(
        "import numpy as np\n"
        "from p2pclust.peer.operate.device import restrain, taken_mb\n"
        "restrain({'memory_mb': taken_mb() + 140})\n"
        "a = np.ones(10_000_000); print(float(a @ a))\n"
        "try:\n"
        "    np.ones(10_000_000)\n"
        "except MemoryError:\n"
        "    print('refused')"
    )
    assert told.split() == ["10000000.0", "refused"]


@linux
@pytest.mark.parametrize(
    ("config", "line"),
    [
        ({"memory_mb": 1.0}, r"^memory_mb = 1: a peer without rows takes about \d+: expected more$"),
        ({"cpus": [4096]}, r"^cpus: no processor 4096 here: expected some of \d"),
    ],
)
def test_what_cannot_be(config: dict[str, Any], line: str) -> None:
    with pytest.raises(UsageError, match=line):
        restrain(config)
