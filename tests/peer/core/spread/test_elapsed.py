"""Durations that continue after a restart."""

from __future__ import annotations

import numpy as np

from p2pclust.peer.core.context import Context, Elapsed
from p2pclust.peer.core.effects import Persist
from p2pclust.peer.core.timing import PRESETS, Limits


def test_durations_that_are_not_needed_are_deleted_from_the_disk() -> None:
    context = Context("p1", PRESETS["fast"], Limits(), np.random.default_rng(0), "s")
    elapsed = Elapsed(context, "pause", {"a": b"3", "b": b"16"})
    elapsed.keep_only(["b"])
    assert [(e.table, e.key, e.value) for e in context.effects if isinstance(e, Persist)] == [("pause", "a", None)]
    assert (elapsed.over("a"), elapsed.over("b")) == (False, True)


def test_what_is_over_before_a_restart_is_not_waited_for_again() -> None:
    context = Context("p1", PRESETS["fast"], Limits(), np.random.default_rng(0), "s")
    elapsed = Elapsed(context, "pause", {"a": b"12"})
    elapsed.begin("a", 160.0)
    assert elapsed.until == {"a": 40.0}
    while not elapsed.fire("a"):
        pass
    assert elapsed.over("a")
