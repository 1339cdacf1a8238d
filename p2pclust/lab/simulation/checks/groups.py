"""FedCRef's end, seen from outside: labels name groups of the state, and nothing of the jobs within is left (L6)."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from p2pclust.lab.simulation.world.peer import Peer
from p2pclust.lab.simulation.world.world import World
from p2pclust.peer.core.enrolment import TABLE as ROSTER
from p2pclust.protocols.engine import engine
from p2pclust.protocols.engine.arrays import Arrays
from p2pclust.protocols.engine.job import Job, JobState
from p2pclust.protocols.engine.workspace import Workspace, digest_of
from p2pclust.protocols.models.fedcref_agreed import Agreed


def judge_leftovers(peer: Peer, wanted: Collection[str]) -> None:
    """Check that a peer keeps no job but these, in memory or on its disk."""
    assert peer.core is not None
    left = [job for job in peer.core.jobs.jobs if job not in wanted]
    assert not left, f"L6: {peer.name} keeps jobs that are not needed: {left}"
    tables = peer.disk.load().tables
    rows = {name: [key for key in table if key not in wanted] for name, table in tables.items() if name != ROSTER}
    assert not any(rows.values()), f"L6: {peer.name} has rows on disk that are not needed: {rows}"


def judge_labels(world: World, peer: Peer, job_id: str, job: Job, state: JobState, roster: Sequence[str]) -> None:
    """Check that a peer's labels name groups of the state, or clusters of its own that belong to none."""
    assert peer.core is not None
    agreed = Agreed.of(state.arrays)
    note = peer.core.jobs.jobs[job_id].workspace.note
    index = roster.index(peer.name)

    def blob(digest: bytes) -> bytes | None:
        """Return a blob from the disk of any peer that has it."""
        found = (b"".join(peer.disk.blob(digest)) for peer in world.peers.values())
        return next((data for data in found if digest_of(data) == digest), None)

    workspace = Workspace(index, Arrays.decode(note) if note else Arrays(), blob)
    labels = engine.conclude(job, state, peer.local, workspace)["labels"]
    first, total = len(agreed.alive), int(agreed.alone.sum())
    begin = int(agreed.alone[:index].sum())
    own = range(begin, begin + int(agreed.alone[index : index + 1].sum()))
    assert labels.shape == (peer.local.n_samples,), f"{peer.name} has labels of {labels.shape}"
    alone = [label - first for label in np.unique(labels).tolist() if first <= label < first + total]
    assert labels.min() >= -1, f"{peer.name} has labels that mean nothing"
    assert set(alone) <= set(own), f"{peer.name} has rows in clusters of others: {alone} of {own}"
