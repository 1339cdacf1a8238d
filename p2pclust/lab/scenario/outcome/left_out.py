"""Rows that were left out because a value was missing: their number, file and device."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace

from p2pclust.data import DataSet
from p2pclust.lab.scenario.file.schema import Scenario
from p2pclust.lab.testbed.spec import Event


@dataclass(frozen=True)
class RowsLeftOut:
    """Rows of one file that were left out; `device` is None if the rows of one source were dealt out."""

    file: str
    device: str | None
    rows: int

    def to_dict(self) -> dict[str, str | int | None]:
        """Return it as in ``result.json``."""
        return asdict(self)

    def to_event(self) -> Event:
        """Return it as an event before the start of the run."""
        return {"t": 0.0, "peer": self.device or "", "verb": "rows-left-out", "file": self.file, "rows": self.rows}


def rows_left_out(scenario: Scenario, shares: Mapping[str, DataSet]) -> list[RowsLeftOut]:
    """Return what was left out of each file, in the order of the devices; complete files are not listed."""
    found = [RowsLeftOut(share.name, device, share.dropped) for device, share in shares.items() if share.dropped]
    # Where one source was dealt out, every share has the count of the whole source.
    return found if scenario.data.files is not None else [replace(one, device=None) for one in found[:1]]
