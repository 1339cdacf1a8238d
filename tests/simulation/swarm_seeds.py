"""Runs seeds of a swarm for a test."""

from __future__ import annotations

from collections import Counter

from p2pclust.lab.commands.seeds import Asked, try_seeds


def counted(seeds: range, protocol: str | None, overlay: str | None = None) -> Counter[str]:
    """Run these seeds; return what happened in all of them. A failure names the command that repeats it."""
    counts: Counter[str] = Counter()
    options = (f" --protocol {protocol}" if protocol else "") + (f" --overlay {overlay}" if overlay else "")
    for finding in try_seeds(seeds, Asked(protocol, overlay=overlay)):
        again = f"p2pclust simulate --seeds {finding.seed}:{finding.seed + 1}{options}"
        assert not finding.failure, f"{finding.failure}\n{again}"
        counts.update(finding.counts)
    return counts
