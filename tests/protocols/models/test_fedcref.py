"""FedCRef, phase by phase: what each contributes on planted kinds of rows, what is agreed on, and when it ends."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from communities import D, Hand, a_job, hand, planted

from p2pclust.clustering.autoencoders import ModelStack
from p2pclust.clustering.stacks import reconstruction_errors
from p2pclust.errors import UsageError
from p2pclust.metrics import accuracy
from p2pclust.protocols.engine import engine
from p2pclust.protocols.engine.arrays import Arrays, Contribution
from p2pclust.protocols.engine.base import Abstain
from p2pclust.protocols.engine.runner import Workspaces
from p2pclust.protocols.engine.wire import decode_state
from p2pclust.protocols.engine.workspace import Workspace, digest_of
from p2pclust.protocols.models import affinity, mutual_test
from p2pclust.protocols.models.association import Association
from p2pclust.protocols.models.fedcref import FedCRefProtocol
from p2pclust.protocols.models.fedcref_agreed import HISTORY, Agreed
from p2pclust.protocols.models.fedcref_note import Note, without_gaps
from p2pclust.protocols.models.fedcref_peer import KnownErrors
from p2pclust.protocols.models.refinement import agreement

pytest.importorskip("torch", reason="autoencoders need torch: pip install 'p2pclust[models]'")

KINDS = [[0, 1, 2], [1, 2, 3], [0, 2, 3], [0, 1, 3]]
DIRT = 0.15


@cache
def run_of(mode: str, dirt: float = DIRT) -> list[Hand]:
    """One run, as it was before every round and after the last; not to be changed."""
    h = hand(KINDS, mode, dirt=dirt)
    seen = []
    while h.state.status == "running":
        seen.append(copied(h))
        h.round()
    return [*seen, h]


def copied(h: Hand) -> Hand:
    twin = Hand(h.job, h.locals, Workspaces(1, dict(h.workspaces.notes), dict(h.workspaces.blobs)))
    twin.state = h.state
    return twin


def at(phase: str, mode: str = "refined", turn: int = 0) -> Hand:
    """The run just before the phase comes for the turn-th time, to be changed at will."""
    return copied([h for h in run_of(mode) if h.phase == phase and h.state.status == "running"][turn])


def history(h: Hand) -> list[dict[str, int]]:
    return [dict(zip(HISTORY, row, strict=True)) for row in h.agreed.history.astype(int).tolist()]


def stack(h: Hand, digests: list[bytes]) -> ModelStack:
    architecture = h.protocol.architecture(h.state.arrays)
    return ModelStack.decode(architecture, [h.workspaces.blobs[digest] for digest in digests], h.protocol.encoding)


def nobody_rests(peer: int, part: Contribution) -> Contribution:
    return part.replace(stable=np.False_) if "stable" in part else part


def kinds_of(groups: Any, h: Hand) -> list[list[int]]:
    """Which planted kinds the clusters of each group are of."""
    nodes = h.agreed.clusters.nodes
    return [sorted({KINDS[p][q] for p, q in (nodes[m] for m in group)}) for group in groups]


# -- models -----------------------------------------------------------------------------------------------------------


class TestModels:
    def test_a_model_of_each_cluster_and_how_many_rows_it_has(self) -> None:
        h = hand(KINDS, epochs=25).until("models")
        for peer, told in h.answers().items():
            assert isinstance(told, Arrays)
            labels = planted(KINDS)[peer].labels
            assert told["rows"].tolist() == np.bincount(labels).tolist()
            note = h.workspaces.notes[peer]
            assert note["labels"].tolist() == labels.tolist()
            assert (int(note["n_groups"]), int(note["wanted"]), bool(note["trained"])) == (0, 3, True)
            digests = [digest.tobytes() for digest in told["models"]]
            assert digests == [digest.tobytes() for digest in note["models"]]
            errors = reconstruction_errors(stack(h, digests), h.locals[peer].X)
            own = [errors[labels == q].mean(axis=0) for q in range(3)]
            assert [int(np.argmin(means)) for means in own] == [0, 1, 2], "each is of its own cluster"

    @pytest.mark.slow
    def test_blobs_are_what_the_digests_say(self) -> None:
        h = at("models")
        h.answers()
        assert all(digest_of(data) == digest for digest, data in h.workspaces.blobs.items())

    def test_a_cluster_of_few_rows_has_none_and_its_rows_wait(self) -> None:
        h = hand(KINDS, min_rows=10).until("models")
        labels = h.locals[0].labels
        assert labels is not None
        h.locals[0].labels = np.where(np.arange(len(labels)) < len(labels) - 9, labels % 2, 2)
        told = h.answers([0])[0]
        assert isinstance(told, Arrays)
        assert len(told["rows"]) == len(told["models"]) == 2
        note = h.workspaces.notes[0]
        assert (note["labels"] == -1).sum() == 9
        assert int(note["wanted"]) == 3, "it may have a third again"
        assert h.round([0, 1, 2, 3]).status == "running"
        h.end()
        assert accuracy(planted(KINDS)[0].truth, h.labels(0)) > 0.9
        assert (h.labels(0) >= 0).all(), "they waited for the first refinement"

    def test_labels_without_gaps_whatever_the_given_ones_are_called(self) -> None:
        h = at("models")
        other = at("models")
        given = h.locals[0].labels
        assert given is not None
        renamed = replace(planted(KINDS, dirt=DIRT)[0], labels=given * 100 - 7).local()
        other.locals = [renamed, *other.locals[1:]]
        assert other.answers([0]) == h.answers([0])

    def test_the_number_of_clusters_is_the_jobs_the_devices_or_that_of_its_labels(self) -> None:
        h = at("models")
        for n_clusters, of_job, wanted in ((None, None, 3), (5, None, 5), (5, 2, 2)):
            options = {} if of_job is None else {"n_local_clusters": of_job}
            twin = Hand(a_job(**options), h.locals).until("models")
            twin.locals[0].n_clusters = n_clusters
            twin.answers([0])
            assert int(twin.workspaces.notes[0]["wanted"]) == wanted
        h.locals[0].n_clusters = 3

    @pytest.mark.parametrize("initial", ["mixture", "kmeans"])
    def test_principal_components_where_nothing_is_given(self, initial: str) -> None:
        h = hand([[0, 1], [1, 2]], initial=initial).until("models")
        h.round()
        for peer in (0, 1):
            labels = h.workspaces.notes[peer]["labels"]
            assert accuracy(planted([[0, 1], [1, 2]])[peer].truth, labels) > 0.9

    def test_dec_if_it_is_asked_for(self, monkeypatch: pytest.MonkeyPatch) -> None:
        asked = []

        def dec(X: Any, n_clusters: int, rng: np.random.Generator, *, device: str) -> Any:
            asked.append((len(X), n_clusters, device))
            return SimpleNamespace(labels=np.repeat([2, 0], len(X) // 2))  # the middle one has no row

        monkeypatch.setattr("p2pclust.protocols.models.fedcref_peer.deep_embedded_clustering", dec)
        h = hand([[0, 1], [1, 2]], initial="dec").until("models")
        h.round()
        assert asked == [(48, 2, "cpu")] * 2
        assert h.workspaces.notes[0]["labels"].tolist() == [1] * 24 + [0] * 24

    def test_the_silhouette_chooses_where_nobody_knows(self) -> None:
        h = hand([[0, 1, 2], [1, 2, 3]], initial="kmeans", most_local_clusters=4).until("models")
        for local in h.locals:
            local.n_clusters = None
        h.round()
        assert [int(h.workspaces.notes[peer]["wanted"]) for peer in (0, 1)] == [3, 3]


# -- verdicts and graph -----------------------------------------------------------------------------------------------


class TestVerdicts:
    def test_refined_as_affinity_has_them(self) -> None:
        h = at("verdicts")
        clusters, models = h.agreed.clusters, [h.agreed.model(m) for m in range(h.agreed.clusters.total)]
        for peer, told in h.answers().items():
            X, labels = h.locals[peer].X, h.workspaces.notes[peer]["labels"]
            parts = [reconstruction_errors(stack(h, models), X[labels == q]) for q in range(3)]
            assert told == affinity.verdicts(clusters, peer, parts, n_features=D)

    @pytest.mark.slow
    def test_paper_as_the_mutual_test_has_them(self) -> None:
        h = at("verdicts", "paper")
        clusters, models = h.agreed.clusters, [h.agreed.model(m) for m in range(h.agreed.clusters.total)]
        told = h.answers()[2]
        X, labels = h.locals[2].X, h.workspaces.notes[2]["labels"]
        parts = [reconstruction_errors(stack(h, models), X[labels == q]) for q in range(3)]
        assert told == mutual_test.verdicts(clusters, 2, parts, alpha=75.0, theta=0.4)

    @pytest.mark.parametrize("mode", ["refined", "paper"])
    def test_of_a_model_that_cannot_be_had_nothing_good_is_told(self, mode: str) -> None:
        h = at("verdicts", mode)
        lost = h.agreed.model(4)  # of peer 1
        data = h.workspaces.blobs.pop(lost)
        told = h.answers([0])[0]
        assert isinstance(told, Arrays)
        if mode == "refined":
            assert (told["affinity"][:, 4] == affinity.NOTHING).all()
            others = [m for m in range(12) if m not in (0, 1, 2, 4)]
            assert (told["affinity"][:, others] != affinity.NOTHING).all(), "the others are judged as ever"
        else:
            assert not np.unpackbits(told["passes"], axis=1)[:, 4].any()
        for bad in (data[:-1], b"", b"\xff" * len(data)):
            h.workspaces.blobs[lost] = bad
            h.locals[0].once(KnownErrors, KnownErrors).forget()  # what other tests have tried; a digest names one model
            assert h.answers([0])[0] == told

    def test_who_entered_no_clusters_abstains(self) -> None:
        h = at("models")
        h.round([0, 1, 2])
        told = h.answers()
        assert isinstance(told[3], Abstain)
        assert told[3].reason == "has no clusters in this iteration"
        assert isinstance(told[2], Arrays)

    def test_who_lost_its_note_abstains(self) -> None:
        h = at("verdicts")
        del h.workspaces.notes[1]
        told = h.answers()
        assert isinstance(told[1], Abstain)
        h.close(told)
        assert h.agreed.told.tolist() == [True, False, True, True]
        h.round()
        assert h.agreed.association.set_aside == (3, 4, 5)


class TestGraph:
    def test_groups_are_the_planted_kinds(self) -> None:
        h = at("refine")
        assert kinds_of(h.agreed.association.groups, h) == [[0], [1], [2], [3]]
        assert all(len(group) == 3 for group in h.agreed.association.groups)

    def test_everybody_contributes_the_digest_of_the_same_graph(self) -> None:
        h = at("graph")
        told = [part["digest"].tobytes() for part in h.answers().values() if isinstance(part, Arrays)]
        assert len(told) == 4
        assert set(told) == {h.protocol.associate(h.agreed).digest}
        h.close(h.answers())
        assert h.agreed.association.digest == told[0]
        assert h.agreed.differs.tolist() == []

    def test_another_graph_from_the_same_verdicts_fails_the_job_loudly(self, monkeypatch: pytest.MonkeyPatch) -> None:
        h = at("graph")
        honest = FedCRefProtocol.associate
        calls = iter(range(100))

        def odd(self: FedCRefProtocol, agreed: Agreed) -> Association:
            found = honest(self, agreed)
            return Association(found.clusters, found.links[1:]) if next(calls) == 2 else found

        monkeypatch.setattr(FedCRefProtocol, "associate", odd)
        h.round()
        assert h.state.status == "failed"
        assert "peers [2] built another association graph from the same verdicts" in h.state.reason

    def test_every_group_begins_with_the_model_of_its_most_typical_cluster(self) -> None:
        h = at("graph")
        table = h.agreed.table
        h.round()
        found = h.agreed
        for group, members in enumerate(found.association.groups):
            means = [np.mean([table[a, b] for a in members if a != b]) for b in members]
            assert found.group_model(group) == found.model(members[int(np.argmin(means))])
        assert found.holders.all()
        assert found.members.tolist() == [
            [sum(int(found.rows[m]) for m in members if m // 3 == peer) for members in found.association.groups]
            for peer in range(4)
        ]

    def test_in_the_paper_nobody_has_a_model_of_a_group_yet(self) -> None:
        h = at("train", "paper")
        assert h.agreed.n_groups > 0
        assert not h.agreed.group_models.any()
        assert not h.agreed.holders.any()


# -- training ---------------------------------------------------------------------------------------------------------


class TestTrain:
    @pytest.mark.parametrize("mode", ["refined", "paper"])
    def test_its_own_run_of_each_group_comes_to_the_same_bits(self, mode: str) -> None:
        h = at("train", mode)
        runs = h.protocol.runs(h.state.arrays, h.agreed)
        told = h.answers()
        for group, run in runs:
            notes = {index: at("train", mode).workspaces.notes[peer] for index, peer in enumerate(run.roster)}
            blobs = dict(at("train", mode).workspaces.blobs)
            child = Hand(run.job, [h.locals[peer] for peer in run.roster], Workspaces(1, notes, blobs))
            digest = digest_of(child.end().arrays["weights"].tobytes())
            for peer in run.roster:
                part = told[peer]
                assert isinstance(part, Arrays)
                place = part["groups"].tolist().index(group)
                assert part["models"][place].tobytes() == digest
        h.close(told)
        assert h.phase == "refine"
        for group, run in runs:
            assert h.agreed.holders_of(group) == run.roster
            assert h.agreed.group_model(group) in h.workspaces.blobs

    def test_members_are_who_has_rows_in_the_group(self) -> None:
        h = at("train")
        for group, run in h.protocol.runs(h.state.arrays, h.agreed):
            assert run.roster == tuple(p for p in range(4) if h.agreed.members[p, group] >= 10)
            (protocol,) = run.job.protocols
            assert protocol.clusters == ((group,),) * len(run.roster)  # type: ignore[attr-defined]
            assert protocol.start == h.agreed.group_model(group).hex()  # type: ignore[attr-defined]

    def test_in_the_paper_they_are_the_associated_clusters_from_random_weights(self) -> None:
        h = at("train", "paper")
        for group, run in h.protocol.runs(h.state.arrays, h.agreed):
            members = [h.agreed.clusters.nodes[m] for m in h.agreed.association.groups[group]]
            (protocol,) = run.job.protocols
            assert protocol.clusters == tuple(  # type: ignore[attr-defined]
                tuple(q for p, q in members if p == peer) for peer in run.roster
            )
            assert protocol.start == ""  # type: ignore[attr-defined]

    def test_jobs_of_different_groups_turns_and_iterations_are_different_jobs(self) -> None:
        runs = []
        for mode in ("refined", "paper"):
            for h in run_of(mode):
                if h.phase == "train" and h.state.status == "running":
                    runs += [(mode, run.name, run.job.seed) for _, run in h.protocol.runs(h.state.arrays, h.agreed)]
        assert len({(mode, name) for mode, name, _ in runs}) == len({seed for *_, seed in runs}) == len(runs)

    def test_aggregators_are_spread(self) -> None:
        h = at("train")
        found = [run.aggregator for _, run in h.protocol.runs(h.state.arrays, h.agreed)]
        assert len(set(found)) == len(found) == 4

    @pytest.mark.parametrize("status", ["nothing", "failed"])
    def test_a_group_whose_job_did_not_end_keeps_the_model_that_it_had(self, status: str) -> None:
        h = at("train")
        before = h.agreed.group_model(2)
        prepared = h.prepared()
        runs = dict(h.protocol.runs(h.state.arrays, h.agreed))
        for workspace in prepared.values():
            results = dict(workspace.results)
            lost = results.pop(runs[2].name, None)
            if lost is not None and status == "failed":
                results[runs[2].name] = replace(lost, status="failed")
            workspace.results = results
        told = {peer: h.answer(peer, workspace) for peer, workspace in prepared.items()}
        assert all(2 not in part["groups"] for part in told.values() if isinstance(part, Arrays))
        h.close(told)
        assert h.agreed.group_model(2) == before
        assert h.agreed.group_model(1) != at("train").agreed.group_model(1)
        assert h.end().status == "done"

    def test_in_the_paper_it_has_none_and_its_clusters_go_on_with_their_own(self) -> None:
        h = at("train", "paper")
        prepared = h.prepared()
        for workspace in prepared.values():
            workspace.results = {}
        h.close({peer: h.answer(peer, workspace) for peer, workspace in prepared.items()})
        assert not h.agreed.group_models.any()
        before = {peer: note["labels"].tolist() for peer, note in h.workspaces.notes.items()}
        h.round()
        assert {peer: note["labels"].tolist() for peer, note in h.workspaces.notes.items()} == before
        assert h.state.status == "done", "everybody rests"

    def test_models_that_most_came_to_count(self) -> None:
        h = at("train")
        told = h.answers()
        first = told[0]
        assert isinstance(first, Arrays)
        models = first["models"].copy()
        models[0] = 7
        told[0] = first.replace(models=models)
        group = int(first["groups"][0])
        h.close(told)
        assert h.agreed.group_model(group) != b"\x07" * 32
        assert 0 not in h.agreed.holders_of(group)


# -- refinement -------------------------------------------------------------------------------------------------------


class TestRefine:
    def test_rows_go_to_the_best_of_as_many_groups_as_the_peer_has_kinds(self) -> None:
        h = at("refine", turn=1)
        groups = h.agreed.alive.tolist()
        errors = [
            reconstruction_errors(stack(h, [h.agreed.group_model(g) for g in groups]), local.X) for local in h.locals
        ]
        h.round()
        for peer, table in enumerate(errors):
            labels = h.workspaces.notes[peer]["labels"]
            chosen = np.unique(labels)
            assert len(chosen) <= 3
            columns = [groups.index(g) for g in chosen.tolist()]
            assert labels.tolist() == chosen[table[:, columns].argmin(axis=1)].tolist()

    def test_the_first_refinement_asks_the_models_of_others(self) -> None:
        """Each group is the median of its members' models at other peers: the own ones have seen the rows."""
        h = at("refine")
        clusters, groups = h.agreed.clusters, h.agreed.association.groups
        X = h.locals[0].X
        typical = []
        for members in groups:
            foreign = [h.agreed.model(m) for m in members if clusters.owners[m] != 0]
            typical.append(np.median(reconstruction_errors(stack(h, foreign), X), axis=1))
        table = np.stack(typical, axis=1)
        h.answers([0])
        labels = h.workspaces.notes[0]["labels"]
        chosen = np.unique(labels)
        assert labels.tolist() == chosen[table[:, chosen].argmin(axis=1)].tolist()

    def test_what_is_told_are_counts_only(self) -> None:
        h = at("refine", turn=1)
        before = {peer: note["labels"] for peer, note in h.workspaces.notes.items()}
        for peer, told in h.answers().items():
            assert isinstance(told, Arrays)
            after = h.workspaces.notes[peer]["labels"]
            assert list(told) == ["changed", "rows", "stable", "members", "alone"]
            assert int(told["rows"]) == len(after)
            assert int(told["changed"]) == int((before[peer] != after).sum())
            assert told["members"].tolist() == [int((after == g).sum()) for g in range(4)]
            assert int(told["alone"]) == 0
            assert not told["stable"]

    def test_history_adds_them_up(self) -> None:
        run = run_of("refined")
        last = history(run[-1])
        assert [row["refinement"] for row in last] == list(range(len(last)))
        assert all(row["rows"] == 4 * 72 for row in last)
        assert [(row["groups"], row["isolated"], row["active"]) for row in last] == [(4, 0, 4)] * len(last)
        told = at("refine").answers().values()
        assert last[0]["changed"] == sum(int(part["changed"]) for part in told if isinstance(part, Arrays))

    def test_in_the_paper_stability_is_what_tau_says(self) -> None:
        h = at("refine", "paper")
        before = {peer: note["labels"] for peer, note in h.workspaces.notes.items()}
        for peer, told in h.answers().items():
            assert isinstance(told, Arrays)
            after = h.workspaces.notes[peer]["labels"]
            assert bool(told["stable"]) == (agreement(before[peer], after) >= 0.8)

    @pytest.mark.parametrize("mode", ["refined", "paper"])
    def test_without_any_model_the_partition_stays_and_so_does_its_meaning(self, mode: str) -> None:
        """Own cluster 0 must not become community 0, but the community that it was found to be in."""
        h = at("refine", mode)
        note = h.workspaces.notes[0]
        workspace = Workspace(0, note)
        told = h.answer(0, workspace)
        assert isinstance(told, Arrays)
        assert workspace.kept is not None
        assert workspace.kept["labels"].tolist() == note["labels"].tolist()
        assert int(workspace.kept["n_groups"]) == 0
        assert not told["members"].any() or mode == "paper"
        assert int(told["changed"]) == 0
        assert int(told["alone"]) == (h.agreed.association.group_of[list(h.agreed.clusters.of(0))] < 0).sum()
        h.workspaces.notes[0] = workspace.kept
        answers = h.answers()
        h.workspaces.notes[0] = workspace.kept
        answers[0] = told
        h.close(answers)
        groups = h.agreed.association.group_of[list(h.agreed.clusters.of(0))]
        called = np.searchsorted(h.agreed.alive, groups)
        called[groups < 0] = len(h.agreed.alive) + np.arange((groups < 0).sum())
        assert h.labels(0).tolist() == called[note["labels"]].tolist()

    def test_planted_kinds_are_found(self) -> None:
        last = run_of("refined")[-1]
        assert last.state.status == "done"
        found = np.concatenate([last.labels(peer) for peer in range(4)])
        truth = np.concatenate([peer.truth for peer in planted(KINDS, dirt=DIRT)])
        assert accuracy(truth, found) == 1.0, "one meaning at all peers"
        started = [accuracy(p.truth, p.labels) for p in planted(KINDS, dirt=DIRT)]
        assert max(started) < 0.95

    def test_a_group_that_nobody_needs_is_dropped(self) -> None:
        h = at("refine", turn=1)
        answers = h.answers()
        for peer, part in answers.items():
            assert isinstance(part, Arrays)
            members = part["members"].copy()
            members[3] = 0
            answers[peer] = part.replace(members=members)
        h.close(answers)
        assert h.agreed.alive.tolist() == [0, 1, 2]
        assert h.agreed.n_groups == 4, "the others keep their numbers"
        assert history(h)[-1]["groups"] == 3
        assert all(group != 3 for group, _ in h.protocol.runs(h.state.arrays, h.agreed))

    def test_but_not_while_somebody_is_away_who_had_rows_in_it(self) -> None:
        h = at("refine", turn=1)
        answers = h.answers()
        for peer, part in answers.items():
            assert isinstance(part, Arrays)
            answers[peer] = part.replace(members=part["members"] * [1, 1, 1, 0])
        del answers[1]
        h.close(answers)
        assert h.agreed.alive.tolist() == [0, 1, 2, 3]


