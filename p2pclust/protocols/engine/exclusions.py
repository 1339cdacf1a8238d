"""Options of a job that exclude or need each other: one table, which every way into a fleet asks.

Scenarios, `submit`, estimators and the devices that meet a job document all call :func:`problems` with what they know of
the job. `docs/options.md` prints the table.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from p2pclust.errors import UsageError

#: What is known of a job's options: one that is absent is not known, and None, false, 0 or empty is not given. The names are
#: those of a scenario, and of `_WORDS`.
JobOptions = Mapping[str, object]

_UNUSED: Final = {"n_init": 1, "participation": 1.0}  # the values of numbers that stand for no choice, if this is not 0


@dataclass(frozen=True)
class Exclusion:
    """One row of the table: "A excludes B" or "A needs B", why, and what to do.

    A and B are names of `JobOptions`, alone (given) or with a value.
    """

    rule: str
    why: str
    instead: str

    @property
    def words(self) -> str:
        text = self.rule
        for name, words in _WORDS.items():
            text = re.sub(rf"\b{name}(?!\w)", words, text)
        return text

    @cached_property
    def _sides(self) -> tuple[str, str, bool, str, str]:
        """The names and values of A and B, and whether A excludes B."""
        left, verb, right = re.split(" (excludes|needs) ", self.rule)
        (name, _, value), (other, _, wanted) = left.partition(" = "), right.partition(" = ")
        return name, value.strip("'"), verb == "excludes", other, wanted.strip("'")

    def breaks(self, options: JobOptions) -> bool:
        name, value, excludes, other, wanted = self._sides
        return _holds(options, name, value) is True and _holds(options, other, wanted) is excludes


def _holds(options: JobOptions, name: str, value: str) -> bool | None:
    if name not in options:
        return None
    found = options[name]
    if name == "init" and not isinstance(found, str | None):  # an array of centers
        found = "given"
    return found == value if value else bool(found) and found != _UNUSED.get(name)


#: Of names that are not those of a scenario, and of values: what messages say. The first four follow from the protocol.
_WORDS: Final = {
    "by_columns": "a protocol over columns",
    "with_models": "a protocol that exchanges models",
    "remembers": "a protocol whose aggregator remembers the last round",
    "one_by_one": "max_weight or robust",
    "init = 'given'": "an array of first centers",
    "weighted": "sample_weight",
    "in_process": "a run in one process",
    "devices": "a description of single devices",
    "overlay": "[fleet.overlay]",
    "faults": "[[faults]]",
}


_ROWS_OF_ALL: Final = "a contribution has a number for each row, which is too much for every peer to get from all"
_NO_AGGREGATOR: Final = "gossip has no aggregator"
_ON_THE_WAY: Final = "contributions are added up on the way"
_EVERY_PEER: Final = "each round needs the columns of every peer"
_FOR_GOSSIP: Final = "it is for gossip only"
_FOR_SECURE: Final = "it is a parameter of secure sums"
_SINGLE_ROWS: Final = "it depends on single rows, which the noise does not hide"
_LEAVE_ONE: Final = "leave one of the two out"
_WITH_GAPS: Final = "a row with missing cells cannot be a center"
_CHOOSE: Final = "set init to 'split-merge' or 'uniform', or give the centers"
_OWN_UNITS: Final = "it describes columns in their own units"
_FEW_ROWS: Final = "the mean of a few rows shows a value that one of them has"
_NO_LINKS: Final = "nothing crosses a link there"
_OTHER: Final = "run peers: 'simulated' or 'processes'"

#: Every rule about two options.
EXCLUSIONS: Final = (
    Exclusion("privacy needs protocol = 'llf-cm'", "no other protocol adds noise", "choose llf-cm"),
    Exclusion("privacy needs secure", "the noise of one peer alone does not hide its rows", "set secure = true"),
    Exclusion("privacy needs bounds", _SINGLE_ROWS, "declare bounds, from what you know without the data"),
    Exclusion("privacy excludes scaling = 'zscore'", _SINGLE_ROWS, "set scaling to 'none' or 'minmax'"),
    Exclusion("privacy excludes participation", "the noise is that of all peers", "leave participation out"),
    Exclusion("privacy excludes tol", "noisy centers never stop moving", "set max_rounds instead"),
    Exclusion("privacy excludes accelerate", _SINGLE_ROWS, "leave accelerate out"),
    Exclusion("privacy excludes max_weight", "no peer knows what a single one weighs", "leave max_weight out"),
    Exclusion("privacy excludes robust", "no peer knows what a single one contributes", "leave robust out"),
    Exclusion("privacy excludes n_init", "each start would need its own noise", "leave n_init out"),
    Exclusion("privacy excludes levels", "its noise is that of numbers within bounds", "leave levels out"),
    Exclusion("levels excludes init = 'k-means++'", _FEW_ROWS, "leave init out"),
    Exclusion("levels excludes init = 'shared-k-means++'", _FEW_ROWS, "leave init out"),
    Exclusion("levels excludes init = 'careful'", _FEW_ROWS, "leave init out"),
    Exclusion("levels excludes one_by_one", "a peer sends no value that few of its rows have", "leave one of the two out"),
    Exclusion("by_columns needs missing = 'all'", _EVERY_PEER, "set missing = 'all'"),
    Exclusion("by_columns excludes participation", _EVERY_PEER, "leave participation out"),
    Exclusion("by_columns excludes bounds", "each peer scales its own columns", "leave bounds out"),
    Exclusion("by_columns excludes verify", _ROWS_OF_ALL, "leave verify out"),
    Exclusion("remembers excludes verify", "other peers lack that", "leave verify out"),
    Exclusion("by_columns excludes collect = 'gossip'", _NO_AGGREGATOR, "set collect = 'star'"),
    Exclusion("with_models excludes collect = 'gossip'", _NO_AGGREGATOR, "set collect = 'star'"),
    Exclusion("remembers excludes collect = 'gossip'", _NO_AGGREGATOR, "set collect = 'star'"),
    Exclusion("one_by_one excludes collect = 'gossip'", _NO_AGGREGATOR, "set collect = 'star'"),
    Exclusion("collect = 'gossip' excludes missing = 'drop'", _NO_AGGREGATOR, "leave missing out"),
    Exclusion("collect = 'gossip' excludes patience_s", _NO_AGGREGATOR, "leave patience_s out"),
    Exclusion("collect = 'gossip' excludes compute_limit_s", _NO_AGGREGATOR, "leave compute_limit_s out"),
    Exclusion("collect = 'gossip' excludes aggregator", _NO_AGGREGATOR, "leave aggregator out"),
    Exclusion("gossip_tolerance needs collect = 'gossip'", _FOR_GOSSIP, "set collect = 'gossip'"),
    Exclusion("mixing needs collect = 'gossip'", _FOR_GOSSIP, "set collect = 'gossip'"),
    Exclusion("ticks needs collect = 'gossip'", _FOR_GOSSIP, "set collect = 'gossip'"),
    Exclusion("patience_s excludes missing = 'drop'", "such a round ends at its deadline", "set deadline_s instead"),
    Exclusion("compute_limit_s excludes missing = 'all'", "such a round waits for every peer", "leave compute_limit_s out"),
    Exclusion("deadline_s needs missing = 'drop'", "other rounds have no deadline", "set missing = 'drop'"),
    Exclusion("missing = 'drop' needs deadline_s", "the round ends at its deadline", "set deadline_s above 0"),
    Exclusion("secure excludes collect = 'gossip'", "secure sums need an aggregator", "set collect to 'star' or 'tree'"),
    Exclusion(
        "secure excludes participation", "sums over different sets can be solved for single peers",
        "leave participation out",
    ),
    Exclusion("keepers needs secure", _FOR_SECURE, "set secure = true"),
    Exclusion("cohort needs secure", _FOR_SECURE, "set secure = true"),
    Exclusion("burnt needs secure", _FOR_SECURE, "set secure = true"),
    Exclusion("leave needs secure", _FOR_SECURE, "set secure = true"),
    Exclusion("groups needs secure", _FOR_SECURE, "set secure = true"),
    Exclusion("colluders needs secure", _FOR_SECURE, "set secure = true"),
    Exclusion("groups needs one_by_one", "nothing else compares totals of groups", "leave groups out, or set one of these"),
    Exclusion("groups excludes collect = 'tree'", _ON_THE_WAY, "set collect = 'star'"),
    Exclusion("groups excludes verify", "peers verify totals of all peers, not of groups", _LEAVE_ONE),
    Exclusion("verify excludes collect = 'tree'", f"{_ON_THE_WAY}, without signatures", "set collect = 'star'"),
    Exclusion("verify excludes collect = 'gossip'", f"{_ON_THE_WAY}, without signatures", "set collect = 'star'"),
    Exclusion("verify excludes every", "the aggregator alone determines the next turn", "submit each job by itself"),
    Exclusion("accelerate excludes participation", "it compares objectives of the same peers", _LEAVE_ONE),
    Exclusion("accelerate excludes n_init", "it follows one path of the centers", _LEAVE_ONE),
    Exclusion("accelerate excludes one_by_one", "peers may lie about the objective", "leave accelerate out"),
    Exclusion("protocol = 'describe' excludes participation", "it describes the rows of all peers", "leave it out"),
    Exclusion("protocol = 'describe' excludes bounds", "it finds the ranges itself", "leave bounds out"),
    Exclusion("protocol = 'describe' excludes scaling = 'minmax'", _OWN_UNITS, "leave scaling out"),
    Exclusion("protocol = 'describe' excludes scaling = 'zscore'", _OWN_UNITS, "leave scaling out"),
    Exclusion("protocol = 'describe' excludes collect = 'gossip'", _NO_AGGREGATOR, "set collect to 'star' or 'tree'"),
    Exclusion("n_init excludes init = 'given'", "it is one set of first centers", "leave n_init out"),
    Exclusion("n_init excludes init = 'shared-k-means++'", "it makes one set of first centers", "leave n_init out"),
    Exclusion("missing_values = 'keep' excludes init = 'k-means++'", _WITH_GAPS, _CHOOSE),
    Exclusion("missing_values = 'keep' excludes init = 'careful'", _WITH_GAPS, _CHOOSE),
    Exclusion("missing_values = 'keep' excludes init = 'shared-k-means++'", _WITH_GAPS, _CHOOSE),
    Exclusion("missing_values = 'keep' excludes levels", "a missing word has no distance", "fill or drop missing cells"),
    Exclusion("missing_values = 'keep' excludes one_by_one", "it compares weights of whole rows", _LEAVE_ONE),
    Exclusion(
        "missing_values = 'keep' excludes privacy", "the noise is for whole rows",
        "leave missing_values out: then rows with missing cells are left out",
    ),
    Exclusion("weighted excludes init", "it does not count weights", "set init = 'split-merge', or give the centers"),
    Exclusion("weighted needs in_process", "peers do not have the weights", "leave fleet out"),
    Exclusion("in_process excludes secure", _NO_LINKS, _OTHER),
    Exclusion("in_process excludes verify", _NO_LINKS, _OTHER),
    Exclusion("in_process excludes devices", "it has none", _OTHER),
    Exclusion("in_process excludes overlay", "it has no links", _OTHER),
    Exclusion("in_process excludes faults", "it has no peers that can fail", f"{_OTHER}; or --set 'faults=[]'"),
)  # fmt: skip


def problems(options: JobOptions) -> Iterator[str]:
    """Yield each rule that a job breaks, in one line.

    >>> list(problems({"secure": True, "collect": "gossip"}))
    ["secure excludes collect = 'gossip': secure sums need an aggregator: set collect to 'star' or 'tree'"]
    """
    return (f"{one.words}: {one.why}: {one.instead}" for one in EXCLUSIONS if one.breaks(options))


def refuse(options: JobOptions) -> None:
    for problem in problems(options):
        raise UsageError(problem)
