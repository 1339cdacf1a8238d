"""Eight devices of a keyed fleet, as their workers alone, and an aggregator that asks them what it likes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgpack
import numpy as np

from p2pclust.lab.simulation.world.peer import FLEET, device_key
from p2pclust.peer.core.tasks import Contribute, Contributed, JobKeys, NoResult, Outcome, PadsKept, Ref
from p2pclust.peer.core.timing import Limits
from p2pclust.peer.shell.privacy_file import LEDGER, PrivacyFile
from p2pclust.peer.work.floor import Floor
from p2pclust.peer.work.secrets import Secrets
from p2pclust.peer.work.states import BlobAccess
from p2pclust.peer.work.tasks import Life, perform
from p2pclust.protocols.engine import secure_rounds
from p2pclust.protocols.engine.compose import cluster_job
from p2pclust.protocols.engine.job import Job, JobState
from p2pclust.protocols.engine.local import Local
from p2pclust.protocols.engine.workspace import digest_of
from p2pclust.protocols.secure.key_list import KeyEntry
from p2pclust.protocols.secure.parameters import SecureSums
from p2pclust.protocols.secure.secured import Maker
from p2pclust.tools.bit_sets import as_mask

__all__ = ["HI", "LO", "Devices", "N", "private_job", "reasons"]

N = 8
NAMES = tuple(f"p{k}" for k in range(N))
PUBLIC = tuple(device_key(name).public_key().public_bytes_raw() for name in NAMES)
BLOBS = BlobAccess(lambda digest: iter(()), lambda *_: None, lambda digest: None, Limits(inline_bytes=10**9))
LO, HI = [-10.0] * 2, [20.0] * 2


def private_job(epsilon: float) -> Job:
    """Return a private job with so large an epsilon."""
    return cluster_job(
        "llf-cm", n_clusters=3, privacy={"epsilon": epsilon, "delta": 1e-6}, bounds=(LO, HI), secure=True
    )


class Devices:
    """Eight devices with the same conditions; those of their ledgers are given as :class:`PrivacyFile` takes them."""

    def __init__(self, folder: Path, floor: Floor | None = None, **conditions: Any) -> None:
        rng = np.random.default_rng(0)
        self.locals = [Local(np.clip(rng.normal(k, 2, (50, 2)), -10, 20)) for k in range(N)]
        self.lives = []
        for k, name in enumerate(NAMES):
            (folder / name).mkdir()
            ledger = PrivacyFile(folder / name / LEDGER, today=lambda: 100, **conditions)
            sign, entropy = device_key(name).sign, np.random.default_rng(k).bytes
            self.lives.append(
                Life(secrets=Secrets(FLEET, sign, entropy, False, ledger.reserve), floor=floor or Floor())
            )

    def ask(self, job: Job, state: JobState, keys: JobKeys, rows: bytes = b"") -> list[Outcome]:
        """Ask all devices for a contribution to a state."""
        data = state.encode()
        ref, plain = Ref(digest_of(data), len(data), data), bytes(msgpack.packb(job.to_dict()))
        pads = PadsKept(True, rows, 0, ())
        return [
            perform(Contribute(plain, N, ref, k, pads=pads, keys=keys), self.locals[k], BLOBS, self.lives[k])
            for k in range(N)
        ]

    def ask_all_the_same(
        self, job: Job, *, named: str = "job-x", asked: Sequence[int] = range(N), rows: bytes = b""
    ) -> tuple[list[str], list[Outcome]]:
        """Ask for keys, pass over refusals, and ask some for padded contributions; return refusals, and all answers."""
        keys = JobKeys(named, SecureSums(3, 5), bytes(32), PUBLIC)
        secrets = self.lives[0].secrets
        assert secrets is not None
        state = secure_rounds.begin(job, secrets.terms(keys))
        given = [
            KeyEntry.decode(k, one.ref.payload or b"")
            for k, one in enumerate(self.ask(job, state, keys))
            if isinstance(one, Contributed)
        ]
        assert state.secured is not None
        part: Any = replace(
            state.secured, entries=tuple(given), maker=Maker(0, 1, 2), asked=as_mask(asked),
            columns=2, absent={}, unsettled=None, asks=digest_of(state.encode()),
        )  # fmt: skip
        arrays = job.protocols[state.stage].knowing_columns(state.arrays, 2)
        outcomes = self.ask(job, replace(state, arrays=arrays, secured=part), keys, rows)
        return [one.refusal for one in given], [outcomes[k] for k in asked]


def reasons(outcomes: Sequence[Outcome]) -> list[str]:
    """Return why each answer is none, an empty string for a contribution."""
    return [one.reason if isinstance(one, NoResult) else "" for one in outcomes]