class TestNumbers:
    """Labels count 0, 1, 2, ... over the whole fleet."""

    LONELY = ((0, 1, 2), (0, 1, 2, 4, 5), (0, 1, 2), (1, 2, 0))

    @pytest.mark.parametrize("mode", ["refined", "paper"])
    def test_each_peer_numbers_its_own_clusters_from_what_was_agreed_on(self, mode: str) -> None:
        h = hand(self.LONELY, mode, epochs=40)
        h.end()
        found = [h.labels(peer) for peer in range(4)]
        alive = len(h.agreed.alive)
        own = [np.unique(labels[labels >= alive]).tolist() for labels in found]
        assert [len(names) for names in own] == h.agreed.alone.tolist()
        assert [name for names in own for name in names] == list(range(alive, alive + sum(map(len, own)))), (
            "peer by peer, each number once"
        )
        assert len(own[1]) >= 2, "kinds 4 and 5 are of one peer only"
        assert np.unique(np.concatenate(found)).tolist() == list(range(alive + sum(map(len, own))))

    def test_a_state_of_an_older_version_has_none_agreed_on_and_numbers_differ_all_the_same(self) -> None:
        h = hand(self.LONELY, epochs=40)
        h.end()
        before = [h.labels(peer) for peer in range(4)]
        assert h.agreed.alone.tolist() == [0, 2, 0, 0]
        h.state = replace(h.state, arrays=h.state.arrays.without("cref_alone"))
        assert decode_state(h.job, h.state.encode()) == h.state
        after = [h.labels(peer) for peer in range(4)]
        assert len(np.unique(np.concatenate(after))) == len(np.unique(np.concatenate(before)))
        closed = without_gaps(len(h.agreed.alive), [Arrays(labels=labels) for labels in after])
        assert [end["labels"].tolist() for end in closed] == [labels.tolist() for labels in before]

    def test_a_community_whose_rows_all_went_elsewhere_is_dropped_though_nobody_is_away(self) -> None:
        h = at("refine", turn=1)
        answers = h.answers()
        first = answers[0]
        assert isinstance(first, Arrays)
        held = np.flatnonzero(first["members"])
        for peer, part in answers.items():
            assert isinstance(part, Arrays)
            # Peer 0 has rows in no community any more; what only it had is needed no more.
            members = np.zeros(4, np.int64) if peer == 0 else part["members"] * ~np.isin(np.arange(4), held[:1])
            answers[peer] = part.replace(members=members)
        h.close(answers)
        assert held[0] not in h.agreed.alive

    def test_a_cluster_that_was_entered_and_not_refined_is_called_after_its_community(self) -> None:
        agreed = at("refine", "paper").agreed
        groups = agreed.association.group_of[list(agreed.clusters.of(0))]
        assert (groups >= 0).any()
        labels = np.array([0, 1, 2, 2, -1])
        entered = Note(0, labels, 0, agreed.iteration, 3, 0, labels)
        assert entered.communities(agreed).tolist() == groups.tolist()
        assert entered.members(agreed).sum() == sum([1, 1, 2][q] for q in range(3) if groups[q] >= 0)
        # A twin of a community's model keeps rows for the community; of an iteration before, all is the peer's own.
        refined = replace(entered, labels=np.array([0, *agreed.n_groups + np.arange(3)]), n_groups=agreed.n_groups)
        assert refined.communities(agreed).tolist() == [0, *groups.tolist()]
        assert Note(0, np.array([0, 1]), 2, agreed.iteration - 1, 3, 0, labels).communities(agreed).tolist() == [-1, -1]


