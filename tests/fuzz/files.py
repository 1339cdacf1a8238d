"""Files and questions that were damaged or made up: each is refused in the library's own words, or is what it was.

A store is damaged byte by byte; of rosters, bundles, scenarios, overlays and questions, bytes and values are changed.
"""

from __future__ import annotations

import json
import shutil
import traceback
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import msgpack
import numpy as np
from tests.fuzz.fleets import NAMES, Fleet
from tests.fuzz.meter import Meter
from tests.fuzz.mutations import Mutator
from tests.fuzz.stores import SoundStore

from p2pclust.errors import UsageError, WireError
from p2pclust.lab.scenario.file.load import load_scenario
from p2pclust.lab.testbed.processes.children import Throwaway, write_fleet
from p2pclust.overlay.files import read_overlay
from p2pclust.overlay.overlay import Overlay
from p2pclust.overlay.traces import read_trace
from p2pclust.peer.operate.questions import VERBS, Questions
from p2pclust.peer.operate.server import read_question
from p2pclust.transport.bundle import load_bundle, load_roster
from p2pclust.transport.roster import signed_by
from p2pclust.transport.wire import pack

__all__ = ["KINDS", "FileFindingError", "Files"]

_ROOT: Final = Path(__file__).parents[2]


@dataclass
class FileFindingError(Exception):
    """Something that no file may do."""

    kind: str
    seed: int
    what: str
    trace: str

    def __str__(self) -> str:
        again = f"python -m tests.fuzz files --only {self.kind} --seed {self.seed} --inputs 1"
        return f"{self.kind}: {self.what}\n{self.trace}repeat it with: {again}"


class Files:
    """Makes damaged inputs of every kind in a folder, and has each one read."""

    def __init__(self, folder: Path, meter: Meter) -> None:
        self.folder = folder
        self.meter = meter
        self.sound = SoundStore(folder / "sound")
        self.made = Throwaway(["a", "b", "desk"])
        write_fleet(folder / "fleet", self.made.roster, self.made.bundles)
        self.fleet = Fleet("star", 1)

    def run(self, kind: str, seed: int) -> None:
        """Make one input of a kind, and have it read.

        Raises
        ------
        FileFindingError
            If anything but an error of the library came of it.
        """
        mutator = Mutator(np.random.default_rng([seed, list(KINDS).index(kind)]))
        here = self.folder / kind
        here.mkdir(exist_ok=True)
        self._run(kind, seed, lambda: KINDS[kind](self, mutator, here))

    def rotten(self, place: int) -> None:
        """Open a store with another byte at this place, as `run` does."""
        mutator = Mutator(np.random.default_rng([place, 99]))
        self._run("store", place, lambda: self.sound.rotten(self.folder / "rotten", mutator, place))

    @staticmethod
    def _run(kind: str, seed: int, read: Callable[[], None]) -> None:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                warnings.filterwarnings("ignore", category=UserWarning)  # of a name that has changed
                read()
        except Exception as error:
            what = f"{type(error).__name__}: {error}"
            raise FileFindingError(kind, seed, what, traceback.format_exc(limit=-8)) from error

    # -- keys -----------------------------------------------------------------------------------------------------------

    def roster(self, mutator: Mutator, here: Path) -> None:
        """A roster passes only as it was signed."""
        data = _other_json(mutator, self.made.roster.to_bytes())
        public = self.made.bundles["a"].fleet_public
        with self.meter.of("file"), suppress(ValueError):
            assert signed_by(data, public) == self.made.roster, "a changed roster passes for signed"
        (here / "roster.json").write_bytes(data)
        with suppress(UsageError):
            assert load_roster(here / "roster.json", public) == self.made.roster

    def bundle(self, mutator: Mutator, here: Path) -> None:
        """A bundle is read, or refused in one line."""
        file = here / "a.bundle"
        file.write_bytes(_other_json(mutator, (self.folder / "fleet" / "a.bundle").read_bytes()))
        file.chmod(0o600)
        self._refused_at_most(lambda: load_bundle(file))

    # -- files of scenarios and overlays ----------------------------------------------------------------------------------

    def scenario(self, mutator: Mutator, here: Path) -> None:
        """A scenario is read or refused."""
        file = mutator.pick(sorted((_ROOT / "scenarios").glob("*.toml")))
        for beside in (*file.parent.glob("*.adj"), *file.parent.glob("*.csv")):
            if not (here / beside.name).exists():
                shutil.copy(beside, here)
        (here / "x.toml").write_bytes(_other_text(mutator, file.read_bytes()))
        self._refused_at_most(lambda: load_scenario(here / "x.toml"))

    def overlay(self, mutator: Mutator, here: Path) -> None:
        """An overlay is read or refused."""
        folders = (_ROOT / "topology" / "overlays", _ROOT / "scenarios")
        files = sorted(f for one in folders for f in one.iterdir() if f.suffix in (".edges", ".adj", ".graphml"))
        file = mutator.pick(files)
        changed = here / f"x{file.suffix}"
        changed.write_bytes(_other_text(mutator, file.read_bytes()))
        self._refused_at_most(lambda: read_overlay(changed))

    def trace(self, mutator: Mutator, here: Path) -> None:
        """A mobility trace is read or refused."""
        overlay = Overlay(("robot-1", "robot-2", "robot-3"), (("robot-1", "robot-2"),))
        text = b"seconds,from,to,link\n2.5,robot-1,robot-2,down\n4,robot-1,robot-3,up\n9,robot-3,robot-2,up\n"
        (here / "x.csv").write_bytes(_other_text(mutator, text))
        self._refused_at_most(lambda: read_trace(here / "x.csv", overlay))

    def _refused_at_most(self, read: Callable[[], Any]) -> None:
        with self.meter.of("file"), suppress(UsageError):
            read()

    # -- questions at the control address -----------------------------------------------------------------------------------

    def question(self, mutator: Mutator, here: Path) -> None:
        """A question is answered or refused: it ends neither the server nor the peer."""
        peer = self.fleet.world.peers["p1"]
        assert peer.core is not None
        job_id, job = next(iter(peer.core.jobs.jobs.items()))
        verb, document = mutator.pick(list(VERBS)), job.document
        fields: Any = {
            "submit": {"mathematics": document.mathematics, "roster": list(NAMES[:3]), **document.treatment.to_dict()},
            "roster": {"data": self.made.roster.to_bytes()},
            "status": {},
            "read": {"job": job_id, "what": "state", "part": 0, "digest": bytes(32)},
        }.get(verb, {"job": job_id})
        for _ in range(1 + mutator.below(3)):
            fields = mutator.tree(fields)
        try:
            frames = pack("ask", {"number": mutator.below(5), "verb": verb}, [bytes(msgpack.packb(fields))])
        except (ValueError, OverflowError):
            return
        if mutator.chance(0.2):
            frames = [mutator.octets(frame) for frame in frames]
        shell = SimpleNamespace(
            core=peer.core, listen=lambda listener: None, step=lambda event: self.fleet.world.step(peer, event),
            allow_list=SimpleNamespace(take=self._taken, roster=self.made.roster),
            store=SimpleNamespace(blobs=SimpleNamespace(chunk=lambda digest, index: None)),
        )  # fmt: skip
        with self.meter.of("file"):
            try:
                _, asked, given = read_question(frames)
            except WireError:
                return
            if asked not in ("status", "job", "watch", "cancel"):  # these need a whole shell
                Questions(shell).take(Caller(), asked, given)  # type: ignore[arg-type]
        self.fleet.advance(0.05)

    def _taken(self, data: bytes) -> bool:
        try:
            signed_by(data, self.made.bundles["a"].fleet_public)
        except ValueError as error:
            raise UsageError(str(error)) from None
        return False

    # -- stores -------------------------------------------------------------------------------------------------------------

    def store(self, mutator: Mutator, here: Path) -> None:
        """A store with a wrong byte holds what it held, or says that it does not."""
        self.sound.rotten(here / "store", mutator)


