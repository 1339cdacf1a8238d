"""The rules on the votes, adoptions and ends of one job: S1, S3, S4, S5 and S8 of the invariants.

Simulated worlds apply them along one history, and the exhaustive exploration of a small fleet (`tests/exhaustive`) along
all of them.
"""

from __future__ import annotations

from collections.abc import Mapping


def majority(n: int) -> int:
    """Return how many of `n` are more than half: written out here, because the core's own count is what is checked."""
    return next(k for k in range(n + 1) if 2 * k > n)


class Agreement:
    """What intact stores of one job's roster have promised so far.

    Each method takes one thing that happened, and returns how it breaks a rule, or an empty string. A store that is lost
    later counts for no majority any longer, so its promises before that still meet every later majority. `parents` leads
    from the digest of a state to that of the state which it follows from.

    >>> agreement = Agreement(3, {})
    >>> agreement.voted(1, "a", "a"), agreement.voted(1, "a", "b"), agreement.elected(1, "a")
    ('', '', '')
    >>> agreement.voted(1, "c", "b")
    'b votes for a and c in term 1'
    >>> agreement.elected(2, "c")
    'c is elected in term 2 by 0 intact votes'
    """

    def __init__(self, n_peers: int, parents: Mapping[bytes, bytes]) -> None:
        self._enough = majority(n_peers)
        self._parents = parents
        self._aggregators: dict[int, str] = {}
        self._votes: dict[tuple[int, str], dict[str, None]] = {}
        self._vote_of: dict[tuple[int, str], str] = {}
        self._states: dict[tuple[int, int], bytes] = {}
        self._adopted: dict[tuple[int, bytes], dict[str, None]] = {}
        self._committed: list[bytes] = []
        self._final: bytes | None = None

    def voters(self, term: int, candidate: str) -> list[str]:
        """Return the peers whose vote for that candidate is on an intact store."""
        return list(self._votes.get((term, candidate), ()))

    def holders(self, term: int, state: bytes) -> list[str]:
        """Return the peers that adopted a state in a term, on an intact store."""
        return list(self._adopted.get((term, state), ()))

    def most_holders(self, state: bytes) -> int:
        """Return how many peers adopted a state in the same term, at most."""
        return max((len(names) for (_, held), names in self._adopted.items() if held == state), default=0)

    def was_adopted(self, term: int, state: bytes) -> bool:
        """Return whether a peer wrote that state into its register in that term, on whatever store."""
        return (term, state) in self._adopted

    def is_open(self, term: int, round_: int) -> bool:
        """Return whether a state of this term and round was adopted."""
        return (term, round_) in self._states

    def voted(self, term: int, candidate: str, voter: str) -> str:
        """S1: one vote in a term."""
        self._votes.setdefault((term, candidate), {})[voter] = None
        known = self._vote_of.setdefault((term, voter), candidate)
        return "" if known == candidate else f"{voter} votes for {known} and {candidate} in term {term}"

    def elected(self, term: int, name: str, *, named: bool = False) -> str:
        """S1: one aggregator in a term, by the votes of a majority, or `named` by the document."""
        known = self._aggregators.setdefault(term, name)
        if known != name:
            return f"{known} and {name} aggregate in term {term}"
        votes = len(self.voters(term, name))
        return "" if named or votes >= self._enough else f"{name} is elected in term {term} by {votes} intact votes"

    def has_aggregator(self, term: int) -> bool:
        """Return whether a peer was elected in a term, or named by the document."""
        return term in self._aggregators

    def opened(self, term: int, round_: int, state: bytes) -> str:
        """S4: one state for a term and round."""
        known = self._states.setdefault((term, round_), state)
        return "" if known == state else f"two states at term {term} round {round_}"

    def adopted(self, term: int, state: bytes, name: str) -> str:
        """S3: what a majority adopts descends from all that majorities have adopted, or the other way round.

        `name` is empty where the store is not the one that the job counts.
        """
        holders = self._adopted.setdefault((term, state), {})
        if not name or name in holders:
            return ""
        holders[name] = None
        if len(holders) != self._enough:
            return ""
        line = self._line(state)
        beside = [other for other in self._committed if other not in line and state not in self._line(other)]
        self._committed.append(state)
        return f"a majority adopted {state.hex()[:8]} beside {beside[0].hex()[:8]}" if beside else ""

    def ended(self, state: bytes, name: str) -> str:
        """S5: all ends are the same state."""
        known = self._final if self._final is not None else state
        self._final = known
        return "" if known == state else f"{name} finished with other bits"

    def ended_early(self, state: bytes, name: str) -> str:
        """S8: a majority holds the final state, in one term."""
        held = self.most_holders(state)
        return "" if held >= self._enough else f"{name} finished while {held} intact stores hold the final state"

    def _line(self, state: bytes) -> set[bytes]:
        """Return the state and all that it descends from."""
        line = {state}
        while state in self._parents:
            state = self._parents[state]
            line.add(state)
        return line