class TestIsolated:
    """A kind that only one peer has: peer 0's last cluster, of kind 4."""

    ONE_ALONE = ((0, 1, 2, 4), (0, 1, 2), (0, 1, 2), (1, 2, 0))

    def ended(self, *, interleaved: bool = False) -> tuple[Hand, list[np.ndarray[Any, Any]]]:
        peers = planted(self.ONE_ALONE, dirt=0.1)
        if interleaved:
            # Rows in an order of their own: every other one is of the kind that is alone.
            alone, others = np.flatnonzero(peers[0].truth == 4), np.flatnonzero(peers[0].truth != 4)
            order = np.insert(others, np.arange(len(alone)), alone)
            peers[0] = replace(
                peers[0], X=peers[0].X[order], truth=peers[0].truth[order], labels=peers[0].labels[order]
            )  # fmt: skip
        h = Hand(a_job(epochs=40), [peer.local() for peer in peers])
        h.end()
        return h, [peer.truth for peer in peers]

    @pytest.mark.slow
    @pytest.mark.parametrize("interleaved", [False, True])
    def test_it_stays_a_community_of_one(self, interleaved: bool) -> None:
        h, truth = self.ended(interleaved=interleaved)
        assert len(h.agreed.association.isolated) == 1
        found = [h.labels(peer) for peer in range(4)]
        assert accuracy(np.concatenate(truth), np.concatenate(found)) == 1.0
        assert len(h.agreed.alive) == 3
        (own,) = np.unique(found[0][truth[0] == 4]).tolist()
        assert own == 3, "the first number behind the communities"
        assert h.agreed.alone.tolist() == [1, 0, 0, 0]
        assert [row["isolated"] for row in history(h)] == [1] * len(h.agreed.history)

    @pytest.mark.slow
    def test_its_models_are_told_to_nobody_and_kept(self) -> None:
        h, _ = self.ended()
        note = h.workspaces.notes[0]
        halves = [half.tobytes() for half in note["halves"][3]]
        assert all(half in h.workspaces.blobs for half in halves)
        told = {digest.tobytes() for digest in (*h.agreed.models, *h.agreed.group_models)}
        assert not told & set(halves)
        assert not note["halves"][:3].any()