@dataclass
class Caller:
    """An operator whose answers go nowhere."""

    name: str = "desk"

    def answer(self, fields: Any, *, last: bool = True) -> bool:
        return True

    def refuse(self, reason: str, code: int = 2) -> bool:
        return True


def _other_json(mutator: Mutator, data: bytes) -> bytes:
    """Other JSON, or other bytes."""
    if mutator.chance(0.4):
        return mutator.octets(data)
    try:
        return json.dumps(_words(mutator.tree(json.loads(data)))).encode()
    except (TypeError, ValueError, RecursionError):
        return data


def _words(value: Any) -> Any:
    """The value without what JSON does not have."""
    if isinstance(value, dict):
        return {str(key): _words(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_words(inner) for inner in value]
    return value.hex() if isinstance(value, bytes) else value


_WORDS: Final = (
    b"nan", b"inf", b"-1", b"0", b"1e309", b"99999999999999999999", b"true", b'""', b"[]", b"[[]]", b"{}", b'"\\u0000"',
    b"x = 1", b"[fleet]", b"[[jobs]]", b"\xff", b"\x00", b"1979-05-27", b"[" * 2000, b"{a=" * 500, b"&a;",
    b"<!DOCTYPE x [<!ENTITY a 'b'>]>",
)  # fmt: skip


def _other_text(mutator: Mutator, data: bytes) -> bytes:
    """A text in which a word, a line or a few bytes are others."""
    match mutator.below(4):
        case 0:
            return mutator.octets(data)
        case 1:
            lines = data.split(b"\n")
            at, other = mutator.below(len(lines)), mutator.below(len(lines))
            lines[at] = lines[other]
            return b"\n".join(lines)
    words: Sequence[bytes] = data.split(b" ")
    at = mutator.below(len(words))
    return b" ".join([*words[:at], mutator.pick(_WORDS), *words[at + 1 :]])


#: Each kind of input, and what is done with one.
KINDS: Final[dict[str, Callable[[Files, Mutator, Path], None]]] = {
    "roster": Files.roster, "bundle": Files.bundle, "scenario": Files.scenario, "overlay": Files.overlay,
    "trace": Files.trace, "question": Files.question, "store": Files.store,
}  # fmt: skip
