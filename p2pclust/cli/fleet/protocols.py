"""``p2pclust protocols``: list the protocols and what each reveals."""

from __future__ import annotations

import contextlib
import dataclasses
from importlib.metadata import entry_points
from typing import Any

from p2pclust.cli.show.options import AsJson
from p2pclust.cli.show.output import put_json, stdout
from p2pclust.errors import UsageError


@dataclasses.dataclass(frozen=True)
class ProtocolInfo:
    """What ``p2pclust protocols`` shows of a protocol."""

    paper_name: str
    what: str
    reveals: str
    stops: str
    #: Whether a job of it can have secure sums: then only totals of all peers are revealed.
    secure: bool = False


_STOPS = "the centers move by less than tol (Frobenius norm, scaled units), or max_rounds"
_STOPS_BY_COLUMNS = "the N x C distances change by less than tol (Frobenius norm, scaled units), or max_rounds"

PROTOCOLS = {
    "llf-cm": ProtocolInfo(
        "LLF-CM",
        "k-means, equal to pooled k-means",
        "each round, for each cluster: the number of its own rows in it and their sum (zeros if it is one row); "
        "and its number of rows, up to the number of clusters. In the end its share of the objective and its rows in each "
        "cluster. With n_init starts, all of that for each",
        _STOPS,
        secure=True,
    ),
    "llf-fcm": ProtocolInfo(
        "LLF-FCM, Federated FCM",
        "fuzzy c-means, equal to pooled fuzzy c-means",
        "each round, for each cluster: the sum of its rows' memberships and their weighted sum "
        "(nothing with C (F + 1) / F rows or fewer); and its number of rows, up to the number of clusters. In the end its "
        "share of the objective and the sums of memberships. With n_init starts, all of that for each",
        _STOPS,
        secure=True,
    ),
    "ffcm": ProtocolInfo(
        "FFCM (avg_1, avg_2)",
        "fuzzy c-means at each peer; the local centers are averaged or clustered",
        "each round, the centers that fuzzy c-means finds on its own rows, and with averaging = weighted the sum of its "
        "rows' memberships in each (nothing with C (F + 1) / F rows or fewer)",
        _STOPS,
    ),
    "c2f-fcm": ProtocolInfo(
        "C2F-FCM",
        "fuzzy c-means at each peer; the local centers are clustered by k-means",
        "each round, the centers that fuzzy c-means finds on its own rows (nothing with C (F + 1) / F rows or fewer)",
        _STOPS,
    ),
    "gdf-fcm": ProtocolInfo(
        "GDF-FCM",
        "fuzzy c-means by gradient descent",
        "each round, its number of rows, and the gradient of its rows' objective at the centers "
        "(nothing with C (F + 1) / F rows or fewer)",
        _STOPS + "; it fails where the learning rate is too high",
        secure=True,
    ),
    "fkm": ProtocolInfo(
        "FKM",
        "k-means at each peer, one step per round; the local means are clustered by their sizes",
        "each round, the means of its rows in each cluster and the numbers of these rows (nothing of a cluster with "
        "fewer than min_cluster_size rows, but how many such clusters)",
        _STOPS,
    ),
    "k-fed": ProtocolInfo(
        "k-FED",
        "k-means at each peer; the local means are clustered once",
        "once, the means of its local clusters (none of fewer than min_cluster_size rows, but how many such clusters)",
        "after one round",
    ),
    "fedcref": ProtocolInfo(
        "FedCRef",
        "an autoencoder for each cluster of each peer; peers find which clusters are the same, and train together",
        "a model of each of its clusters and its number of rows; for each cluster and each other peer's model one byte "
        "(mode refined) or bit (paper); each round of a community, a model trained on its rows and their number; how many "
        "rows changed, and how many are in each community. No label",
        "hardly a row changes its cluster (refined); no peer is active or the associations are at rest (paper)",
    ),
    "uifca": ProtocolInfo(
        "UIFCA",
        "one normalizing flow per cluster, trained over all peers; each row belongs to the likeliest",
        "each round, for each cluster that has some of its rows: how many, and the weights of the cluster's model after "
        "training on them (nothing of a cluster that has one)",
        "cluster_rounds x communication_rounds rounds are done",
    ),
    "stream-fcm": ProtocolInfo(
        "streaming fuzzy c-means",
        "fuzzy c-means over batches of rows in the order in which they came, forgetting what is old, with a report of drift",
        "each round, for each cluster: the sum of the memberships of its batch's rows and their weighted sum (nothing with "
        "(C (F + 1) + 1) / F rows in the batch or fewer); its batch's share of the objective, and its number of rows, up to "
        "the number of clusters",
        "each batch as above; in all, after the last batch",
        secure=True,
    ),
    "vertical-cm": ProtocolInfo(
        "vertical LLF-CM",
        "k-means over peers that hold different columns of the same rows, equal to k-means on the joined columns",
        "first, its numbers of rows and columns and a salted digest of its rows' ids; each round, the squared distance over "
        "its columns of each row to each center (with fewer columns than clusters these give its rows away up to shift, "
        "rotation and mirror image). All peers get each row's cluster",
        _STOPS_BY_COLUMNS,
    ),
    "vertical-fcm": ProtocolInfo(
        "vertical LLF-FCM",
        "fuzzy c-means over peers that hold different columns of the same rows, equal to that on the joined columns",
        "as vertical-cm; all peers get each row's memberships",
        _STOPS_BY_COLUMNS,
    ),
}
"""By id."""


