"""``p2pclust result`` and ``assign``: show the result of a fleet of running peers, and label rows with it."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from p2pclust.cli.fleet import operate
from p2pclust.cli.show.options import (
    Decimal,
    Header,
    MissingCodes,
    SchemaFile,
    Thousands,
    column,
    columns_of,
    flag,
    given_schema,
    how_read,
    option,
)
from p2pclust.cli.show.output import note, put, put_json, stdout
from p2pclust.errors import FleetError, UsageError
from p2pclust.tools.files import replacing
from p2pclust.tools.spelling import first_few

if TYPE_CHECKING:
    from p2pclust.hosts.labels import Labelled
    from p2pclust.hosts.submission import FinishedJob
    from p2pclust.protocols.measuring.description import Description

_FEATURES_SHOWN = 8
_SUFFIXES = (".csv", ".json", ".npz")


def result(
    job: operate.JobArgument,
    out: Annotated[Path | None, option("FILE", "Write the centers here: .csv, .json or .npz.", "-o", "--out")] = None,
    check: Annotated[
        bool, flag("--check", "Check who has signed the end of the job, instead of showing its result.")
    ] = False,
    proof: Annotated[
        Path | None, option("FILE", "Write the signatures of the end here, for --check.", "--proof")
    ] = None,
    against: Annotated[
        Path | None, option("FILE", "With --check: compare with another end, from --proof.", "--against")
    ] = None,
    peer: operate.PeerOption = None,
    bundle: operate.BundleOption = None,
    roster: operate.RosterOption = None,
    inventory: operate.InventoryOption = None,
    as_json: operate.JsonOption = False,
) -> None:
    """Show the result of a job: the centers in the data's own units, the contributors, the terms, suppressed values.

    For a series this is the newest turn that has ended; SERIES/3 is the third. The file has the same centers with all
    digits; a CSV file has the form of centers.csv of `p2pclust run`.

    With --check, JOB may also be a file that --proof wrote. The fleet's key is that of your bundle (--bundle). A device that
    has signed two statements of one job that contradict each other is named, and the exit code is 3.

    \b
    Examples:
      p2pclust result job-3f2a
      p2pclust result job-3f2a -o centers.csv
      p2pclust result series-3f2a/3
      p2pclust result job-3f2a --proof end.proof
      p2pclust result job-3f2a --check --against end.proof --bundle me.bundle
    """
    if against is not None and not check:
        raise UsageError("--against FILE is for --check: write --check, too")
    if check or proof is not None:
        if out is not None:
            raise UsageError("-o FILE writes the centers: leave out --check and --proof")
        _check_end(job, proof, against, (peer, bundle, roster, inventory), check=check, as_json=as_json)
        return
    from p2pclust.cli.show.description import show_description  # noqa: PLC0415
    from p2pclust.hosts.submission import result_of  # noqa: PLC0415

    if out is not None and out.suffix not in _SUFFIXES:
        raise UsageError(f"-o {out}: expected a name that ends in {', '.join(_SUFFIXES)}")
    with operate.client_of(peer, bundle, roster, inventory) as client:
        found = result_of(client, job)
    told = _told(found)
    described = _described(found)
    if out is not None:
        _write(out, told, described)
    if as_json:
        put_json(told)
        return
    if out is None:
        for line in _lines(told):
            put(line, style="yellow" if line.startswith(("doubt: ", "suspect: ")) else None)
        if told["centers"] is not None:
            rows = ([str(number), *(f"{value:.6g}" for value in row)] for number, row in enumerate(told["centers"]))
            stdout().print(operate.table_of(["label", *told["features"]], rows))
        elif described is not None:
            show_description(described)
        return
    for doubt in told["doubts"]:
        note(f"doubt: {doubt}", style="yellow")
    if told["centers"] is None:
        what = f"{', '.join(told['declared'])} of {told['name']}, as {told['protocol']} declares"
        note(f"{out}: {what if described is None else 'the description of the table'}")
        return
    k, features = len(told["centers"]), len(told["features"])
    what = "the result with its centers" if out.suffix == ".json" else "centers"
    note(f"{out}: {what} of {told['name']}, {k} clusters of {features} features")


def _check_end(
    job: str, proof: Path | None, against: Path | None,
    client: tuple[str | None, Path | None, Path | None, Path | None], *, check: bool, as_json: bool,
) -> None:  # fmt: skip
    """Write the evidence of an end, or check it, alone or against that in a file."""
    from p2pclust.hosts.evidence import CONTRADICTS, contradictions, fetch_proof, read_proof  # noqa: PLC0415

    if check and Path(job).is_file():
        data = _read(Path(job))
    else:
        with operate.client_of(*client) as connection:
            data = fetch_proof(connection, job)
    if proof is not None:
        _put(proof, data)
        note(f"{proof}: the end of {job}, with its signatures")
    if not check:
        return
    key = operate.bundle_of(client[1])
    shown = [read_proof(data, key.fleet_public, job)]
    if against is not None:
        shown.append(read_proof(_read(against), key.fleet_public, str(against)))
    ends, found = [one.to_dict(key.roster) for one in shown], contradictions(shown)
    if as_json:
        put_json({"ends": ends, "contradictions": found})
    else:
        for line in _end_lines(ends):
            put(line)
        for name, both in found.items():
            put(f"{name} {CONTRADICTS}: {both}", style="yellow")
    if found:
        raise FleetError(f"{', '.join(found)}: see above")
    if len({one.end.digest for one in shown if one.document.id == shown[0].document.id}) > 1:
        raise FleetError("the two ends differ, in different terms: no device is shown to contradict itself")


def _end_lines(ends: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for end in ends:
        yield f"{end['job']}: ended with the state {end['state'][:16]} in round {end['round']} of term {end['term']}"
        by = f"elected by {', '.join(end['voted'])}" if end["voted"] else "named by the document of the job"
        yield f"aggregator: {end['aggregator']}, {by}"
        yield f"acknowledged by {len(end['acknowledged'])} of {end['of']}: {', '.join(end['acknowledged'])}"
        yield from (f"{name} was revoked since" for name in end["revoked_since"])
        yield from (f"{name} has new keys since" for name in end["new_keys_since"])


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror})") from None


def _told(found: FinishedJob) -> dict[str, Any]:
    from p2pclust.hosts.submission import drift  # noqa: PLC0415
    from p2pclust.protocols.centers.robust import limited_peers  # noqa: PLC0415
    from p2pclust.protocols.engine import summaries  # noqa: PLC0415
    from p2pclust.protocols.measuring.doubts import doubts, objective_of  # noqa: PLC0415
    from p2pclust.tools.json_values import plain  # noqa: PLC0415

    state = found.state
    rounds = [record for record in state.log if record.stage == found.job.main]
    asked_for = found.job.stages[found.job.main]
    told: dict[str, Any] = {
        "job": found.job_id, "name": found.told.get("name", found.job_id),
        "protocol": asked_for.protocol, "parameters": asked_for.parameters, "kernel": found.job.kernel,
        "roster": found.told["roster"], "rounds": len(rounds), "rounds_in_all": len(state.log), "converged": state.converged,
        "features": found.center_columns, "centers": None, "drift": None, "terms": found.told["terms"],
        "contributors": found.named(sorted({peer for record in rounds for peer in record.contributors})),
        "contributors_of_last_round": found.named(rounds[-1].contributors) if rounds else [],
        "abstained": {found.told["roster"][p]: why for record in state.log for p, why in record.abstained.items()},
        "suppressed": summaries.suppressed(state), "objective": objective_of(state.arrays),
        "doubts": list(doubts(state.arrays, found.center_columns, levels=found.job.levels)),
        "suspects": summaries.suspects_of_log(state, found.told["roster"]),
        "limited": found.named(limited_peers(state.arrays)),
        **{name: found.told[name] for name in ("secured", "verify", "scaling", "exposed", "exposed_by")},
        "declared": summaries.declared(found.job, state), "description": None,
    }  # fmt: skip
    if (described := _described(found)) is not None:
        told["description"] = described.to_dict()
    told["suspects"] += [
        {"peer": peer, "round": round_, "rounds": 1, "reason": reason, "found_by": [found.told["peer"]]}
        for peer, round_, reason in found.told.get("suspects", ())
    ]
    if "centers" in state.arrays and "origin" in state.arrays:
        told["centers"] = summaries.raw_centers(state).tolist()
        told["drift"] = drift(found)
    return dict(plain(told))


def _described(found: FinishedJob) -> Description | None:
    from p2pclust.protocols.measuring.describe import Describe  # noqa: PLC0415
    from p2pclust.protocols.measuring.description import Description  # noqa: PLC0415

    describes = isinstance(found.job.protocols[found.job.main], Describe)
    return Description.of(found.job, found.state, found.features) if describes else None


def _lines(outcome: Mapping[str, Any]) -> Iterator[str]:
    from p2pclust.protocols.engine.summaries import absences, array_in_words, suspect_in_words  # noqa: PLC0415

    how = "converged" if outcome["converged"] else "stopped at its limit of rounds"
    # `jobs` and `watch` count all rounds, including those of ranges, scaling, first centers and the objective.
    before = outcome["rounds_in_all"] - outcome["rounds"] if outcome["description"] is None else 0
    of = f"{outcome['rounds_in_all']} rounds"
    of += f" ({outcome['rounds']} of clustering, {before} to prepare and to measure)" if before else ""
    yield f"{outcome['name']}: {outcome['protocol']}, {of}, {how}"
    yield f"contributors: {', '.join(outcome['contributors'])}"
    if outcome["objective"] is not None:
        yield f"objective: {outcome['objective']:.6g}, in squared working coordinates"
    for doubt in outcome["doubts"]:
        yield f"doubt: {doubt}"
    for one in outcome["suspects"]:
        yield f"suspect: {suspect_in_words(one)}"
    if outcome["limited"]:
        yield f"limited by max_weight: {', '.join(outcome['limited'])}"
    yield from absences(outcome["abstained"])
    yield from operate.secrecy_of(outcome)
    if outcome["suppressed"]:
        yield f"suppressed by privacy rules: {outcome['suppressed']} times"
    if outcome["terms"]:
        yield f"terms that this peer saw: {', '.join(f'{term} {name}' for term, name in outcome['terms'])}"
    for name, values in outcome["declared"].items():
        yield f"{name}: {array_in_words(values)}"
    if outcome["centers"] is None and outcome["description"] is None:
        yield "this protocol ends without centers; `p2pclust assign` gives each row's label"
    elif drift := outcome["drift"]:
        features = sorted(drift["features"].items(), key=lambda item: -item[1])
        shown = first_few([f"{name} {100 * moved:.2g} %" for name, moved in features], _FEATURES_SHOWN)
        each = ", ".join(f"{100 * moved:.2g} %" for moved in drift["each"])
        yield f"since the previous turn the centers moved by at most, of each feature's {drift['of']}: {shown}"
        yield f"the largest of these moves of each center: {each}"


def _write(out: Path, told: Mapping[str, Any], described: Description | None = None) -> None:
    import numpy as np  # noqa: PLC0415

    if described is not None and out.suffix == ".csv":
        _put(out, _table(list(described.long_table())))
        return
    written = told["declared"] if told["centers"] is None else {"centers": told["centers"]}
    arrays: dict[str, Any] = {name: np.array(values) for name, values in written.items()}
    if described is not None and out.suffix != ".json":
        raise UsageError(f"-o {out}: a description is written as .csv or .json")
    if not arrays and described is None:
        raise UsageError(f"-o {out}: {told['protocol']} ends without centers: write labels with `p2pclust assign`")
    if out.suffix == ".json":
        _put(out, (json.dumps(told, indent=1, allow_nan=False) + "\n").encode())
    elif out.suffix == ".csv":
        names = ", ".join(arrays)
        if len(arrays) > 1 or arrays[names].ndim > 2:
            what = f"it declares {names}" if len(arrays) > 1 else f"{names} has {arrays[names].ndim} dimensions"
            raise UsageError(f"-o {out}: a CSV file holds one table, and {what}: name a .json or .npz file")
        values = np.atleast_2d(arrays[names])
        header = told["features"] if values.shape[1] == len(told["features"]) else [names] * values.shape[1]
        _put(out, _table([header, *([repr(value) for value in row] for row in values.tolist())]))
    else:
        data = io.BytesIO()
        np.savez(data, **(arrays | {"features": np.array(told["features"])}))
        _put(out, data.getvalue())


def _table(rows: Sequence[Sequence[Any]]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue().encode()


def _put(out: Path, data: bytes, *, private: bool = False) -> None:
    """Write a file whole or not at all; a `private` one is for its owner only."""
    try:
        with replacing(out, mode=0o600 if private else None) as file:
            file.write(data)
    except OSError as error:
        raise UsageError(f"-o {out}: cannot be written ({error.strerror})") from None


def assign(
    job: operate.JobArgument,
    data: Annotated[Path | None, option("FILE", "Other rows to label; default those of this device's peer.")] = None,
    columns: Annotated[
        str | None, option("NAME,...", "The features in that file; default those of the peer's data, by name.")
    ] = None,
    id_column: Annotated[
        str | None, option("NAME", "For --data: the column of the rows' ids; default their numbers.")
    ] = None,
    missing_values: Annotated[
        str | None,
        option("error|drop|keep", "For --data: refuse missing values (default), omit their rows, or keep them."),
    ] = None,
    decimal: Decimal = None,
    thousands: Thousands = None,
    missing_codes: MissingCodes = None,
    header: Header = None,
    schema: SchemaFile = None,
    out: Annotated[Path | None, option("FILE", "Write the CSV here; default standard output.", "-o", "--out")] = None,
    peer: operate.PeerOption = None,
    bundle: operate.BundleOption = None,
    roster: operate.RosterOption = None,
    inventory: operate.InventoryOption = None,
) -> None:
    """Label rows with the result of a job: writes the data as CSV with row, label, distance and memberships of each row.

    Without --data this labels the rows of this device, which never leave it; with --data those of a file, with the result
    of any peer, or of a run if JOB is the folder of `p2pclust run`, or model-2.msgpack in it. Rows are scaled as in the
    job. Protocols over columns label this device's own rows only. FedCRef labels own rows as the job did, and other rows
    by the model of the group that fits best. The column row has the row's id if the data have ids, else its number from 0
    in its file; distance has how far it is from the center of its cluster, in the job's scale. The file contains the rows,
    so only its owner may read it (mode 0600).

    \b
    Examples:
      p2pclust assign job-3f2a -o labelled.csv
      p2pclust assign job-3f2a --data new-rows.csv > labelled.csv
      p2pclust assign runs/mine --data new-rows.csv > labelled.csv
    """
    from p2pclust.data.table import Choice  # noqa: PLC0415
    from p2pclust.hosts.labels import label_by_run, label_file, label_own  # noqa: PLC0415

    options = {
        "--columns": columns, "--id-column": id_column, "--missing-values": missing_values, "--decimal": decimal,
        "--thousands": thousands, "--missing-codes": missing_codes, "--header": header, "--schema": schema,
    }  # fmt: skip
    for name, value in options.items():
        if data is None and value is not None:
            raise UsageError(f"{name} is for --data: this device's rows are read as its peer's configuration says")
    choice = Choice(
        columns_of(columns), missing_values=missing_values or "error", id_column=column(id_column),
        how_read=how_read(decimal, thousands, missing_codes, header), schema=given_schema(schema),
    )  # fmt: skip
    found: Labelled
    if Path(job).exists():
        if data is None:
            raise UsageError(
                f"{job}: a run labelled the rows of its devices in labels.csv: name other rows with --data"
            )
        model = Path(job, "model.msgpack") if Path(job).is_dir() else Path(job)
        found = label_by_run(model, data, choice)
    else:
        with operate.client_of(peer, bundle, roster, inventory) as client:
            found = label_own(client, job) if data is None else label_file(client, job, data, choice)
    table = _table([found.header, *found.rows()])
    if found.data.dropped:
        note(f"{found.data.dropped} rows omitted: a value is missing")
    if out is None:
        sys.stdout.write(table.decode())
        sys.stdout.flush()
    else:
        _put(out, table, private=True)
        note(f"{len(found.labels)} rows labelled into {out}")
