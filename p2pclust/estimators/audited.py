"""Attack what an estimator's fit shows: `audit`."""

from __future__ import annotations

from typing import Any, cast

from sklearn.base import clone

from p2pclust.estimators.base import LabellingEstimator
from p2pclust.estimators.inputs import seed_from
from p2pclust.protocols.engine.runner import run_in_process
from p2pclust.tools.laboratory import laboratory


def audit(estimator: LabellingEstimator, X: Any, y: Any = None, *, patience_s: float = 20.0) -> list[Any]:
    """Fit an estimator in this process, then do what a curious peer could do with the contributions that it got.

    For an estimator whose peers exchange models, a fifth of each peer's rows is withheld from the fit: how well a model
    recognises rows that it was trained on is measured with both.

    Parameters
    ----------
    estimator : LabellingEstimator
        With its parameters; it is copied and not fitted.
    X, y
        As for ``fit``.
    patience_s : float
        How long to try to solve for the rows of one peer.

    Returns
    -------
    list of `p2pclust.lab.attacks.findings.AttackResult`
        One for each attack, with the number of rows that came back exactly.

    Raises
    ------
    UsageError
        If the estimator's peers hold columns, or add noise to their sums.

    Examples
    --------
    >>> import numpy as np
    >>> from p2pclust import LosslessCMeans, audit
    >>> peers = [np.random.default_rng(n).normal(n / 2, 1.0, size=(30, 2)) for n in range(3)]
    >>> found = audit(LosslessCMeans(n_clusters=3, tol=0.0, random_state=1), peers)
    >>> [(one.attack, one.observer, one.rows) for one in found][0]
    ('rows that move alone', 'aggregator', 90)
    """
    attacks = laboratory("attacks.audit", "audit")
    copy: LabellingEstimator = clone(estimator)
    seed = seed_from(copy.random_state)
    arrays, parts = copy._held(X, y, seed)
    job = copy._job(seed, arrays[0].shape[1])
    copy._check(arrays)
    locals_ = copy._locals(arrays, parts)
    log = () if attacks.exchanges_models(job) else run_in_process(job, locals_).log
    return cast("list[Any]", attacks.audit_job(attacks.Audit(job, locals_, log, patience_s=patience_s)))
