"""What shaped links come to, against what was stated: round trips and throughput, on sockets and in simulation.

python benchmarks/links.py [--pings 60] [--megabits 4]

Two processes' worth of links on loopback, each shaping its own half as peers of the processes backend do; and the same
pair in virtual time. A row is one pair of devices: stated, measured, and the ratio of the two, which should be 1.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import statistics
from dataclasses import dataclass

import numpy as np

from p2pclust.lab.links.delayed import shape_own
from p2pclust.lab.links.shaping import Shape
from p2pclust.lab.simulation.world.lines import Lines, Parcel
from p2pclust.lab.simulation.world.network import Conditions, Network
from p2pclust.lab.simulation.world.world import World
from p2pclust.lab.testbed.processes.children import Throwaway
from p2pclust.peer.core.timing import Limits, preset
from p2pclust.transport.links import Lane
from p2pclust.transport.zeromq import ZmqLinks

MESSAGE = 16 * 1024  # bytes of one bulk message
GATEWAY = {"latency_ms": 5, "up_mbit": 100, "down_mbit": 100}
METER = {"latency_ms": 40, "jitter_ms": 10, "up_mbit": 1, "down_mbit": 1}
DISH = {"latency_ms": 270, "jitter_ms": 20, "up_mbit": 3, "down_mbit": 20}
PAIRS = {
    "two gateways": (GATEWAY, GATEWAY),
    "meter and gateway": (METER, GATEWAY),
    "two meters": (METER, METER),
    "asymmetric line": ({"latency_ms": 10, "up_mbit": 2, "down_mbit": 16}, GATEWAY),
    "satellite": (DISH, GATEWAY),
}


@dataclass(frozen=True)
class Found:
    """Median round trip of a small message in seconds, and bits per second of large ones from the first to the second."""

    round_trip_s: float
    rate: float


def stated(a: Shape, b: Shape) -> Found:
    """What the two shapes say of a small message (of 64 bytes) there and back, and of many large ones."""
    there, back = ((a.up, b.down), (b.up, a.down))
    trip = sum(one.latency_s + other.latency_s + 64 / min(one.rate, other.rate) for one, other in (there, back))
    return Found(trip, 8 * min(a.up.rate, b.down.rate))


def _rate(instants: list[float]) -> float:
    """Bits per second between the first and the last of messages that came one after another."""
    return 8 * MESSAGE * (len(instants) - 1) / (instants[-1] - instants[0])


async def on_sockets(a: Shape, b: Shape, n_pings: int, n_messages: int) -> Found:
    """Measure on loopback."""
    made = Throwaway(["a", "b"])
    roster, bundles = made.roster, made.bundles
    loop = asyncio.get_running_loop()
    links: dict[str, ZmqLinks] = {}
    answered = asyncio.Event()
    instants: list[float] = []
    done = asyncio.Event()

    def at_a(source: str, frames: list[bytes], lane: Lane) -> None:
        answered.set()

    def at_b(source: str, frames: list[bytes], lane: Lane) -> None:
        if lane == Lane.CONTROL:
            links["b"].send("a", frames, lane)
            return
        instants.append(loop.time())
        if len(instants) in (1, 1 + n_messages):  # the first opens the connection
            done.set()

    for name, shape, receive in (("a", a, at_a), ("b", b, at_b)):
        links[name] = ZmqLinks(bundles[name], roster, "127.0.0.1:0", receive)
        shape_own(links[name], shape, np.random.Generator(np.random.PCG64(1)), {"a": a.up.rate, "b": b.up.rate})
    links["a"].connect("b", links["b"].address)
    links["b"].connect("a", links["a"].address)
    trips = []
    for _ in range(n_pings + 5):
        answered.clear()
        began = loop.time()
        links["a"].send("b", [b"x" * 64], Lane.CONTROL)
        await answered.wait()
        trips.append(loop.time() - began)
    for count in (1, n_messages):
        done.clear()
        for _ in range(count):
            links["a"].send("b", [b"y" * MESSAGE], Lane.BULK)
        await done.wait()
    for one in links.values():
        one.close()
    return Found(statistics.median(trips[5:]), _rate(instants[1:]))


def in_simulation(a: Shape, b: Shape, n_pings: int, n_messages: int) -> Found:
    """Measure in virtual time, on a network that adds nothing of its own."""
    rng = np.random.Generator(np.random.PCG64(1))
    world = World({}, Network(Conditions((0.0, 0.0)), rng), preset("fast"), Limits(), rng)
    trips: list[float] = []
    instants: list[float] = []

    def deliver(parcel: Parcel) -> None:
        if parcel.lane == Lane.BULK:
            instants.append(world.now)
        elif parcel.target == "b":
            lines.send(Parcel("b", "a", [], 64, Lane.CONTROL, 0))
        else:
            trips.append(world.now)

    def ping() -> None:
        lines.send(Parcel("a", "b", [], 64, Lane.CONTROL, 0))

    lines = Lines(world.network, lambda: world.now, world.at, deliver)
    lines.shape("a", a, rng)
    lines.shape("b", b, rng)
    for number in range(n_pings):
        world.at(10.0 * number, ping)
    world.run_until(10.0 * n_pings)
    for _ in range(n_messages):
        lines.send(Parcel("a", "b", [], MESSAGE, Lane.BULK, 0))
    world.run_until(math.inf, lambda: len(instants) == n_messages)
    return Found(statistics.median(at - 10.0 * number for number, at in enumerate(trips)), _rate(instants))


def main() -> None:
    """Print one row for each pair and backend."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pings", type=int, default=60)
    parser.add_argument("--megabits", type=float, default=4.0, help="sent from the first device to the second")
    given = parser.parse_args()
    print(f"{'pair':18} {'backend':10} {'round trip ms':>26} {'Mbit/s':>26}")
    print(f"{'':18} {'':10} {'stated  measured  ratio':>26} {'stated  measured  ratio':>26}")
    for name, (one, other) in PAIRS.items():
        a, b = Shape.of(**one), Shape.of(**other)
        said = stated(a, b)
        # At least a quarter of a second of it, or what is measured is the clock; and no more than the queue holds.
        n_messages = max(8, round(max(given.megabits * 1e6, said.rate / 4) / 8 / MESSAGE))
        for backend, found in (
            ("processes", asyncio.run(on_sockets(a, b, given.pings, n_messages))),
            ("simulated", in_simulation(a, b, 500, n_messages)),
        ):
            trip, rate = (
                f"{what:.1f}  {came:8.2f}  {came / what:.3f}"
                for what, came in (
                    (said.round_trip_s * 1e3, found.round_trip_s * 1e3),
                    (said.rate / 1e6, found.rate / 1e6),
                )
            )
            print(f"{name:18} {backend:10} {trip:>26} {rate:>26}")


if __name__ == "__main__":
    main()
