"""Jobs with the kernel c1 have the same bits on every kind of CPU; here on one that hides what it can."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys

import pytest

from p2pclust.clustering.kernels import C1, installed

#: Let NumPy and OpenBLAS use no instructions beyond those of the oldest x86-64 CPUs that they know.
_OLD = {
    "OPENBLAS_CORETYPE": "Nehalem",
    "NPY_DISABLE_CPU_FEATURES": "AVX2 FMA3 AVX512F AVX512CD AVX512_SKX X86_V3 X86_V4",
}

_PROGRAM = """
import dataclasses, hashlib, json, sys, warnings
import numpy as np
from p2pclust.protocols.engine.compose import cluster_job
from p2pclust.protocols.engine.local import Local
from p2pclust.protocols.engine.runner import conclude, run_in_process

rng = np.random.default_rng(1)
middles = rng.normal(scale=3.0, size=(5, 21))
rows = [middles[rng.integers(5, size=n)] + rng.normal(size=(n, 21)) for n in (300, 340, 420)]
found = {}
for protocol, init, scaling, more in json.loads(sys.argv[2]):
    locals = [Local(X) for X in rows]
    job = cluster_job(protocol, n_clusters=5, init=init, scaling=scaling, seed=3, max_rounds=8, tol=1e-6, **more)
    job = dataclasses.replace(job, kernel=sys.argv[1])
    digest = hashlib.sha256()
    state = run_in_process(job, locals, lambda state: digest.update(state.encode()))
    assert state.status == "done", state.reason
    for kept in conclude(job, state, locals):
        digest.update(kept["labels"].tobytes())
    found[f"{protocol} {init} {scaling} {more}"] = digest.hexdigest()
print(json.dumps(found))
"""

_INITS = ("split-merge", "k-means++", "shared-k-means++", "random", "uniform")
_SCALINGS = ("none", "minmax", "zscore")
_JOBS = [
    *(("llf-cm", init, scaling, {}) for init in _INITS for scaling in _SCALINGS),
    *(("llf-fcm", init, "minmax", {"fuzzifier": m}) for init in _INITS for m in (1.5, 2.0, 3.0)),
    *((protocol, "split-merge", "zscore", {"accelerate": True}) for protocol in ("llf-cm", "llf-fcm")),
    *((protocol, "k-means++", "none", {"n_init": 3}) for protocol in ("llf-cm", "llf-fcm")),
]


def _digests(kernel: str, **environment: str) -> dict[str, str]:
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, kernel, json.dumps(_JOBS)],
        env={**os.environ, **environment}, capture_output=True, text=True, check=True, timeout=300,
    )  # fmt: skip
    found: dict[str, str] = json.loads(done.stdout)
    return found


@pytest.mark.slow
@pytest.mark.skipif(C1 not in installed(), reason="the C extension was not compiled")
@pytest.mark.skipif(platform.machine() != "x86_64", reason="hides instructions of x86-64")
def test_a_job_has_the_same_bits_on_an_older_cpu() -> None:
    assert _digests(C1) == _digests(C1, **_OLD)