# -- the end ----------------------------------------------------------------------------------------------------------


class TestStopRules:
    def test_hardly_a_row_changes(self) -> None:
        last = run_of("refined")[-1]
        assert (last.state.status, last.state.converged) == ("done", True)
        assert history(last)[-1]["changed"] < 0.01 * 288
        assert all(row["changed"] >= 0.01 * 288 for row in history(last)[:-1])
        assert last.protocol.stop_reason(run_of("refined")[-2].state.arrays, last.state.arrays) == (
            "hardly a row changes its cluster"
        )

    @pytest.mark.slow
    @pytest.mark.parametrize("most", [1, 2])
    def test_after_so_many_refinements_in_any_case(self, most: int) -> None:
        h = hand(KINDS, dirt=DIRT, settled=0.0, max_refinements=most)
        h.end()
        assert (h.state.status, h.state.converged) == ("done", False)
        assert len(h.agreed.history) == 1 + most
        assert h.state.stage_round == 4 + 2 * most

    def test_at_once_without_any_group(self) -> None:
        h = hand([[0, 1]])
        h.end()
        assert h.state.status == "done"
        assert len(h.agreed.history) == 1
        assert (h.agreed.n_groups, engine.results(h.job, h.state)) == (0, ())
        assert accuracy(planted([[0, 1]])[0].truth, h.labels(0)) == 1.0

    def test_no_peer_is_active(self) -> None:
        h = hand(KINDS, "paper", dirt=DIRT, tau=0.0)
        h.end()
        assert (h.state.status, h.state.converged) == ("done", True)
        assert len(h.agreed.history) == 1
        assert h.agreed.resting.all()

    def test_associations_at_rest(self) -> None:
        h = at("refine", "paper")
        rows = np.zeros((3, len(HISTORY)))
        found = h.agreed.association
        rows[:, HISTORY.index("groups")] = len(found.groups)
        rows[:, HISTORY.index("isolated")] = len(found.isolated)
        rows[:, HISTORY.index("active")] = 4
        before = h.changed(history=rows)
        h.state = before
        answers = {p: part.replace(stable=np.False_) for p, part in h.answers().items() if isinstance(part, Arrays)}
        h.close(answers)
        assert h.state.status == "done"
        assert h.protocol.stop_reason(before.arrays, h.state.arrays) == "associations at rest"

    def test_after_so_many_iterations_in_any_case(self) -> None:
        h = hand(KINDS, "paper", dirt=DIRT, tau=1.0, max_iterations=2)
        while h.state.status == "running":
            h.round(liar=nobody_rests)
        assert (h.state.converged, h.state.stage_round, h.agreed.iteration) == (False, 10, 2)


