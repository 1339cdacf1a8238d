"""What faults write for the processes of a fleet."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from p2pclust.lab.testbed.faults import Fault
from p2pclust.lab.testbed.processes.fleet import ProcessFleet
from p2pclust.lab.testbed.spec import FleetSpec, PeerSpec


def test_damaged_rows_are_written_once(tmp_path: Path) -> None:
    """They were once written again when the fault struck, while the peer read them: it got half a file, and hung."""
    fault = Fault("corrupt-data", ("a",), round=4, phase="adopting", how="scale")
    spec = FleetSpec((PeerSpec("a", np.ones((3, 2))),), (), faults=(fault,))
    fleet = ProcessFleet(spec, tmp_path, lambda event: None)
    (tmp_path / "a").mkdir()
    (planned,) = fleet._armed("a")
    file = Path(planned["suffers"]["rows"]["file"])
    assert np.load(file).shape == (3, 2)
    file.write_bytes(b"as the peer reads it")
    fleet._on_disk("a", {"rows": {"X": np.ones((3, 2)), "number": 0}})
    assert file.read_bytes() == b"as the peer reads it"
