"""The limit to compare a round with: one polling ROUTER, N DEALER processes, plain TCP, and nothing else.

Per round the ROUTER sends every DEALER a msgpack header and one raw float64 array (the centers), each DEALER answers
with a header and one raw array (its sums and counts), and the round ends when all have answered. No encryption, no
identity, no disk, no clustering, no failure: whatever a fleet does beyond this costs what it takes longer.

    python benchmarks/bare_loop.py --peers 20 --rounds 200
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

import msgpack
import numpy as np
import zmq

REQUEST_BYTES = 10 * 64 * 8
"""Ten centers of 64 features, float64."""

REPLY_BYTES = (10 * 64 + 10) * 8
"""Ten sums of 64 features and ten weights, float64."""

_PATIENCE_MS = 30_000


def bare_loop(
    n_peers: int = 20, rounds: int = 200, request_bytes: int = REQUEST_BYTES, reply_bytes: int = REPLY_BYTES
) -> dict[str, Any]:
    """Run the bare loop once.

    Parameters
    ----------
    n_peers : int
        DEALER processes.
    rounds : int
        Rounds that are timed; one more goes before them.
    request_bytes, reply_bytes : int
        Bytes of the array in each direction, rounded up to whole float64 values.

    Returns
    -------
    dict
        ``startup_s`` (from the first process started to all of them linked), ``round_ms`` (one float per round), and
        their ``median_ms``, ``min_ms``, ``max_ms``; the four arguments again.

    Raises
    ------
    RuntimeError
        When a process does not answer within 30 seconds. All processes are ended in any case.
    """
    processes: list[subprocess.Popen[bytes]] = []
    with zmq.Context() as context, context.socket(zmq.ROUTER) as router:
        router.linger = 0
        router.rcvtimeo = _PATIENCE_MS
        port = router.bind_to_random_port("tcp://127.0.0.1")
        try:
            started = time.perf_counter()
            for _ in range(n_peers):
                command = [sys.executable, __file__, "--answer", str(port), "--reply-bytes", str(reply_bytes)]
                processes.append(subprocess.Popen(command))
            peers = [_receive(router)[0] for _ in range(n_peers)]
            startup_s = time.perf_counter() - started
            centers = np.linspace(0.0, 1.0, -(-request_bytes // 8))
            round_ms = [_round(router, peers, number, centers) * 1e3 for number in range(rounds + 1)][1:]
        finally:
            for process in processes:
                process.kill()
            for process in processes:
                process.wait()
    return {
        "n_peers": n_peers,
        "rounds": rounds,
        "request_bytes": request_bytes,
        "reply_bytes": reply_bytes,
        "startup_s": startup_s,
        "median_ms": statistics.median(round_ms),
        "min_ms": min(round_ms),
        "max_ms": max(round_ms),
        "round_ms": round_ms,
    }


def _receive(router: zmq.Socket[bytes]) -> list[bytes]:
    try:
        return router.recv_multipart()
    except zmq.Again:
        raise RuntimeError(f"a process of the bare loop did not answer within {_PATIENCE_MS // 1000} s") from None


def _round(router: zmq.Socket[bytes], peers: Sequence[bytes], number: int, centers: np.ndarray[Any, Any]) -> float:
    """Seconds from the first message sent to the last one received and read."""
    started = time.perf_counter()
    header = msgpack.packb([1, "open", {"job": "bare", "round": number, "shape": [centers.size], "dtype": "<f8"}])
    for peer in peers:
        router.send_multipart([peer, header, centers.tobytes()])
    total: Any = 0.0
    for _ in peers:
        _, answer, values = _receive(router)
        if msgpack.unpackb(answer)[2]["round"] != number:
            raise RuntimeError(f"an answer to another round than {number}")
        total = total + np.frombuffer(values)
    return time.perf_counter() - started


def _answer(port: int, reply_bytes: int) -> None:
    """What a DEALER process does: answer until killed, or until nothing has been heard for 30 seconds."""
    sums = np.linspace(0.0, 1.0, -(-reply_bytes // 8))
    with zmq.Context() as context, context.socket(zmq.DEALER) as dealer:
        dealer.linger = 0
        dealer.rcvtimeo = _PATIENCE_MS
        dealer.connect(f"tcp://127.0.0.1:{port}")
        dealer.send(b"ready")
        while True:
            try:
                header, values = dealer.recv_multipart()
            except zmq.Again:
                return
            np.frombuffer(values)
            fields = msgpack.unpackb(header)[2]
            answer = [1, "adopted", {"job": fields["job"], "round": fields["round"], "shape": [sums.size]}]
            dealer.send_multipart([msgpack.packb(answer), sums.tobytes()])


def _main() -> None:
    parser = argparse.ArgumentParser(description="One polling ROUTER and N DEALER processes over plain TCP.")
    parser.add_argument("--peers", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--request-bytes", type=int, default=REQUEST_BYTES)
    parser.add_argument("--reply-bytes", type=int, default=REPLY_BYTES)
    parser.add_argument("--answer", type=int, metavar="PORT", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.answer is not None:
        _answer(options.answer, options.reply_bytes)
        return
    result = bare_loop(options.peers, options.rounds, options.request_bytes, options.reply_bytes)
    print(
        f"{options.peers} peers, {options.rounds} rounds of {options.request_bytes} + {options.reply_bytes} bytes per peer: "
        f"median {result['median_ms']:.2f} ms, min {result['min_ms']:.2f}, max {result['max_ms']:.2f}; "
        f"started in {result['startup_s']:.2f} s"
    )


if __name__ == "__main__":
    _main()