@cache
def resting_run() -> list[Hand]:
    """Peer 0 rests after the first iteration, the others never do."""
    h = hand(KINDS, "paper", dirt=DIRT, max_iterations=4)
    seen = []
    while h.state.status == "running":
        h.round(liar=lambda peer, part: part.replace(stable=np.bool_(peer == 0)) if "stable" in part else part)
        seen.append(copied(h))
    return seen


class TestResting:
    @staticmethod
    def exchanged() -> list[Hand]:
        return [h for h in resting_run() if h.phase == "verdicts"]

    @staticmethod
    def models_of(h: Hand, peer: int) -> list[bytes]:
        return [h.agreed.model(index) for index in h.agreed.clusters.of(peer)]

    @pytest.mark.slow
    def test_it_trains_once_more_and_then_serves_the_same_models(self) -> None:
        own = [self.models_of(h, 0) for h in self.exchanged()]
        assert len(own) == 4
        assert own[1] != own[0], "of its last partition"
        assert own[3] == own[2] == own[1]
        others = [self.models_of(h, 1) for h in self.exchanged()]
        assert len({tuple(models) for models in others}) > 1

    def test_its_partition_stays(self) -> None:
        exchanged = self.exchanged()
        assert len({h.workspaces.notes[0]["labels"].tobytes() for h in exchanged[1:]}) == 1
        last = resting_run()[-1]
        assert bool(last.agreed.resting[0])
        assert last.workspaces.notes[0]["labels"].tolist() == exchanged[1].workspaces.notes[0]["labels"].tolist()

    def test_its_models_are_there_for_all(self) -> None:
        for h in self.exchanged():
            assert set(self.models_of(h, 0)) <= set(h.workspaces.blobs)

    def test_it_goes_on_judging(self) -> None:
        assert all(h.agreed.told[0] for h in resting_run() if h.phase == "graph")


