"""``[data]`` and ``[fleet.overlay]`` of a scenario: where the rows come from, and which peers are linked."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, PlainValidator, model_validator

from p2pclust.data.schema import Schema, read_schema
from p2pclust.errors import DataError, UsageError
from p2pclust.jobs import fields
from p2pclust.jobs.fields import TomlTable, refuse, wrong_table, wrong_value
from p2pclust.overlay.kinds import options_of

#: The schemes that each option is for, and the options that their schemes need.
_SCHEMES = {
    "beta": ("dirichlet", "distance"), "labels_per_peer": ("labels",), "rows_per_class": ("by-class",),
    "classes_per_peer": ("by-class",), "overlap": ("by-class",), "locations": ("distance",), "widths": ("vertical",),
}  # fmt: skip
_NEEDED = ("beta", "labels_per_peer", "rows_per_class")


def missing_rule(value: object) -> str | dict[str, Any]:
    from p2pclust.data.table import Choice  # noqa: PLC0415 - imports NumPy

    if isinstance(value, str | dict):
        try:
            Choice(missing_values=value)
        except DataError as error:
            raise wrong_value(str(error).partition(": ")[2]) from None
        return value
    raise wrong_value("expected 'error', 'drop', 'keep', or { fill = VALUE }")


def schema_of(value: object) -> Schema:
    if isinstance(value, Schema):
        return value
    try:
        return read_schema(Path(value)) if isinstance(value, str) else Schema.from_dict(value)
    except UsageError as error:
        raise wrong_table(str(error).split("\n")) from None


#: A schema, from its file or as a table with the same keys.
GivenSchema = Annotated[Schema, PlainValidator(schema_of, json_schema_input_type=str | dict[str, Any])]


class PartitionSpec(TomlTable):
    """``[data.partition]``: which peer holds which rows."""

    scheme: Literal[
        "iid", "dirichlet", "labels", "distance", "by-group", "by-file", "by-class", "vertical", "files"
    ] = "iid"
    #: For dirichlet and distance: with a smaller value the peers differ more.
    beta: Annotated[float, Field(gt=0)] | None = None
    #: For labels: the number of classes that every peer holds.
    labels_per_peer: Annotated[int, Field(ge=1)] | None = None
    #: For distance: the place of each peer, in raw units; by default drawn from the seed, within the range of the rows.
    locations: fields.Locations | None = None
    #: For by-class: the number of rows of each class that a peer has, the number of its classes (from, to), and the share
    #: of a class's rows that all peers with this class have in common.
    rows_per_class: Annotated[int, Field(ge=1)] | None = None
    classes_per_peer: Annotated[tuple[int, int], Field(strict=False)] | None = None
    overlap: Annotated[float, Field(ge=0, le=1)] | None = None
    #: For vertical: the number of each device's columns, in the order of the devices; by default as equal as possible.
    widths: Annotated[tuple[Annotated[int, Field(ge=1)], ...], Field(strict=False)] | None = None

    @model_validator(mode="after")
    def _options_fit_scheme(self) -> PartitionSpec:
        problems = []
        for option, schemes in _SCHEMES.items():
            given = getattr(self, option) is not None
            if given and self.scheme not in schemes:
                problems.append(f"{option} is for scheme = {' or '.join(map(repr, schemes))}, not {self.scheme!r}")
            elif not given and self.scheme in schemes and option in _NEEDED:
                problems.append(f"scheme = {self.scheme!r} needs {option}")
        refuse(problems)
        return self


class HowReadKeys(TomlTable):
    """How text files are read where their rows do not decide it; the keys of a scenario's ``[data]`` and a peer's file."""

    #: The decimal mark, and what stands between thousands; by default the numbers of all rows decide.
    decimal: Literal[".", ","] | None = None
    thousands: Literal[".", ",", " ", "'"] | None = None
    #: Cells that are missing values, beside empty ones, "NA" and the like: numbers and texts, such as -999.
    missing_codes: Annotated[tuple[str | int | float, ...], Field(strict=False)] | None = None
    #: The line with the names of the columns, from 1; lines above it are skipped. 0: no line has names.
    header: Annotated[int, Field(ge=0)] | None = None

    @model_validator(mode="after")
    def _two_marks(self) -> HowReadKeys:
        if self.decimal is not None and self.decimal == self.thousands:
            refuse([f"decimal and thousands are both {self.decimal!r}: one mark cannot be both"])
        return self


class DataSpec(HowReadKeys):
    """``[data]``: the source of the rows, and how the federated protocol scales them."""

    #: A registered data set, a file, or a folder of files, which is split among the peers.
    source: fields.Text | None = None
    #: One file per device, in the order of the devices; files are not split.
    files: Annotated[tuple[str, ...], Field(strict=False), AfterValidator(fields.not_empty)] | None = None
    #: For CSV, ARFF and Parquet files: the columns of y and group, and of the features if these are not all other columns.
    label_column: fields.Column | None = None
    group_column: fields.Column | None = None
    columns: fields.Columns | None = None
    #: For the same files: the column with the rows' ids for the table of labels; it is not a feature.
    id_column: fields.Column | None = None
    #: For files: the features and their kinds, from a file such as schema.toml, or as a table with the same keys.
    schema_: Annotated[GivenSchema | None, Field(alias="schema")] = None
    #: For files: refuse missing values, leave their rows out, keep them (jobs of llf-cm and llf-fcm, descriptions), or put
    #: a declared value in their place.
    missing_values: Annotated[str | dict[str, Any], PlainValidator(missing_rule)] = "error"
    #: For generated data sets: their options, such as noise.
    options: fields.Options | None = None
    #: Working coordinates; by default none, and over columns minmax.
    scaling: Literal["none", "minmax", "zscore"] | None = None
    #: The declared range of each feature in raw units, instead of a round that measures it. One pair is for all features.
    bounds: fields.Bounds | None = None
    partition: PartitionSpec | None = None

    @property
    def scheme(self) -> str:
        """The partition's scheme; by default files are not split, and a source is dealt out at random."""
        if self.partition is not None:
            return self.partition.scheme
        return "iid" if self.files is None else "files"

    @model_validator(mode="after")
    def _one_source(self) -> DataSpec:
        if (self.source is None) == (self.files is None):
            refuse(["expected either source, or files with one file per device"])
        if self.files is not None and self.scheme != "files":
            refuse([f"files are not split: partition.scheme = {self.scheme!r} needs source"])
        if self.schema_ is not None and self.columns is not None:
            refuse(["columns and schema: a schema names the features: leave columns out"])
        if self.files is not None and self.options is not None:
            refuse(["options are for generated data sets: they need source"])
        if self.source is not None and self.scheme == "files":
            refuse(["partition.scheme = 'files' needs files, one per device, instead of source"])
        return self


class OverlaySpec(TomlTable):
    """``[fleet.overlay]``: which peers are linked; the options depend on the kind, see :data:`p2pclust.overlay.KINDS`."""

    kind: str = "full"
    neighbours: int | float | None = None
    rewire: float | None = None
    radius: float | None = None
    children: int | None = None
    torus: bool | None = None
    #: The name of a device.
    center: str | None = None
    gateways: int | None = None
    #: The path of a GraphML, edge or adjacency file, relative to the scenario.
    path: str | None = None
    #: Of moving peers.
    speed: float | None = None
    seconds: int | None = None
    #: A file of links that appear and vanish while jobs run, relative to the scenario; see p2pclust.overlay.traces.
    trace: fields.Text | None = None

    @property
    def options(self) -> dict[str, Any]:
        given = self.model_dump(exclude={"kind", "trace"}).items()
        return {name: value for name, value in given if value is not None}

    @model_validator(mode="after")
    def _fits_its_kind(self) -> OverlaySpec:
        try:
            options_of(self.kind, self.options)
        except UsageError as error:
            refuse([str(error)])
        if self.trace is not None and self.kind == "mobility":
            refuse(["kind 'mobility' draws its own trace: leave trace out, or choose another kind"])
        return self
