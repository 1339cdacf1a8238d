"""Make overlays by their kind; the kinds are listed in `kinds.KINDS`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from p2pclust.errors import UsageError
from p2pclust.overlay.kinds import KINDS, options_of
from p2pclust.overlay.overlay import Overlay, unknown


def make_overlay(kind: str, names: Sequence[str], rng: np.random.Generator, **options: Any) -> Overlay:
    """Make an overlay.

    Parameters
    ----------
    kind : str
        One of `KINDS`.
    names : sequence of str
        The peers. For ``file``: the names that the file must contain; empty for those in the file.
    rng : numpy.random.Generator
        The only source of randomness: the same state of the generator gives the same overlay.
    **options
        Options of the kind; None means the default. A default number of links is lowered where the overlay is too small
        for it; a number that is given is not.

    Returns
    -------
    Overlay
        Connected, with the names in the order given.

    Raises
    ------
    UsageError
        If there is no such kind or option, or no such overlay; the message says what is possible.

    Examples
    --------
    >>> import numpy as np
    >>> make_overlay("ring", ["a", "b", "c", "d"], np.random.default_rng(0)).links
    (('a', 'b'), ('a', 'd'), ('b', 'c'), ('c', 'd'))
    """
    checked = options_of(kind, options)
    if kind == "file":
        from p2pclust.overlay.files import read_overlay  # noqa: PLC0415 - most overlays are not read from a file

        found = read_overlay(checked["path"], names or None)
        found.require_connected(checked["path"])
        return found
    overlay = Overlay(tuple(names), ())  # refuses bad names
    if overlay.n_peers < KINDS[kind].fewest:
        peers = f"{overlay.n_peers} peer{'s' if overlay.n_peers > 1 else ''}"
        raise UsageError(f"overlay {kind!r}: {peers}: expected at least {KINDS[kind].fewest}")
    if kind == "star":
        checked["center"] = _center(checked["center"], overlay.names)
    from p2pclust.overlay.graphs import MAKERS  # noqa: PLC0415 - imports NetworkX, which a running peer must not

    graph = MAKERS[kind](overlay.n_peers, checked, rng)
    names = overlay.names
    positions = {names[node]: place for node, place in graph.nodes(data="pos") if place is not None}
    return Overlay(names, tuple((names[a], names[b]) for a, b in graph.edges()), positions or None, kind)


def _center(given: str | None, names: tuple[str, ...]) -> int:
    if given is None:
        return 0
    if given not in names:
        raise UsageError(f"overlay 'star': center: {unknown(given, names)}")
    return names.index(given)
