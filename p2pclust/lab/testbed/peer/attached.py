"""What a testbed attaches to a peer: a shaped link, faults, and control by JSON lines.

In addition to the keys of `p2pclust.peer.main.run_peer`, the configuration has ``stdio`` (whether
`p2pclust.lab.testbed.peer.control` drives the peer), ``faults`` (a list), ``suffers`` (see
`p2pclust.lab.testbed.peer.conditions`) and perhaps ``link``: the ``shape`` of this device's link, the ``seed`` of what it
loses, and the ``rates`` of others' up-links, see `p2pclust.lab.links.shaping`.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from p2pclust.lab.links.breaking import BreakableLinks
from p2pclust.lab.links.delayed import shape_own
from p2pclust.lab.links.shaping import Shape
from p2pclust.lab.testbed.peer.conditions import ImposedConditions, PlannedFault, PlannedFaults
from p2pclust.lab.testbed.peer.control import JsonLines, serve
from p2pclust.lab.testbed.peer.lies import FirstUse
from p2pclust.peer.core.effects import Effect
from p2pclust.peer.main import Surroundings, die_with_parent, run_peer
from p2pclust.peer.shell.compute import Worker
from p2pclust.peer.shell.shell import Shell
from p2pclust.transport.bundle import Bundle
from p2pclust.transport.links import Receive
from p2pclust.transport.zeromq import ZmqLinks


class OnShapedLink(Surroundings):
    """A device whose link a testbed may shape; otherwise it runs like any other."""

    def begin(self, shell: Shell, links: ZmqLinks, worker: Worker, bundle: Bundle) -> None:
        shape_link(self.config, links)
        super().begin(shell, links, worker, bundle)


class Driven(Surroundings):
    """A peer that the testbed drives: it gets all reports, and imposes conditions."""

    hides_memory = False

    def __init__(self, config: Mapping[str, Any]) -> None:
        die_with_parent()
        super().__init__(config)
        self.unread_phases = () if config["faults"] or config.get("suffers") else ("adopting", "combining")
        self._name = str(config["name"])
        self._lines = JsonLines(1)
        self._loop = asyncio.get_running_loop()
        self._breakable: BreakableLinks

    def watch(self, verb: str, fields: Mapping[str, Any]) -> None:
        if verb != "phase" or fields["phase"] != "adopting":  # the aggregator's reports are enough
            self._lines.write({"t": self._loop.time(), "verb": verb, **fields})

    def receiving(self, receive: Receive, rng: np.random.Generator) -> Receive:
        self._breakable = BreakableLinks(receive, rng)
        return self._breakable.take

    def begin(self, shell: Shell, links: ZmqLinks, worker: Worker, bundle: Bundle) -> None:
        """Start the peer, with the conditions of its configuration, and read requests from standard input."""
        shape_link(self.config, links)
        rows = FirstUse()

        def before(effect: Effect) -> None:
            if (first_use := rows.see(effect)) is not None:
                self.watch(first_use.verb, first_use.fields)

        shell.before = before
        links_ = self._breakable.wrap(links)
        conditions = ImposedConditions(links_, worker, shell, rows, self.config.get("suffers", {}))
        faults = tuple(PlannedFault.from_dict(fault) for fault in self.config["faults"])
        shell.listen(PlannedFaults(self._name, faults, self.watch, conditions.strike).take)
        shell.start(links_, worker)
        serve(0, shell, self._lines, conditions)

    def failed(self, reason: str) -> None:
        super().failed(reason)
        sys.stderr.write(f"error: {self._name}: {reason}\n")


def shape_link(config: Mapping[str, Any], links: ZmqLinks) -> None:
    if (link := config.get("link")) is not None:
        rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence(link["seed"])))
        shape_own(links, Shape.from_dict(link["shape"]), rng, link["rates"])


def run_attached(config: Mapping[str, Any]) -> int:
    return run_peer(config, Driven if config.get("stdio") else OnShapedLink)


def main() -> int:
    """Run the peer whose configuration is in the file named by the only argument."""
    return run_attached(json.loads(Path(sys.argv[1]).read_text()))


if __name__ == "__main__":
    sys.exit(main())