def protocols(as_json: AsJson = False) -> None:
    """List the clustering protocols: what each peer reveals, and when it stops.

    \b
    Example:
      p2pclust protocols
    """
    infos = {**PROTOCOLS, **_of_plugins()}
    if as_json:
        put_json({"protocols": [_plain(name, info) for name, info in infos.items()]})
        return
    from rich.table import Table  # noqa: PLC0415

    shown = Table(box=None, padding=(0, 3, 1, 0), pad_edge=False, header_style="dim", expand=True)
    for heading, ratio in (("id", None), ("paper's name", None), ("what a peer reveals", 3), ("it stops when", 2)):
        shown.add_column(heading, ratio=ratio, no_wrap=heading == "id")
    for name, info in infos.items():
        secured = ". With secure = true: the totals of all peers, and nothing of a single one" if info.secure else ""
        shown.add_row(name, info.paper_name, info.reveals + secured, info.stops)
    stdout().print(shown)


def _of_plugins() -> dict[str, ProtocolInfo]:
    """Return what the classes of plug-ins say; of one that cannot be used, why."""
    if not entry_points(group="p2pclust.protocols"):
        return {}  # so that nothing heavy is imported
    from p2pclust.protocols.engine.compose import clustering_class  # noqa: PLC0415 - imports NumPy
    from p2pclust.protocols.engine.registry import clusterings, package_of  # noqa: PLC0415

    infos = {}
    for name in clusterings()[len(PROTOCOLS) :]:
        try:
            kind = clustering_class(name)
            summary = (kind.__doc__ or "").strip().partition("\n")[0]
            infos[name] = ProtocolInfo(f"({package_of(name)})", summary, kind.reveals or "not declared", kind.stops)
        except UsageError as error:
            infos[name] = ProtocolInfo(f"({package_of(name)})", "cannot be used", str(error), "")
    return infos


def _plain(name: str, info: ProtocolInfo) -> dict[str, Any]:
    from p2pclust.protocols.engine.registry import protocol_class  # noqa: PLC0415 - imports NumPy

    parameters: dict[str, Any] = {}
    with contextlib.suppress(UsageError):  # of a plug-in that cannot be used
        kind: Any = protocol_class(name)
        parameters = {
            field.name: None if field.default is dataclasses.MISSING else field.default
            for field in dataclasses.fields(kind)
        }
    return {"id": name, **dataclasses.asdict(info), "parameters": parameters}