class TestAway:
    @pytest.mark.slow
    def test_who_missed_the_models_of_an_iteration_is_left_out_of_it_and_comes_in_at_the_next(self) -> None:
        h = hand(KINDS, "paper", dirt=DIRT, max_iterations=3)
        h.until("refine").round(liar=nobody_rests)
        assert h.phase == "models"
        before = int(h.workspaces.notes[3]["n_groups"])
        h.round([0, 1, 2])
        assert len(h.agreed.clusters.counts) == 3
        for phase in ("verdicts", "graph", "train", "refine"):
            assert h.phase == phase
            h.round(liar=nobody_rests)  # and back again
            assert h.state.log[-1].abstained == (
                {3: "has no clusters in this iteration"} if phase == "verdicts" else {}
            )
        assert before > 0, "its labels were of communities whose numbers mean nothing any more"
        assert h.phase == "models"
        h.round()
        assert len(h.agreed.clusters.counts) == 4

    @pytest.mark.slow
    def test_its_communities_of_an_earlier_iteration_are_none_of_the_last(self) -> None:
        h = hand(KINDS, "paper", dirt=DIRT, max_iterations=2)
        h.until("refine").round(liar=nobody_rests)
        note = h.workspaces.notes[3]
        assert int(note["n_groups"]) > 0
        while h.state.status == "running":
            h.round([0, 1, 2])
        assert h.workspaces.notes[3] is note
        mine, others = h.labels(3), np.concatenate([h.labels(peer) for peer in range(3)])
        assert not set(np.unique(mine)) & set(np.unique(others))
        assert accuracy(note["labels"], mine) == 1.0, "the same partition under numbers of its own"

    @pytest.mark.parametrize("mode", ["paper", "refined"])
    @pytest.mark.parametrize("wiped", [False, True])
    def test_who_missed_the_last_refinement_partitions_its_rows_at_the_end(self, mode: str, wiped: bool) -> None:
        h = hand(KINDS, mode, dirt=DIRT, **({"max_iterations": 1} if mode == "paper" else {"max_refinements": 1}))
        h.until("refine")
        if mode == "refined":
            h.until("refine", again=True)
        if wiped:
            h.workspaces.notes.pop(3)
        while h.state.status == "running":
            h.round([0, 1, 2])
        truth = [peer.truth for peer in planted(KINDS, dirt=DIRT)]
        assert accuracy(truth[3], h.labels(3)) > 0.95
        assert (h.labels(3) < len(h.agreed.alive)).all(), "communities, which mean the same at all peers"
        if mode == "refined":
            everybody = np.concatenate([h.labels(peer) for peer in range(4)])
            assert accuracy(np.concatenate(truth), everybody) > 0.95

    def test_a_peer_with_an_empty_disk_gets_its_labels_from_the_groups(self) -> None:
        h = at("train")
        del h.workspaces.notes[2]
        h.end()
        assert h.state.status == "done"
        assert accuracy(planted(KINDS, dirt=DIRT)[2].truth, h.labels(2)) > 0.95


