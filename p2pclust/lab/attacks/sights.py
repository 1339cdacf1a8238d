"""What peers showed in a job, round by round, as those that receive it read it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from p2pclust.lab.attacks.findings import Floats
from p2pclust.protocols.engine import engine, random_streams
from p2pclust.protocols.engine.arrays import Arrays, Contribution, State
from p2pclust.protocols.engine.base import Additive, WithWorkspace
from p2pclust.protocols.engine.engine import Group, added_up, floats_of
from p2pclust.protocols.engine.job import Job, JobState, RoundRecord
from p2pclust.protocols.engine.local import Local
from p2pclust.protocols.engine.runner import Later, by_groups, replayed, rows_at
from p2pclust.tools.bit_sets import members_of


@dataclass(frozen=True)
class Sight:
    """What was shown in one round, in addition to the state, which every peer has."""

    peers: tuple[int, ...]  # whose contributions are added up in it, by roster index; perhaps a single one
    round: int
    stage: int
    state: State  # the arrays that the contributions were computed from
    shown: Arrays  # the contribution or the sum, as floats


@dataclass
class Sights:
    """All that a job showed, in the order of its rounds."""

    #: By the roster indices of the peers that are added up: what was sent for them.
    sent: dict[tuple[int, ...], list[Sight]] = field(default_factory=dict)
    #: The total of each additive round: what is left to see with secure sums.
    totals: list[Sight] = field(default_factory=list)
    #: With secure sums of groups: the total of each group in each round of clustering, by the roster indices of its peers.
    groups: dict[tuple[int, ...], list[Sight]] = field(default_factory=dict)
    #: The arrays of each round's state, with the number of its stage: what every peer has.
    states: list[tuple[int, State]] = field(default_factory=list)


def sights_of(
    job: Job, locals: Sequence[Local], log: Sequence[RoundRecord], later: Later = (), *, secured: bool = False,
    parents: Sequence[int] = (), groups: Sequence[int] = (),
) -> Sights:  # fmt: skip
    """Return what a job showed: it is replayed with the recorded contributors of every round.

    With secure sums (`secured`) a single contribution is padded with numbers that look random to all but its peer and the
    keepers; here they are drawn from the job's seed. `parents` has the tree along which sums are added up, if there is one:
    the parent of each peer, -1 for the root. `groups` has the sets of peers whose totals secure sums reveal one by one.
    """
    sights = Sights()
    rng = random_streams.aggregating(job.seed, len(locals))
    for state, record in zip(replayed(job, locals, log, later, groups), log, strict=False):
        protocol = job.protocols[state.stage]
        sights.states.append((state.stage, state.arrays))
        if isinstance(protocol, WithWorkspace):
            continue  # its contributions are not sums over rows
        rows = rows_at(locals, later, state.round)
        given = [(i, engine.contribution(job, state, rows[i], i, len(rows))) for i in record.contributors]
        additive = isinstance(protocol, Additive)
        for members, own in by_groups(job, state, given, groups):
            if isinstance(members, Group):
                group = members_of(next(mask for mask in groups if mask >> members[0] & 1))
                sights.groups.setdefault(group, []).append(_sight(job, state, tuple(members), own))
        branches = branches_of(parents, record.contributors) if parents and additive else [(i,) for i, _ in given]
        for group in branches:
            summed, peers = (
                added_up([one for one in given if one[0] in group], len(locals)) if additive else (None, group)
            )
            shown = summed if summed is not None else dict(given)[group[0]]
            if secured:
                words = {name: rng.integers(-(2**63), 2**63 - 1, array.shape) for name, array in shown.items()}
                shown = Arrays({name: np.asarray(shown[name]) + pad for name, pad in words.items()})
            sights.sent.setdefault(group, []).append(_sight(job, state, peers, shown))
        if additive:
            total, peers = added_up(given, len(locals))
            if total is not None:
                sights.totals.append(_sight(job, state, peers, total))
    return sights


def sums_of_clusters(sight: Sight) -> tuple[Floats, Floats, bool] | None:
    """Return clusters' numbers of rows (or weights), the sums of their rows in the data's units, and whether they are crisp.

    None if no sums of clusters were shown. Several starts side by side have one dimension more. Where missing cells are kept
    the numbers are per column, in the shape of the sums.
    """
    state, shown = sight.state, sight.shown
    name = next((name for name in ("counts", "weights") if name in shown), "")
    if not name or "sums" not in shown or "origin" not in state or not ("centers" in state or "cells" in state):
        return None
    weights, sums = shown["masses"] if "cells" in state and "masses" in shown else shown[name], shown["sums"]
    each = weights if weights.ndim == sums.ndim else weights[..., np.newaxis]
    if "cells" in state:
        sums = sums + each * state["cells"]  # of a cell's rows, from the cell
    return weights, sums * state["scale"] + each * state["origin"], name == "counts"


def branches_of(parents: Sequence[int], contributors: Sequence[int]) -> list[tuple[int, ...]]:
    """Return the sets of contributors that are added up on the way to the root: one for each peer that has a parent.

    >>> branches_of((-1, 0, 1, 1), (0, 1, 2, 3))
    [(1, 2, 3), (2,), (3,)]
    """
    below: dict[int, set[int]] = {}
    for peer in contributors:
        above = peer
        while parents[above] >= 0:
            below.setdefault(above, set()).add(peer)
            above = parents[above]
    return [tuple(sorted(below[peer])) for peer in sorted(below)]


def _sight(job: Job, state: JobState, peers: tuple[int, ...], contribution: Contribution) -> Sight:
    protocol = job.protocols[state.stage]
    shown = floats_of(protocol, state.arrays, contribution) if isinstance(protocol, Additive) else contribution
    return Sight(peers, state.round, state.stage, state.arrays, shown)
