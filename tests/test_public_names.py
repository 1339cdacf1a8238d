"""The public names are what they say, and importing the package is light."""

from __future__ import annotations

import subprocess
import sys

import p2pclust


def test_every_public_name_is_importable():
    for name in p2pclust.__all__:
        assert getattr(p2pclust, name) is not None, name
    assert dir(p2pclust) == sorted(p2pclust.__all__)


def test_an_unknown_name_is_an_attribute_error():
    assert not hasattr(p2pclust, "KMeans")


def test_metrics_are_there_without_an_import_of_their_own():
    program = "import p2pclust; print(p2pclust.metrics.adjusted_rand_index([0, 1], [1, 0]))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "1.0"


def test_importing_the_package_imports_nothing_heavy():
    program = "import sys, p2pclust; print(sorted({'numpy', 'sklearn', 'scipy', 'zmq', 'pydantic'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"
