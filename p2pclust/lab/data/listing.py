"""All data sets in one list: built in, generated, in the cache, or to be fetched."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from p2pclust.data.catalogue import ENTRIES, Entry, canonical
from p2pclust.data.generate import GENERATORS
from p2pclust.data.readers import shape_of
from p2pclust.data.registry import cached_files
from p2pclust.tools.units import size


@dataclass(frozen=True)
class Item:
    """One line of the list; sizes are 0 where they are not known, or depend on options.

    `here` is "built in", "generated", "yes", "no" or "by hand"; `size` is that of the cached file, or of the download.
    """

    name: str
    title: str
    rows: int
    columns: int
    classes: int
    groups: int
    here: str
    size: str
    home: str = ""
    licence: str = ""
    citation: str = ""


# What scikit-learn ships; written down, because loading all of it for a list would take a second.
_BUILT_IN = (
    Item("breast_cancer", "Breast cancer Wisconsin (diagnostic)", 569, 30, 2, 0, "built in", ""),
    Item("digits", "Handwritten digits, 8x8 grey", 1797, 64, 10, 0, "built in", ""),
    Item("iris", "Iris plants", 150, 4, 3, 0, "built in", ""),
    Item("wine", "Wine recognition", 178, 13, 3, 0, "built in", ""),
)

_GENERATED = {
    "absent_clusters": "FFCM case 3: each of 3 peers lacks two of four",
    "admissions": "Admissions to hospitals: numbers and categories",
    "g2": "FFCM case 4: like the sets of the G2 family",
    "gaussian_grid": "FKM: 16 Gaussians seen by five peers",
    "gaussians": "Round clusters in the unit cube",
    "hidden_clusters": "FFCM case 2: a cluster only the union shows",
    "moving_clusters": "A stream: a cluster leaps, another one grows",
    "smart_meters": "Day curves of a street's households",
    "unequal_clusters": "FFCM case 1: one of 3 peers lacks a cluster",
    "uneven_grid": "FKM Fig. 4: peers with 16, 1, 3, 10, 7 clusters",
}


def listing() -> list[Item]:
    """Return every data set that can be named now or fetched, the sets of the G2 family that are not here as one.

    >>> [item.name for item in listing() if item.here == "built in"]
    ['breast_cancer', 'digits', 'iris', 'wine']
    """
    files = {canonical(file.stem): file for file in cached_files()}
    found = list(_BUILT_IN)
    for name in sorted(GENERATORS):
        data = GENERATORS[name]()
        classes, groups = (0 if kinds is None else len(set(kinds.tolist())) for kinds in (data.y, data.group))
        found.append(Item(name, _GENERATED[name], data.n_rows, data.n_features, classes, groups, "generated", ""))
    every = [entry for entry in ENTRIES.values() if entry.archive != "g2" or entry.name in files]  # G2 last
    found += [_item(entry, files.get(entry.name)) for entry in every]
    title = "G2: D = 2, 4 ... 1024, SD = 10, 20 ... 100"
    found.append(_item(replace(ENTRIES["g2_2_10"], name="g2_D_SD", title=title, columns=0), None))
    for file in (file for name, file in files.items() if name not in ENTRIES):
        rows, columns = shape if len(shape := shape_of(file)) == 2 else (0, 0)
        found.append(Item(file.stem, "a file of yours", rows, columns, 0, 0, "yes", size(file.stat().st_size)))
    return found


def _item(entry: Entry, file: Path | None) -> Item:
    here = "yes" if file is not None else "no" if entry.files else "by hand"
    shown = size(file.stat().st_size) if file is not None else f"{entry.megabytes:g} MB" if entry.megabytes else ""
    return Item(
        entry.name, entry.title, entry.rows, entry.columns, entry.classes, entry.groups, here, shown, entry.home,
        entry.licence, entry.citation,
    )  # fmt: skip
