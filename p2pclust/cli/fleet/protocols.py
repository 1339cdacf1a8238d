"""``p2pclust protocols``: list the protocols and what each reveals."""

from __future__ import annotations

import contextlib
import dataclasses
from typing import Any

from p2pclust.cli.show.options import AsJson
from p2pclust.cli.show.output import put_json, stdout
from p2pclust.errors import UsageError

_SECURED = ". With secure = true: the totals of all peers, and nothing of a single one"


def protocols(as_json: AsJson = False) -> None:
    """List the clustering protocols: what each peer reveals, and when it stops.

    \b
    Example:
      p2pclust protocols
    """
    from p2pclust.protocols.engine.registry import clusterings  # noqa: PLC0415 - imports NumPy

    listed = [_described(name) for name in clusterings()]
    if as_json:
        put_json({"protocols": listed})
        return
    from rich.table import Table  # noqa: PLC0415

    shown = Table(box=None, padding=(0, 3, 1, 0), pad_edge=False, header_style="dim", expand=True)
    for heading, ratio in (("id", None), ("what it is", 2), ("what a peer reveals", 3), ("it stops when", 1)):
        shown.add_column(heading, ratio=ratio, no_wrap=heading == "id")
    for one in listed:
        by = f" ({one['package']})" if one["package"] else ""
        shown.add_row(one["id"], one["what"] + by, one["reveals"] + _SECURED * one["secure"], one["stops"])
    stdout().print(shown)


def _described(name: str) -> dict[str, Any]:
    from p2pclust.protocols.engine.compose import cluster_job, clustering_class  # noqa: PLC0415
    from p2pclust.protocols.engine.registry import package_of, parameters_of  # noqa: PLC0415

    named = {"id": name, "package": package_of(name)}
    try:
        kind = clustering_class(name)
    except UsageError as error:
        return {**named, "what": "cannot be used", "reveals": str(error), "stops": "", "secure": False}
    parameters, secure = parameters_of(kind), False
    with contextlib.suppress(UsageError):
        cluster_job(name, n_clusters=2 if "n_clusters" in parameters else None, scaling="minmax", secure=True)
        secure = True
    return {
        **named,
        "what": (kind.__doc__ or "").strip().partition("\n")[0],
        "reveals": kind.reveals or "not declared",
        "stops": kind.stops + (", or after max_rounds" if "max_rounds" in parameters else ""),
        "secure": secure,
        "parameters": {key: None if value is dataclasses.MISSING else value for key, value in parameters.items()},
    }
