"""``p2pclust topology``: list kinds of overlays, draw and measure one, compare several."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

from rich.table import Table

from p2pclust.cli.show.options import AsJson, argument, flag, group, key_values, option
from p2pclust.cli.show.output import note, put_json, stderr, stdout, table
from p2pclust.errors import UsageError
from p2pclust.lab.commands.sweep import sweep
from p2pclust.lab.data.shares import peer_names
from p2pclust.lab.pictures import canvas
from p2pclust.lab.pictures.overlay import overlay_drawing
from p2pclust.lab.topology import measure
from p2pclust.overlay import Overlay, make_overlay, make_trace, write_overlay, write_trace
from p2pclust.overlay.files import SUFFIXES
from p2pclust.overlay.kinds import KINDS, kind_of
from p2pclust.overlay.plans import write_bytes
from p2pclust.protocols.engine.random_streams import gossiping, linking

app = group("""Make overlays (which peers are linked), measure and draw them, and experiment with them.

\b
Example:
  p2pclust topology kinds
  p2pclust topology show small-world --peers 20 -o overlay.graphml
  p2pclust topology measure ring grid expander --peers 64
  p2pclust topology sweep gossip-spread
""")

_PEERS_MAX = 5000
_PICTURES = (".svg", ".png")
_TRACE = ".csv"
_GENERATED = ", ".join(kind for kind in KINDS if kind != "file")

_Peers = Annotated[int | None, option("N", "Number of peers; default 12. A file names its own.")]
_Seed = Annotated[int, option("S", "The overlay equals that of a scenario with this seed.")]


@app.command()
def kinds(as_json: AsJson = False) -> None:
    """List the kinds of overlays with their options.

    \b
    Example:
      p2pclust topology kinds
    """
    if as_json:
        listed = [
            {"name": name, "what": kind.what, "fewest_peers": kind.fewest, "options": [
                {"name": option} | asdict(item) | {"type": item.type.__name__, "otherwise": item.otherwise or None}
                for option, item in kind.options.items()
            ]}
            for name, kind in KINDS.items()
        ]  # fmt: skip
        put_json({"kinds": listed})
        return
    shown = table(("kind", "option", "default", "what"), wrap=("what",), gap=2)
    for name, kind in KINDS.items():
        shown.add_row(name, "", "", kind.what)
        for key, described in kind.options.items():
            shown.add_row("", key, described.shown_default(), described.what)
    stdout().print(shown)


@app.command(short_help="Make or read one overlay; print and write it.")
def show(
    what: Annotated[str, argument("KIND|FILE", f"{_GENERATED}; or a file.")],
    peers: _Peers = None,
    seed: _Seed = 0,
    settings: Annotated[
        list[str] | None, option("KEY=VALUE", "An option of the kind; may be repeated.", "--set")
    ] = None,
    out: Annotated[
        list[Path] | None,
        option(
            "FILE", "Write it: .svg, .png, .graphml, .edges or .adj; .csv: the trace; may be repeated.", "-o", "--out"
        ),
    ] = None,
    as_json: Annotated[bool, flag("--json", "Print peers, links, positions and measures as one JSON object.")] = False,
) -> None:
    """Make or read one overlay, print its measures, and write its picture or file.

    \b
    Example:
      p2pclust topology show small-world --peers 20 --set neighbours=6 --seed 1 -o overlay.graphml
      p2pclust topology show geometric --peers 30 -o overlay.svg
      p2pclust topology show mobility --peers 9 --set speed=0.02 -o walk.svg -o walk.csv
      p2pclust topology show overlay.graphml
    """
    for file in out or ():  # names that cannot be written are refused before the overlay is made
        if file.suffix.lower() == _TRACE and what == "mobility":
            continue
        if file.suffix.lower() not in (*_PICTURES, *SUFFIXES):
            raise UsageError(f"-o {file}: expected a name that ends with {', '.join((*_PICTURES, *SUFFIXES))}")
        if file.suffix.lower() in _PICTURES:
            canvas.require()
    chosen = key_values("--set", settings, "neighbours=4")
    overlay = _made(what, peers, seed, chosen)
    found = measure(overlay, gossiping(seed))
    for file in out or ():
        if file.suffix.lower() in _PICTURES:
            figure = canvas.figure_of(overlay_drawing(overlay))
            write_bytes(file, canvas.image_bytes(figure, file.suffix[1:].lower()))
        elif file.suffix.lower() == _TRACE:
            write_trace(make_trace(what, overlay.names, linking(seed), **chosen), file)
        else:
            write_overlay(overlay, file)
    least, most, cut = found.degree_least, found.degree_greatest, found.cut_vertices
    more = f" and {len(cut) - 8} more" if len(cut) > 8 else ""
    values = {
        "peers": f"{found.peers}", "links": f"{found.links}",
        "links of a peer": f"{least} to {most}, {found.degree_mean:.3g} on average" if least < most else f"{least}",
        "diameter, radius": f"{found.diameter}, {found.radius}", "average path": f"{found.average_path:.4g}",
        "clustering": f"{found.clustering:.4g}", "algebraic connectivity": f"{found.algebraic_connectivity:.4g}",
        "second eigenvalue": f"{found.second_eigenvalue:.4g}, gap {found.spectral_gap:.4g} (Metropolis-Hastings)",
        "edge connectivity": _number(found.edge_connectivity, "not computed"),
        "node connectivity": _number(found.node_connectivity, "not computed"),
        "cut vertices": f"{len(cut)}: {', '.join(cut[:8])}{more}" if cut else "none",
        "gossip rounds": f"{found.gossip_mean:.3g} on average, 95 % within {found.gossip_95:.3g} (to 3 neighbours each; "
                         f"log2 of the peers {found.log2_peers:.3g}, diameter {found.diameter})",
    }  # fmt: skip
    shown = Table.grid(padding=(0, 2, 0, 0))
    shown.add_column(no_wrap=True)
    for row in values.items():
        shown.add_row(*row)
    console = stderr() if as_json else stdout()
    console.print(what, soft_wrap=True)
    console.print(shown)
    for file in out or ():
        note(f"written: {file}")
    if as_json:
        put_json({
            "kind": overlay.kind, "seed": seed, "options": chosen, "peers": list(overlay.names),
            "links": [list(link) for link in overlay.links],
            "positions": overlay.positions and {name: list(at) for name, at in overlay.positions.items()},
            "measures": found.to_dict(), "files": [str(file) for file in out or ()],
        })  # fmt: skip


@app.command(name="measure", short_help="Measure several overlays, side by side.")
def measure_(
    whats: Annotated[list[str], argument("KIND|FILE...", f"Any of {_GENERATED}; and files.")],
    peers: _Peers = None,
    seed: _Seed = 0,
    settings: Annotated[
        list[str] | None, option("KEY=VALUE", "An option of all kinds that have it; may be repeated.", "--set")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Measure several overlays and print them side by side, one per line.

    \b
    Example:
      p2pclust topology measure ring grid regular expander --peers 64 --set neighbours=4
    """
    chosen = key_values("--set", settings, "neighbours=4")
    named = [what for what in whats if not _is_file(what)]
    known = dict.fromkeys(option for what in named for option in kind_of(what).options)
    for key in chosen:
        if key not in known:
            its = f"they have {', '.join(known)}" if known else "they have none"
            raise UsageError(f"--set {key}: not an option of {', '.join(named) or 'a file'}: {its}")
    overlays = []
    for what in whats:
        own = {} if _is_file(what) else {key: value for key, value in chosen.items() if key in KINDS[what].options}
        overlays.append(_made(what, None if _is_file(what) else peers, seed, own))
    found = [measure(overlay, gossiping(seed)) for overlay in overlays]
    numbers = ("peers", "links", "degree", "diameter", "path", "clustering", "alg. conn.", "gap", "edge", "node", "cut",
               "gossip", "95 %")  # fmt: skip
    shown = table(("overlay", *numbers), right=numbers, wrap=("overlay",), gap=2)
    for what, row in zip(whats, found, strict=True):
        least, most = row.degree_least, row.degree_greatest
        shown.add_row(
            what, str(row.peers), str(row.links), f"{least}-{most}" if least < most else str(least), str(row.diameter),
            f"{row.average_path:.3g}", f"{row.clustering:.3g}", f"{row.algebraic_connectivity:.3g}",
            f"{row.spectral_gap:.3g}", _number(row.edge_connectivity, "-"), _number(row.node_connectivity, "-"),
            str(len(row.cut_vertices)), f"{row.gossip_mean:.3g}", f"{row.gossip_95:.3g}",
        )  # fmt: skip
    (stderr() if as_json else stdout()).print(shown)
    if as_json:
        rows = zip(whats, found, strict=True)
        put_json({"seed": seed, "options": chosen, "overlays": [{"what": what, **row.to_dict()} for what, row in rows]})


def _is_file(what: str) -> bool:
    return Path(what).suffix != "" or what == "file"


def _made(what: str, peers: int | None, seed: int, options: Mapping[str, Any]) -> Overlay:
    if seed < 0:
        raise UsageError(f"--seed {seed}: expected 0 or more")
    if _is_file(what):
        if what == "file":
            raise UsageError("file: expected the name of a file that ends with .graphml, .edges or .adj")
        if peers is not None or options:
            given = "--peers" if peers is not None else "--set"
            raise UsageError(f"{given} is for a kind of overlay, and {what} is a file")
        return make_overlay("file", (), linking(seed), path=what)
    if peers is not None and not 1 <= peers <= _PEERS_MAX:
        raise UsageError(f"--peers {peers}: expected 1 to {_PEERS_MAX}")
    return make_overlay(what, peer_names(peers or 12), linking(seed), **options)


def _number(number: int | None, otherwise: str) -> str:
    return otherwise if number is None else str(number)


app.command("sweep", short_help="Run every cell of a grid over overlays.")(sweep)
