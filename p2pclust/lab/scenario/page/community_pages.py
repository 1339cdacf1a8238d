"""The part of ``report.html`` that shows a FedCRef job: its communities, their history, their models and the cost.

Peers keep their partitions to themselves, except those of the last exchange and of the end. So links are marked as right
or wrong in the last iteration's graph only, and accuracy is shown where it is known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from p2pclust.clustering.autoencoders import ModelStack
from p2pclust.hosts.events import Combined
from p2pclust.lab.pictures.bars import Cost, bytes_drawing
from p2pclust.lab.pictures.curves import history_drawings
from p2pclust.lab.pictures.graph import association_drawing, community_names
from p2pclust.lab.pictures.palette import cluster_hues
from p2pclust.lab.pictures.shares import reconstruction_drawing
from p2pclust.lab.scenario.outcome.communities import cluster_classes, labels_of_peers, most_frequent, wrong_links
from p2pclust.lab.scenario.page.page import Section, picture_of
from p2pclust.lab.scenario.page.story import JobStory
from p2pclust.metrics import accuracy
from p2pclust.protocols.models.association import Association, Clusters
from p2pclust.protocols.models.fedcref import FedCRefProtocol
from p2pclust.protocols.models.fedcref_agreed import HISTORY, Agreed

_MOST_ROWS: Final = 12
_MOST_MODELS: Final = 14

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class CommunityStory(JobStory):
    """A finished FedCRef job."""

    @cached_property
    def protocol(self) -> FedCRefProtocol:
        protocol = self.job.protocols[-1]
        assert isinstance(protocol, FedCRefProtocol), "only FedCRef jobs have this part"
        return protocol

    @cached_property
    def agreed(self) -> Agreed:
        return Agreed.of(self.state.arrays)

    @cached_property
    def rounds(self) -> list[Combined]:
        """Each round, in order; the last event if a round was repeated."""
        closed = [event.what for event in self.run.events if isinstance(event.what, Combined)]
        own = [one for one in closed if one.job == self.came.job_id and one.phase is not None]
        return [one for _, one in sorted({one.round: one for one in own}.items())]

    @cached_property
    def exchanges(self) -> list[tuple[int, Association]]:
        """The association graph of each iteration, the last one from the state."""
        last = self.agreed.iteration
        graphs = [
            (one.iteration, Association(Clusters(tuple(one.clusters)), one.links))
            for one in self.rounds
            if one.phase == "graph" and one.iteration < last
            and isinstance(one.clusters, Sequence) and isinstance(one.links, Sequence)
        ]  # fmt: skip
        return [*graphs, (last, self.agreed.association)]

    @cached_property
    def truth(self) -> dict[str, NDArray[Any]]:
        shares = self.run.shares.items()
        return {name: share.y for name, share in shares if share.y is not None and name in self.came.digests}

    @cached_property
    def classes(self) -> list[Any]:
        return cluster_classes(self.agreed.association, self.came, self.truth)

    @property
    def colours(self) -> list[int] | None:
        """The number of each community's colour, as in the pictures of rows; dropped communities come last."""
        hues = [] if self.rows is None else self.rows.hues
        if not hues:
            return None
        left = dict(zip(self.agreed.alive.tolist(), hues, strict=True))
        return cluster_hues([left.get(group) for group in range(self.agreed.n_groups)], max(hues) + 1)

    @property
    def gone(self) -> list[int]:
        """The communities of the last exchange that were dropped because no row belongs to them in the end."""
        return sorted({*range(self.agreed.n_groups)} - {*self.agreed.alive.tolist()})

    @property
    def names(self) -> list[str]:
        """The letter of each community of the last exchange; the final communities have the first ones, as their labels."""
        return community_names(self.agreed.n_groups, self.gone)

    @cached_property
    def labels(self) -> dict[str, Ints]:
        return labels_of_peers(self.job, self.came, self.run.shares)

    def label_of(self, group: int) -> int:
        """Return the final label of a community's rows; dropped communities do not count."""
        return int(self.agreed.alive.tolist().index(group))

    def score(self, labels: Mapping[str, Ints]) -> float:
        """Return the mean accuracy over peers, or NaN where no true labels are known."""
        scores = [accuracy(y, labels[name]) for name, y in self.truth.items() if name in labels]
        return float(np.mean(scores)) if scores else float("nan")

    @cached_property
    def curves(self) -> dict[str, list[float]]:
        """The curves of :data:`p2pclust.lab.pictures.curves.PANELS`; the first value is before the first step."""
        history, nan = self.agreed.history, float("nan")
        column = {name: history[:, number].tolist() for number, name in enumerate(HISTORY)}
        steps = len(history)
        first = {number: graph.clusters.total for number, graph in self.exchanges}.get(1)
        # The partition at the start of an iteration is known for the last one only.
        entered = {name: note["entered"] for name, note in self.came.notes.items() if name in self.truth}
        began = self.score(entered) if self.agreed.iteration == 1 else nan
        graph = self.agreed.association
        wrong = 100 * wrong_links(graph, self.classes) if self.truth and len(graph.links) else nan
        curves = {
            "communities": [nan, *column["groups"]],
            "accuracy": [began, *[nan] * (steps - 1), self.score(self.labels)],
            "wrong": [nan, *(wrong if number == self.agreed.iteration else nan for number in column["iteration"])],
            "isolated": [nan if first is None else float(first), *column["isolated"]],
            "active": [float(len(self.came.roster)), *column["active"]],
        }
        if self.protocol.mode == "refined":
            # All peers refine until every peer is stable; the number of rows that change falls.
            del curves["active"]
            curves["changed"] = [nan, *(100 * history[:, 5] / np.maximum(history[:, 6], 1)).tolist()]
        return curves


