from __future__ import annotations

from pathlib import Path

import networkx as nx
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from p2pclust.errors import UsageError
from p2pclust.overlay import Overlay
from p2pclust.overlay.files import SUFFIXES, read_overlay, write_overlay

from .test_overlay import overlays

HEAD = '<graphml xmlns="http://graphml.graphdrawing.org/xmlns">\n'
KEYS = '<key id="k0" for="node" attr.name="x" attr.type="double"/>\n<key id="k1" for="node" attr.name="y"/>\n'
GRAPH = '<graph edgedefault="undirected">\n'
TAIL = "</graph></graphml>\n"
AB = '<node id="a"/>\n<node id="b"/>\n'


@pytest.mark.slow
@given(overlays(), st.sampled_from(SUFFIXES))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_what_is_written_is_read_again(tmp_path: Path, overlay: Overlay, suffix: str) -> None:
    file = tmp_path / f"overlay{suffix}"
    write_overlay(overlay, file)
    found = read_overlay(file)
    assert (found.names, found.links, found.kind) == (overlay.names, overlay.links, "file")


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_networkx_reads_what_is_written(tmp_path: Path, suffix: str) -> None:
    overlay = Overlay(("c", "a", "b", "é"), [("a", "b"), ("c", "a"), ("é", "a")])
    write_overlay(overlay, tmp_path / f"o{suffix}")
    read = {".graphml": nx.read_graphml, ".edges": nx.read_edgelist, ".adj": nx.read_adjlist}[suffix]
    graph = read(tmp_path / f"o{suffix}")
    assert sorted(graph.nodes) == ["a", "b", "c", "é"]
    assert sorted(tuple(sorted(edge)) for edge in graph.edges) == list(overlay.links)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_what_networkx_writes_is_read(tmp_path: Path, suffix: str) -> None:
    graph = nx.connected_watts_strogatz_graph(12, 4, 0.3, seed=1)
    write = {".graphml": nx.write_graphml, ".edges": nx.write_edgelist, ".adj": nx.write_adjlist}[suffix]
    write(graph, tmp_path / f"g{suffix}")
    overlay = read_overlay(tmp_path / f"g{suffix}", [str(node) for node in range(12)])
    assert overlay.names == tuple(str(node) for node in range(12))
    assert overlay.links == tuple(sorted(tuple(sorted((str(a), str(b)))) for a, b in graph.edges))


def test_positions_are_kept_in_graphml(tmp_path: Path) -> None:
    places = {
        name: (float(x), float(y)) for name, (x, y) in zip("abc", np.random.default_rng(0).random((3, 2)), strict=True)
    }
    overlay = Overlay(("c", "a", "b"), [("a", "b"), ("b", "c")], places)
    write_overlay(overlay, tmp_path / "new" / "o.graphml")  # the folder is made
    assert read_overlay(tmp_path / "new" / "o.graphml").positions == places


def test_the_order_is_the_fleets_if_it_is_given(tmp_path: Path) -> None:
    (tmp_path / "o.edges").write_text("b a\n\nb c  # a comment\n")
    assert read_overlay(tmp_path / "o.edges").names == ("b", "a", "c")
    assert read_overlay(tmp_path / "o.edges", ["a", "b", "c"]).names == ("a", "b", "c")


def test_other_attributes_and_a_missing_namespace_are_no_harm(tmp_path: Path) -> None:
    (tmp_path / "o.GraphML").write_text(
        '<graphml><key id="w" for="edge" attr.name="x"/><key id="c" for="node" attr.name="colour"/>' + GRAPH
        + '<node id="a"><data key="c">red</data></node><node id="b"/>'
        '<edge source="a" target="b"><data key="w">1</data></edge>' + TAIL
    )  # fmt: skip
    overlay = read_overlay(tmp_path / "o.GraphML")
    assert (overlay.links, overlay.positions) == ((("a", "b"),), None)


