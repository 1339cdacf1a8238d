"""Every refusal of options that do not fit together: what each protocol answers to each pair of them.

python -m tests.jobs.refusals > tests/jobs/refusals.txt

Each line is an error with the first submission that met it; a test compares them with the file. After a change to the
checks, write the file again and read the difference: a better sentence is welcome, an error that is gone is a check lost.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator, Mapping
from itertools import combinations
from typing import Any, Final

from p2pclust.errors import UsageError
from p2pclust.jobs.submission import request_from
from p2pclust.protocols.engine.registry import CLUSTERING

#: Of each option, a value that some job can have, and one that none can.
OPTIONS: Final[tuple[tuple[str, Any], ...]] = (
    ("clusters", 3), ("clusters", 0),
    ("init", "careful"), ("init", "shared-k-means++"), ("init", "uniform"), ("init", "rows"),
    ("init", [[0.0], [1.0], [2.0]]), ("init", [[0.0]]), ("init", "best"),
    ("tol", 0.0), ("tol", -1.0), ("max_rounds", 7), ("max_rounds", 0),
    ("participation", 0.5), ("participation", 0.0),
    ("scaling", "none"), ("scaling", "minmax"), ("scaling", "zscore"), ("scaling", "maximum"),
    ("bounds", [[0.0, 1.0]]), ("bounds", [[1.0, 0.0]]),
    ("missing", "all"), ("missing", "drop"), ("missing", "none"), ("patience_s", 2.0), ("patience_s", 0.01),
    ("deadline_s", 9.0), ("deadline_s", 0.0), ("aggregator", "peer-1"), ("every", "1h"), ("every", "0.1s"),
    ("collect", "star"), ("collect", "tree"), ("collect", "gossip"), ("collect", "ring"), ("all_to_all", True),
    ("gossip_tolerance", 1e-6), ("gossip_tolerance", 0.7), ("mixing", "metropolis-hastings"), ("mixing", "best"),
    ("ticks", 5), ("ticks", -1),
    ("secure", True), ("secure", False), ("secure", {"keepers": "all"}),
    ("secure", {"cohort": 3, "burnt": "record", "leave": "groups"}), ("secure", {"groups": 5}),
    ("secure", {"groups": 1}), ("secure", {"keepers": 1}), ("secure", {"cohort": 1}),
    ("secure", {"burnt": "all"}), ("secure", {"keeper": 3}),
    ("verify", "all"), ("verify", "some"), ("kernel", "c1"), ("kernel", "c9"), ("seed", 7), ("seed", -1),
    ("privacy", {"epsilon": 2.0, "delta": 1e-6}), ("privacy", {"epsilon": 0.0, "delta": 1e-6}),
    ("privacy", {"epsilon": 2.0}),
    ("n_init", 3), ("n_init", 0), ("accelerate", True), ("accelerate", 1), ("max_weight", 2.0), ("max_weight", 0.5),
    ("robust", "trim"), ("robust", "mean"), ("missing_values", "keep"), ("missing_values", "drop"),
    ("suppress_singletons", False), ("fuzzifier", 1.5), ("fuzzifier", 1.0),
    ("fuzzifier", "2"), ("privacy_gate", False), ("privacy_gate", "job"), ("privacy_gate", "round"),
    ("averaging", "kmeans"), ("support", "u"), ("support", "u^2"), ("local_iterations", 3), ("local_iterations", 0),
    ("learning_rate", 0.01), ("learning_rate", 0.0), ("min_cluster_size", 1), ("min_cluster_size", 0),
    ("n_local_clusters", 4), ("n_local_clusters", "search"), ("n_local_clusters", "classes"), ("n_local_clusters", 0),
    ("transfer", "float32"), ("transfer", "float16"), ("n_batches", 4), ("n_batches", 0), ("forgetting", 0.5),
    ("forgetting", 1.5), ("mode", "paper"), ("mode", "best"), ("initial", "kmeans"), ("initial", "given"),
    ("initial", "best"), ("dirtiness", 0.2), ("alpha", 50.0), ("alpha", 200.0), ("theta", 0.1), ("tau", 0.5),
    ("normalisation", "pair"), ("normalisation", "best"), ("max_iterations", 3), ("max_refinements", 3), ("settled", 0.1),
    ("hidden", [8, 4, 8]), ("hidden", []), ("hidden", [0]), ("output", "linear"), ("output", "best"), ("epochs", 3),
    ("epochs", 0), ("batch", 8), ("rounds", 2), ("local_epochs", 2), ("federated_rate", 0.1), ("encoding", "int8"),
    ("encoding", "int4"), ("precision", "bfloat16"), ("precision", "float64"), ("min_rows", 5), ("min_rows", 0),
    ("most_local_clusters", 4), ("device", "cpu"), ("cluster_rounds", 2), ("cluster_rounds", 0),
    ("communication_rounds", 2), ("local_steps", 5), ("couplings", 2), ("image_width", 4), ("decay", 0.1),
    ("start", "peers"), ("start", "best"), ("unknown", 1),
)  # fmt: skip


#: One over rows, and one over columns.
_IN_PAIRS: Final = ("llf-cm", "vertical-cm")


def cases() -> Iterator[Mapping[str, Any]]:
    """Yield submissions of each protocol with no option and with each one, and of a few with each two."""
    for protocol in (*CLUSTERING, "llf-cn"):
        usual: dict[str, Any] = {"protocol": protocol}
        if protocol not in ("fedcref", "llf-cn"):
            usual["clusters"] = 3
        yield usual
        for one in OPTIONS:
            yield usual | dict((one,))
        for (left, first), (right, second) in combinations(OPTIONS, 2):
            if protocol in _IN_PAIRS and left != right:
                yield usual | {left: first, right: second}


def refusal(given: Mapping[str, Any]) -> str:
    """Return the error of a submission, or an empty string; warnings are not of interest here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            request_from(given, n_peers=5)
        except UsageError as error:
            return str(error)
    return ""


def refusals() -> dict[str, Mapping[str, Any]]:
    """Return each line of an error with the first submission that met it."""
    found: dict[str, Mapping[str, Any]] = {}
    for given in cases():
        for line in refusal(given).splitlines():
            found.setdefault(line, given)
    return found


if __name__ == "__main__":
    for line, given in sorted(refusals().items()):
        sys.stdout.write(f"{line} | {' '.join(f'{key}={value!r}' for key, value in given.items())}\n")