def sections(story: CommunityStory) -> list[Section]:
    """Return the sections of one job."""
    made = [_graphs(story), _history(story), _models(story), _traffic(story)]
    return [section for section in made if section is not None]


def short_names(names: Sequence[str]) -> list[str]:
    """Return names without their common prefix if that leaves one to three letters each, else their numbers.

    >>> short_names(["peer-01", "peer-02", "peer-10"]), short_names(["gateway", "meter-1", "meter-2"])
    (['01', '02', '10'], ['0', '1', '2'])
    """
    low, high = min(names, default=""), max(names, default="")
    same = next((number for number, (a, b) in enumerate(zip(low, high, strict=False)) if a != b), len(low))
    common = len(low[:same].rstrip("0123456789"))
    short = [name[common:] for name in names]
    return short if all(1 <= len(text) <= 3 for text in short) else [str(number) for number in range(len(names))]


def _graphs(story: CommunityStory) -> Section:
    roster, refined = story.came.roster, story.protocol.mode == "refined"
    peers = short_names(roster)
    numbered = peers == [str(number) for number in range(len(peers))]
    peers_as = "" if numbered else f" The peers' names are {roster[0]} and so on."
    made = []
    for number, graph in story.exchanges:
        last = number == story.agreed.iteration
        caption = (
            f"Iteration {number}. A dot is a cluster of the peer with this number; linked clusters were found to hold the "
            f"same kind of rows. Clusters were compared through models only: no row left its peer.{peers_as}"
        )
        if story.truth and not last:
            caption += " Which links are wrong is known for the last iteration only."
        if last and story.gone and refined:
            caption += (
                " A kind of rows may start as several communities; after training one is left, and the others are dropped "
                "when no row belongs to them."
            )
        classes = story.classes if last and story.truth else None
        gone, hues = (story.gone, story.colours) if last else ([], None)
        drawing = association_drawing(graph, classes, peers=peers, gone=gone, hues=hues)
        made.append(picture_of(drawing, f"association graph of iteration {number}", caption))
    return Section(f"{story.prefix}Which clusters are the same", steps=made, step="iteration")


def _history(story: CommunityStory) -> Section:
    step = "iteration" if story.protocol.mode == "paper" else "refinement"
    known = {y for share in story.run.shares.values() if share.y is not None for y in share.y.tolist()}
    wanted = {"communities": float(len(known))} if known else {}
    caption = "Communities are groups of linked clusters; before the first step every cluster is isolated."
    if known:
        caption += (
            f" The dashed line is the number of classes among these peers, {len(known)}. Accuracy is computed for each peer "
            "with its best matching of labels to classes; a wrong association links clusters of different classes."
        )
    drawings = history_drawings(story.curves, step=step, wanted=wanted)
    pictures = [picture_of(drawing, f"{drawing.title} by {step}", "") for drawing in drawings]
    return Section(f"{story.prefix}How the communities came about", caption, pictures)