REFUSED = {
    "an unknown peer in edges": (
        "o.edges",
        "a b\n# hm\nb x\n",
        "ab",
        "line 3: unknown peer 'x': expected one of 'a', 'b'",
    ),
    "an undeclared peer": ("o.edges", "a\nb\na c\n", None, "line 3: unknown peer 'c': expected one of 'a', 'b'"),
    "a missing peer": ("o.edges", "a b\n", "abc", "peer 'c' of the fleet missing: add it with its links"),
    "missing peers": ("o.edges", "a b\n", "dabc", "peer 'd' and 1 more of the fleet missing: add it with its links"),
    "a self-loop in edges": (
        "o.edges",
        "a b\nb b\n",
        None,
        "line 2: peer 'b' is linked to itself: leave that link out",
    ),
    "three names": ("o.edges", "a b\na b c\n", None, "line 2: expected two names, found 3"),
    "a peer twice in edges": (
        "o.edges",
        "a\nb\na\na b\n",
        None,
        "line 3: peer 'a' is there already, in line 1: leave one of them out",
    ),
    "a peer twice in adjacency": (
        "o.adj",
        "a b\nb\na\n",
        None,
        "line 3: peer 'a' is there already, in line 1: leave one of them out",
    ),
    "a neighbour without a line": ("o.adj", "a b\n", None, "line 1: unknown peer 'b': expected one of 'a'"),
    "a peer of the fleet without a line": (
        "o.adj",
        "a b\n",
        "ab",
        "line 1: peer 'b' is named as a neighbour only: give it a line of its own",
    ),
    "a self-loop in adjacency": (
        "o.adj",
        "a b a\nb\n",
        None,
        "line 1: peer 'a' is linked to itself: leave that link out",
    ),
    "nothing": ("o.adj", "# nobody\n", None, "no peers: expected at least one"),
    "no text": ("o.edges", b"a b\n\xff\xfe\n", None, "line 2: not UTF-8 text: save it as such"),
    "another suffix": ("o.csv", "a b\n", None, "expected a name that ends with .graphml, .edges, .adj"),
    "no file": ("o.edges", None, None, "no such file"),
    "an unknown peer": (
        "o.graphml",
        HEAD + GRAPH + AB + '<edge source="a" target="x"/>' + TAIL,
        None,
        "line 5: unknown peer 'x': expected one of 'a', 'b'",
    ),
    "a stranger to the fleet": (
        "o.graphml",
        HEAD + GRAPH + AB + TAIL,
        "ac",
        "line 4: unknown peer 'b': expected one of 'a', 'c'",
    ),
    "a self-loop": (
        "o.graphml",
        HEAD + GRAPH + AB + '<edge source="a" target="a"/>' + TAIL,
        None,
        "line 5: peer 'a' is linked to itself: leave that link out",
    ),
    "a node twice": (
        "o.graphml",
        HEAD + GRAPH + AB + '<node id="a"/>' + TAIL,
        None,
        "line 5: peer 'a' is there already, in line 3: leave one of them out",
    ),
    "a directed graph": (
        "o.graphml",
        HEAD + GRAPH.replace("un", "") + AB + TAIL,
        None,
        "line 2: a directed graph: links of an overlay go both ways: expected edgedefault='undirected'",
    ),
    "a directed link": (
        "o.graphml",
        HEAD + GRAPH + AB + '<edge source="a" target="b" directed="true"/>' + TAIL,
        None,
        "line 5: a directed link: links of an overlay go both ways: expected directed='false'",
    ),
    "two graphs": (
        "o.graphml",
        HEAD + GRAPH + "</graph>" + GRAPH + TAIL,
        None,
        "line 3: a second <graph>: expected one",
    ),
    "no graph": ("o.graphml", HEAD + "</graphml>", None, "line 1: no <graph> in it: expected GraphML"),
    "another document": ("o.graphml", "<html/>", None, "line 1: <html>: expected <graphml>"),
    "no id": ("o.graphml", HEAD + GRAPH + "<node/>" + TAIL, None, "line 3: <node> without id"),
    "no target": ("o.graphml", HEAD + GRAPH + '<edge source="a"/>' + TAIL, None, "line 3: <edge> without target"),
    "a hyperedge": (
        "o.graphml",
        HEAD + GRAPH + "<hyperedge/>" + TAIL,
        None,
        "line 3: a <hyperedge>: a link has two ends: expected <edge>",
    ),
    "no XML": ("o.graphml", HEAD + GRAPH + "<node id='a'>", None, "line 3: not XML (no element found)"),
    "not even a tag": ("o.graphml", "a b\n", None, "line 1: not XML (syntax error)"),
    "empty": ("o.graphml", "", None, "line 1: not XML (no element found)"),
    "a word for a number": (
        "o.graphml",
        HEAD + KEYS + GRAPH + '<node id="a"><data key="k0">left</data></node>' + TAIL,
        None,
        "line 5: peer 'a': x = 'left': expected a number",
    ),
    "no number": (
        "o.graphml",
        HEAD + KEYS + GRAPH + '<node id="a"><data key="k1">nan</data></node>' + TAIL,
        None,
        "line 5: peer 'a': y = 'nan': expected a number",
    ),
    "some positions": (
        "o.graphml",
        HEAD
        + KEYS
        + GRAPH
        + '<node id="a"><data key="k0">1</data><data key="k1">2</data></node>\n<node id="b"/>'
        + TAIL,
        None,
        "line 6: peer 'b' has no x and y, others have: give them to all peers, or to none",
    ),
    "a name of two lines": (
        "o.graphml",
        HEAD + GRAPH + '<node id="a&#10;b"/><node id="a&#10;b"/>' + TAIL,
        None,
        "line 3: peer 'a\\nb' is there already, in line 3: leave one of them out",
    ),
}


