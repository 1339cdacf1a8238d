"""What secure sums and proofs cost: the same rounds plain, secured, verified and both, one after the other, in one run.

python benchmarks/secure_rounds.py [--peers 20] [--rounds 100] [--repeats 3] [--features 64 784]
"""

from __future__ import annotations

import argparse
import statistics

from rounds import CLUSTERS, peers_of, request_of, steady_rounds

from p2pclust.lab.testbed import backend
from p2pclust.lab.testbed.spec import FleetResult, FleetSpec

MANY_PEERS, MANY_ROUNDS = 100, 20
#: A name; whether sums are secure; whether states have proofs.
KINDS = (("plain", False, ""), ("secured", True, ""), ("verified", False, "all"), ("both", True, "all"))


def sent(result: FleetResult) -> float:
    """Return the bytes that a peer sent in the mean."""
    return statistics.mean(float(peer["bytes_sent"]) for peer in result.peers.values())


def on_processes(n_peers: int, features: int, n_rounds: int) -> None:
    """Print the milliseconds of a round and the bytes per peer and round of each kind of job."""
    peers, medians = peers_of(n_peers, features), []
    for name, secure, verify in KINDS:
        seconds, result = steady_rounds(peers, request_of(n_rounds, features, secure=secure, verify=verify))
        medians.append(1000 * statistics.median(seconds))
        ratio = f"{medians[-1] / medians[0]:9.2f}"
        kilobytes = sent(result) / n_rounds / 1000
        row = f"{n_peers:6d} x {CLUSTERS} x {features:<5d}{name:>10}{medians[-1]:12.2f}{kilobytes:14.1f}"
        print(row + ratio, flush=True)


def simulated(n_peers: int, n_rounds: int) -> None:
    """Print the virtual milliseconds of a round and the bytes per peer and round of a large fleet."""
    for name, secure, verify in KINDS:
        spec = FleetSpec(peers_of(n_peers), (request_of(n_rounds, secure=secure, verify=verify),))
        result = backend("simulated").carry_out(spec, lambda event: None)
        assert not result.failure, result.failure
        took_s = result.jobs[0].seconds
        row = f"{n_peers:6d} x {CLUSTERS} x 64   {name:>10}{1000 * took_s / n_rounds:12.2f}"
        print(f"{row}{sent(result) / n_rounds / 1000:14.1f}  (virtual time)", flush=True)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peers", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--features", type=int, nargs="+", default=[64, 784])
    options = parser.parse_args()
    print(f"{'peers x C x F':>16}{'':>12}{'ms a round':>12}{'kB a round':>14}{'ratio':>9}")
    for _ in range(options.repeats):
        for features in options.features:
            on_processes(options.peers, features, options.rounds)
    simulated(MANY_PEERS, MANY_ROUNDS)


if __name__ == "__main__":
    main()
