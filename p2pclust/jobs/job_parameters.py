"""The protocols' own parameters, as a scenario's ``[[jobs]]`` may give them; the protocol's class says which it has."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from p2pclust.jobs.fields import LocalClusters, PrivacyGate, TomlTable


class OwnParameters(TomlTable):
    """The protocols' own parameters; by default those of the protocol."""

    #: Of a model made for a plug-in: its parameters.
    of_plugin: ClassVar[tuple[str, ...] | None] = None

    fuzzifier: Annotated[float, Field(gt=1)] | None = None
    privacy_gate: PrivacyGate | None = None
    suppress_singletons: bool | None = None
    accelerate: bool | None = None
    #: Against a peer that lies: the most that a peer weighs, in median peers, and how centers follow from peers' means.
    max_weight: Annotated[float, Field(ge=1)] | None = None
    robust: Literal["trim", "median"] | None = None
    averaging: Literal["weighted", "kmeans"] | None = None
    support: Literal["u^m", "u"] | None = None
    local_iterations: Annotated[int, Field(ge=1, le=1000)] | None = None
    learning_rate: Annotated[float, Field(gt=0)] | None = None
    min_cluster_size: Annotated[int, Field(ge=1)] | None = None
    n_init: Annotated[int, Field(ge=1)] | None = None
    n_local_clusters: LocalClusters | None = None
    transfer: Literal["float64", "float32"] | None = None
    n_batches: Annotated[int, Field(ge=1, le=10**6)] | None = None
    forgetting: Annotated[float, Field(ge=0, le=1)] | None = None
    #: Of FedCRef. ``n_local_clusters = "classes"``: the number of labels of a device's rows; for experiments.
    mode: Literal["refined", "paper"] | None = None
    initial: Literal["mixture", "kmeans", "dec", "given"] | None = None
    #: For initial = "given": the share of labels that is moved to a wrong cluster of the device.
    dirtiness: Annotated[float, Field(ge=0, le=1)] | None = None
    alpha: Annotated[float, Field(gt=0, le=100)] | None = None
    theta: Annotated[float, Field(ge=0)] | None = None
    tau: Annotated[float, Field(ge=0)] | None = None
    normalisation: str | None = None
    max_iterations: Annotated[int, Field(ge=1)] | None = None
    max_refinements: Annotated[int, Field(ge=1)] | None = None
    settled: Annotated[float, Field(ge=0)] | None = None
    hidden: Annotated[tuple[Annotated[int, Field(ge=1)], ...], Field(strict=False)] | None = None
    output: Literal["sigmoid", "linear", "relu"] | None = None
    epochs: Annotated[int, Field(ge=1)] | None = None
    batch: Annotated[int, Field(ge=1)] | None = None
    rounds: Annotated[int, Field(ge=1)] | None = None
    local_epochs: Annotated[int, Field(ge=1)] | None = None
    federated_rate: Annotated[float, Field(gt=0)] | None = None
    encoding: Literal["float32", "float16", "int8"] | None = None
    precision: Literal["float32", "bfloat16"] | None = None
    min_rows: Annotated[int, Field(ge=1)] | None = None
    most_local_clusters: Annotated[int, Field(ge=2)] | None = None
    device: str | None = None
    #: Of UIFCA, beside hidden, batch, learning_rate, min_cluster_size and device.
    cluster_rounds: Annotated[int, Field(ge=1)] | None = None
    communication_rounds: Annotated[int, Field(ge=1)] | None = None
    local_steps: Annotated[int, Field(ge=1)] | None = None
    couplings: Annotated[int, Field(ge=1)] | None = None
    image_width: Annotated[int, Field(ge=1)] | None = None
    decay: Annotated[float, Field(ge=0)] | None = None
    start: Literal["random", "peers"] | None = None

    def parameters(self) -> dict[str, Any]:
        """Return the protocol's own parameters that the file sets, by name."""
        names = dict.fromkeys((*OwnParameters.model_fields, *(self.of_plugin or ())))
        own = {name: getattr(self, name) for name in names if name != "dirtiness"}
        if own["n_local_clusters"] == "classes":
            own["n_local_clusters"] = None  # each device has its own number
        return {
            name: list(value) if isinstance(value, tuple) else value for name, value in own.items() if value is not None
        }