@pytest.mark.parametrize(("name", "text", "names", "line"), REFUSED.values(), ids=REFUSED)
def test_refused(tmp_path: Path, name: str, text: str | bytes | None, names: str | None, line: str) -> None:
    file = tmp_path / name
    if text is not None:
        file.write_bytes(text.encode() if isinstance(text, str) else text)
    with pytest.raises(UsageError) as error:
        read_overlay(file, None if names is None else list(names))
    assert str(error.value) == f"{file}: {line}"


@pytest.mark.parametrize(
    "doctype",
    [
        # A billion laughs, if anybody expanded them.
        "<!DOCTYPE l [\n<!ENTITY a0 'ha'>\n"
        + "".join(f"<!ENTITY a{n + 1} '{10 * f'&a{n};'}'>\n" for n in range(9))
        + "]>\n",
        "<!DOCTYPE l [<!ENTITY f SYSTEM 'file:///etc/hostname'>]>\n",
        "<!DOCTYPE l SYSTEM 'http://example.org/l.dtd'>\n",
    ],
    ids=["laughs", "a file", "the net"],
)
def test_entities_are_never_expanded(tmp_path: Path, doctype: str) -> None:
    file = tmp_path / "laughs.graphml"
    use = "&a9;" if "a9" in doctype else "&f;" if "ENTITY f" in doctype else "a"
    file.write_text('<?xml version="1.0"?>\n' + doctype + HEAD + GRAPH + f'<node id="{use}"/>' + TAIL)
    with pytest.raises(UsageError) as error:
        read_overlay(file)
    assert str(error.value) == f"{file}: line 2: a DOCTYPE: leave it out, no overlay needs one"


def test_a_deep_document_is_no_harm(tmp_path: Path) -> None:
    file = tmp_path / "deep.graphml"
    file.write_text(HEAD + GRAPH + '<node id="a">' + 100_000 * "<d>" + 100_000 * "</d>" + "</node>" + TAIL)
    assert read_overlay(file).names == ("a",)


