"""``python -m tests.mutants``: small errors in the core of a peer, which tests or simulated fleets must notice.

A seed draws the mutations. Each is made in a copy of the project, and tried on the tests that run its lines, those of its
module first, and then on the seeds 0 to 49 of ``p2pclust simulate --protocol all`` that run its lines, until one fails. What
survives is either judged in ``tests/mutants/judged.toml``, or lacks a test: then the exit code is 1.

    python -m tests.mutants --resume mutants.jsonl
    python -m tests.mutants --only 3f9a12c0de45
"""

from __future__ import annotations

import argparse
import itertools
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from tests.mutants.child import Order
from tests.mutants.covered import Covered, measured
from tests.mutants.judged import load
from tests.mutants.results import SEEDS, SURVIVED, TESTS, TIMEOUT, Result, Results, digest, judged_as
from tests.mutants.sample import Mutation, drawn
from tests.mutants.tree import Ran, Tree

from p2pclust.cli.show.output import stdout, table

_CORE = "p2pclust/peer/core"
_TEXTS = ("reports.py", "round_reports.py")  # classes of what logs say
_OF_TEST_CPU_S, _OF_SEED_CPU_S = 15.0, 60.0


def main(words: Sequence[str] | None = None) -> int:
    """Try mutations, print what survived and a table, and return the exit code."""
    asked = _arguments(words)
    project = Path.cwd()
    results = Results(asked.resume)
    of = digest(project)
    mutations = _asked_for(asked, project)
    left = [one for one in mutations if asked.only or not results.done(one.key, of, load())]
    _say(f"seed {asked.seed}: {len(mutations)} mutations, {len(mutations) - len(left)} of them have results")
    if left:
        with tempfile.TemporaryDirectory(prefix="p2pclust-mutants-", ignore_cleanup_errors=True) as folder:
            _run(left, Path(folder), project, results, of, asked)
    found = [results.known[one.key] for one in mutations if one.key in results.known]
    return _show(found, len(mutations))


def _arguments(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__.split("\n")[0])
    parser.add_argument("--seed", type=int, default=0, help="of the sample; default 0")
    parser.add_argument("--count", type=int, default=300, help="how many mutations; default 300")
    parser.add_argument("--only", nargs="*", metavar="KEY", help="try these again, whatever is known of them")
    parser.add_argument("--module", default="", help=f"only of modules of {_CORE} with this in their path")
    parser.add_argument("--seeds", type=int, default=50, help="of the simulator; default 50")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no mutation after so long")
    parser.add_argument("--resume", type=Path, metavar="FILE", help="keep results, and try only what has none")
    return parser.parse_args(words)


def _asked_for(asked: argparse.Namespace, project: Path) -> list[Mutation]:
    files = sorted((project / _CORE).rglob("*.py"))
    modules = [file.relative_to(project).as_posix() for file in files if file.name not in _TEXTS]
    sample = drawn(project, [module for module in modules if asked.module in module], asked.seed)
    if not asked.only:
        return list(itertools.islice(sample, asked.count))
    return list(itertools.islice((one for one in sample if one.key in asked.only), len(asked.only)))


def _run(
    left: Iterable[Mutation], home: Path, project: Path, results: Results, of: str, asked: argparse.Namespace
) -> None:  # fmt: skip
    begun = time.monotonic()
    tree = Tree(project, home)
    _say("tests and seeds without a mutation ...")
    covered = measured(tree, home, asked.seeds)
    _say(f"... {time.monotonic() - begun:.0f} s")
    for number, one in enumerate(left, 1):
        if time.monotonic() - begun > asked.seconds:
            _say("the time is over")
            break
        result = tried(one, tree, covered, of)
        results.add(result)
        _say(
            f"{number} {result.key} {result.outcome} {result.wall_s:.0f} s  {result.module}:{result.number}  {result.by}"
        )


def tried(one: Mutation, tree: Tree, covered: Covered, of: str) -> Result:
    """Try one mutation on tests and seeds until one fails."""
    begun = time.monotonic()
    outcome, by, why = SURVIVED, "", ""
    n_tests = n_seeds = 0
    with tree.mutated(one.place.module, one.text):
        for kind, ran in _runs(one, tree, covered):
            n_tests += len(ran.done) if kind == TESTS else 0
            n_seeds += len(ran.done) if kind == SEEDS else 0
            if not ran.passed:
                outcome, by, why = TIMEOUT if ran.timed_out else kind, ran.failed.name, ran.failed.why
                break
    return Result(
        one.key, one.place.module, one.place.function, one.number, one.operator, one.before, one.after, outcome, by, why,
        n_tests, n_seeds, round(time.monotonic() - begun, 1), of,
    )  # fmt: skip


def _runs(one: Mutation, tree: Tree, covered: Covered) -> Iterator[tuple[str, Ran]]:
    steps = covered.steps(one.place.module, one.statement)
    for tests in (steps.own, steps.others):
        if tests:
            yield TESTS, tree.run(Order(tests, most_cpu_s=_OF_TEST_CPU_S), 120 + 20 * covered.seconds(tests))
    if steps.seeds:
        names = [f"seed {seed}" for seed in steps.seeds]
        order = Order(seeds=steps.seeds, most_cpu_s=_OF_SEED_CPU_S)
        yield SEEDS, tree.run(order, 120 + 20 * covered.seconds(names))


def _show(found: Sequence[Result], n_asked: int) -> int:
    judged = load()
    survived = [result for result in found if result.outcome == SURVIVED]
    open_ = [result for result in survived if judged_as(result, judged) is None]
    for result in open_:
        _say(f"\n{result.key} survived {result.n_tests} tests and {result.n_seeds} seeds")
        _say(f"{result.module}:{result.number} {result.function}")
        _say("".join(f"- {line}\n" for line in result.before.splitlines()) + f"+ {result.after}")
    counts = Counter(result.outcome for result in found)
    rows = [
        *((f"killed by {what}", f"{counts[what]}") for what in (TESTS, SEEDS, TIMEOUT)),
        ("survived, judged", f"{len(survived) - len(open_)}"),
        ("survived, not judged", f"{len(open_)}"),
        ("not tried yet", f"{n_asked - len(found)}"),
    ]
    stdout().print(table(("mutations", "number"), rows, right=("number",)))
    return int(bool(open_))


def _say(line: str) -> None:
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