class TestParameters:
    @pytest.mark.parametrize(
        ("mode", "name"),
        [("refined", name) for name in ("alpha", "theta", "tau", "normalisation", "max_iterations")]
        + [("paper", name) for name in ("max_refinements", "settled")],
    )
    def test_those_of_the_other_mode_are_refused(self, mode: str, name: str) -> None:
        value: Any = "pair" if name == "normalisation" else 1
        with pytest.raises(UsageError, match=f"{name} belongs to mode = "):
            FedCRefProtocol(mode=mode, **{name: value})

    @pytest.mark.parametrize(
        "wrong",
        [
            {"mode": "plus"}, {"initial": "random"}, {"n_local_clusters": 0}, {"n_local_clusters": 257}, {"epochs": 0},
            {"batch": 0}, {"rounds": 0}, {"local_epochs": 0}, {"min_rows": 0}, {"learning_rate": 0.0},
            {"federated_rate": -1.0}, {"encoding": "float64"}, {"precision": "float16"}, {"hidden": []}, {"output": "tanh"},
            {"most_local_clusters": 1}, {"max_refinements": 0}, {"settled": -0.1},
            {"mode": "paper", "alpha": 0.0}, {"mode": "paper", "alpha": 101.0}, {"mode": "paper", "theta": -0.1},
            {"mode": "paper", "tau": float("nan")}, {"mode": "paper", "normalisation": "both"},
            {"mode": "paper", "max_iterations": 0},
        ],
        ids=str,
    )  # fmt: skip
    def test_out_of_range(self, wrong: dict[str, Any]) -> None:
        with pytest.raises(UsageError, match="fedcref: ") as caught:
            FedCRefProtocol(**wrong)
        assert "\n" not in str(caught.value)


class TestNews:
    def test_every_round_tells_its_phase_in_plain_values(self) -> None:
        for mode in ("refined", "paper"):
            run = run_of(mode)
            told = [engine.news(h.job, h.state, after.state) for h, after in self.pairs(run)]
            phases = [news["phase"] for news in told if news]
            assert phases[:3] == ["models", "verdicts", "graph"]
            assert "refine" in phases
            json.dumps(told)
            (graph,) = [news for news in told if news and news["phase"] == "graph"][:1]
            assert len(graph["clusters"]) == 4
            assert sum(map(len, graph["groups"])) + len(graph["isolated"]) == 12

    @staticmethod
    def pairs(run: list[Hand]) -> Iterator[tuple[Hand, Hand]]:
        return pairwise(run)