@pytest.mark.parametrize(
    ("limit", "text", "line"),
    [
        ("_PEERS_MAX", "a\nb\nc\nd\n", "line 4: more than 3 peers"),
        ("_PEERS_MAX", "a b\nc b\nc d\n", "line 3: more than 3 peers"),
        ("_LINKS_MAX", "a b\nb c\na c\nb a\n", "line 4: more than 3 links"),
    ],
)
def test_more_than_any_fleet_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, text: str, line: str
) -> None:
    monkeypatch.setattr(f"p2pclust.overlay.files.{limit}", 3)
    (tmp_path / "o.edges").write_text(text)
    with pytest.raises(UsageError) as error:
        read_overlay(tmp_path / "o.edges")
    assert str(error.value) == f"{tmp_path / 'o.edges'}: {line}"


def test_a_number_without_end_is_no_harm(tmp_path: Path) -> None:
    file = tmp_path / "long.graphml"
    file.write_text(HEAD + KEYS + GRAPH + '<node id="a"><data key="k0">' + 2_000_000 * "1\n" + "</data></node>" + TAIL)
    with pytest.raises(UsageError, match=r"long\.graphml: line 35: peer 'a': x = '1\\n1.*\.\.\.: expected a number$"):
        read_overlay(file)


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "large.edges").open("wb") as file:
        file.truncate(64 * 2**20 + 1)  # takes no room on the disk
    with pytest.raises(UsageError, match=r"large\.edges: larger than 64 MB: expected an overlay"):
        read_overlay(tmp_path / "large.edges")


@pytest.mark.parametrize("name", ["two words", "a#b", "{a", "a\u0000", "a\u200b"])
def test_a_name_that_could_not_be_read_again_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError) as error:
        write_overlay(Overlay((name,), ()), tmp_path / "o.edges")
    assert (
        str(error.value)
        == f"{tmp_path / 'o.edges'}: peer {name!r}: no name for a file: expected one word, without # , ;"
    )
    assert list(tmp_path.iterdir()) == []


def test_where_nothing_can_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    one = Overlay(("a",), ())
    with pytest.raises(UsageError, match=r"o\.edges: cannot be written \("):
        write_overlay(one, tmp_path / "file" / "o.edges")
    with pytest.raises(UsageError, match=r"o\.svg: expected a name that ends with \.graphml, \.edges, \.adj"):
        write_overlay(one, tmp_path / "o.svg")
    (tmp_path / "d.edges").mkdir()
    with pytest.raises(UsageError, match=r"cannot be read \(Is a directory\)"):
        read_overlay(tmp_path / "d.edges")


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        pytest.param(
            "source,target\na,b\n", 1, "expected names with spaces between them, found 'source,target'", id="csv"
        ),
        pytest.param(
            "# links\na b\nb, c\n", 3, "expected names with spaces between them, found 'b, c'", id="comma-space"
        ),
        pytest.param("a;b\nb;c\n", 1, "expected names with spaces between them, found 'a;b'", id="semicolon"),
        pytest.param("source target\na b\nb c\n", 1, "source target looks like a header: leave it out", id="header"),
        pytest.param("From\tTo\na\tb\n", 1, "From To looks like a header: leave it out", id="header-with-tab"),
    ],
)
def test_lists_of_other_programs_are_refused_with_the_line(tmp_path: Path, text: str, line: int, says: str) -> None:
    file = tmp_path / "net.edges"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(UsageError) as refused:
        read_overlay(file)
    assert says in str(refused.value)
    assert f"line {line}" in str(refused.value)


@pytest.mark.parametrize("text", ["source target\n", "source target\ntarget c\n", "a b {'weight': 1, 'x': 2}\n"])
def test_peers_may_be_called_like_columns(tmp_path: Path, text: str) -> None:
    file = tmp_path / "net.edges"
    file.write_text(text, encoding="utf-8")
    assert len(read_overlay(file).names) >= 2


def test_an_adjacency_list_with_commas_is_refused(tmp_path: Path) -> None:
    (tmp_path / "net.adj").write_text("a,b,c\nb,a\nc,a\n", encoding="utf-8")
    with pytest.raises(UsageError, match=r"line 1: .*expected names with spaces between them, found 'a,b,c'"):
        read_overlay(tmp_path / "net.adj")