def _models(story: CommunityStory) -> Section | None:
    agreed, blobs = story.agreed, story.came.blobs
    there = [group for group in range(agreed.n_groups) if agreed.group_model(group) in blobs]
    rows = [sum(int((labels == story.label_of(group)).sum()) for labels in story.labels.values()) for group in there]
    shown = sorted(np.array(there, np.int64)[np.argsort(-np.array(rows), kind="stable")[:_MOST_MODELS]].tolist())
    samples = _samples(story, shown)
    if not shown or not samples:
        return None
    data = [blobs[agreed.group_model(group)] for group in shown]
    stack = ModelStack.decode(story.protocol.architecture(story.state.arrays), data, story.protocol.encoding)
    from p2pclust.clustering.stacks import reconstructions  # noqa: PLC0415 - torch is an extra

    X = np.stack([row for _, row in samples])
    headings = []
    for group in shown:
        own = [y[story.labels[name] == story.label_of(group)] for name, y in story.truth.items()]
        kind = most_frequent(np.concatenate(own)) if own else None
        headings.append(story.names[group] + ("" if kind is None else f"\n({str(kind)[:9]})"))
    drawing = reconstruction_drawing(X, [text for text, _ in samples], reconstructions(stack, X), headings)
    what = "class" if story.truth else "community"
    caption = (
        f"Left: one row of each {what}. Right: its reconstruction by each community's model, with the mean squared error. "
        "The best one is outlined: a model reconstructs well only rows of the kind that it has learned."
    )
    if story.truth:
        caption += " In brackets: the class of most rows of the community."
    if len(there) > len(shown):
        caption += f" Shown are the {len(shown)} of {len(there)} models with the most rows."
    picture = picture_of(drawing, "rows and their reconstructions by each community's model", caption)
    return Section(f"{story.prefix}What each community's model draws", pictures=[picture])


def _samples(story: CommunityStory, shown: Sequence[int]) -> list[tuple[str, NDArray[np.float64]]]:
    """Return one row of each class, or of each community, in working coordinates, with its name."""
    found: dict[Any, NDArray[np.float64]] = {}
    numbers = {story.label_of(group): group for group in shown}
    # If some peers have true labels, their rows are shown.
    for name, kinds in (story.truth or story.labels).items():
        X = story.run.shares[name].X
        for kind in np.unique(kinds).tolist():
            if kind not in found and (story.truth or kind in numbers):
                found[kind] = X[int(np.flatnonzero(kinds == kind)[0])]
    arrays, letters = story.state.arrays, story.names
    working = {kind: (row - arrays["origin"]) / arrays["scale"] for kind, row in found.items()}
    ordered = sorted(working.items(), key=lambda item: str(item[0]).zfill(9))[:_MOST_ROWS]
    return [(f"class {str(kind)[:12]}" if story.truth else letters[numbers[kind]], row) for kind, row in ordered]


def _traffic(story: CommunityStory) -> Section | None:
    refined = story.protocol.mode == "refined"
    # In the refined mode the exchange belongs to the first refinement.
    costs = [
        Cost(one.phase or "", str(one.refinement + 1 if refined else one.iteration), one.model_bytes)
        for one in story.rounds
        if one.model_bytes is not None
    ]
    if not any(cost.model_bytes for cost in costs):
        return None
    by, sent = "refinement" if refined else "iteration", story.run.sent
    caption = (
        f"Models as they are sent ({story.protocol.encoding}), by {by}. The bytes follow from the agreed states: each model "
        "counts once for each peer that needs it. The total that the peers sent "
    )
    if sent:
        caption += "is their own count: it includes agreement, membership, headers and repeated messages."
    elif sent is None:
        caption += "is not known, because a peer was lost with its counters."
    else:
        caption += "was not counted."
    drawing = bytes_drawing(costs, len(story.came.roster), sent or 0, by)
    return Section(f"{story.prefix}What was sent", pictures=[picture_of(drawing, "bytes of models by phase", caption)])
