"""scikit-learn's own checks of estimators, which give one array: then one peer holds it.

A list of arrays, one per peer, is beyond these checks; the other files of this folder test it.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from p2pclust import estimators

pytestmark = pytest.mark.slow

# With a privacy rule that holds peers of few rows back, or in many batches, some of the checks' tiny arrays could not be
# clustered at all.
_OPEN = {"privacy_gate": False, "suppress_singletons": False, "min_cluster_size": 1, "n_batches": 1}
# The checks set the number of clusters by another name.
_COMPONENTS = {"n_components": 3}
# Models of neurons are as small as they can be and still find the blobs of a check.
_SMALL = {
    "cluster_rounds": 2, "communication_rounds": 1, "local_steps": 10, "couplings": 2, "hidden": (16,),
    "learning_rate": 1e-2,
}  # fmt: skip

# A community takes two peers; a single row is not enough for them.
_TWO_PEERS = {
    "n_peers": 2,
    "min_rows": 1,
    "hidden": (4, 2, 4),
    "epochs": 5,
    "max_refinements": 1,
    "n_local_clusters": 2,
}

_INAPPLICABLE = {
    "check_dtype_object": "a value that is not a number is a DataError, which is a ValueError, and not a TypeError",
    "check_array_api_input": "arrays are NumPy's",
}


def _estimators() -> list[Any]:
    made = []
    for name in estimators.__all__:
        kind = getattr(estimators, name)
        known = kind().get_params()
        if kind is estimators.FederatedClustering:
            made.append(kind(parameters={"suppress_singletons": False}))
            continue
        if "couplings" in known:
            if find_spec("torch") is not None:
                made.append(kind(**_SMALL, min_cluster_size=1))
            continue
        if "tau" in known:
            if find_spec("torch") is not None:
                made.append(kind(**_TWO_PEERS))
            continue
        made.append(kind(**{name: value for name, value in (_OPEN | _COMPONENTS).items() if name in known}))
    made.append(estimators.StreamingFuzzyCMeans(n_clusters=2, n_batches=3, privacy_gate=False))
    return made


def _expected_to_fail(estimator: Any) -> dict[str, str]:
    two = {"check_fit2d_1sample": "one row cannot be dealt out to two peers"}
    return {**_INAPPLICABLE, **(two if estimator.get_params().get("n_peers") == 2 else {})}


# The checks of weights have four different rows, and eight clusters.
@pytest.mark.filterwarnings("ignore:(hardly any|no) row belongs to center")
@pytest.mark.filterwarnings("ignore:SCIPY_ARRAY_API is not set")
@pytest.mark.filterwarnings("ignore:X is a list of rows, which one peer holds")
@parametrize_with_checks(_estimators(), expected_failed_checks=_expected_to_fail)
def test_scikit_learns_checks(estimator: Any, check: Any) -> None:
    check(estimator)
