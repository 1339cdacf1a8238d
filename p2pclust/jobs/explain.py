"""The errors of a document, one per line: the table, the key, the given value, the expected one."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError

from p2pclust.errors import UsageError
from p2pclust.tools.spelling import did_you_mean

M = TypeVar("M", bound=BaseModel)

#: Tags of a key that is true, false or a table; they stand in the places of errors, and are not shown.
FLAG, TABLE = "<flag>", "<table>"
_LINES_MAX = 5


def validated(model: type[M], document: Any, where: str, said: Mapping[str, str] | None = None) -> M:
    """Return a document as its model, or raise UsageError for its errors, see `explain`."""
    try:
        return model.model_validate(document)
    except ValidationError as error:
        raise UsageError(explain(where, error, model, said)) from error


def explain(where: str, error: ValidationError, model: type[BaseModel], said: Mapping[str, str] | None = None) -> str:
    """Return the errors of a document in words: one line for each of the first few, after its source `where`.

    `model` is that of the whole document; `said` has the source of values that come from elsewhere, by the document's key.
    """
    lines: list[str] = []
    for detail in error.errors(include_url=False):
        location = tuple(step for step in detail["loc"] if step not in (FLAG, TABLE))
        kind, source = detail["type"], (said or {}).get(str(location[0]) if location else "", where)
        if kind == "wrong_table":
            lines += [f"{source}: {_table(location)}{problem}" for problem in detail["msg"].split("\n")]
        elif kind == "extra_forbidden":
            fields = _model_at(location[:-1], model).model_fields.items()
            known = [field.alias or name for name, field in fields]
            hint = did_you_mean(location[-1], known, f": expected {', '.join(known)}")
            lines.append(f"{source}: {_table(location[:-1])}unknown key {location[-1]!r}{hint}")
        elif kind == "missing":
            # With an example, if it is a key of the document and its field has one.
            own = model.model_fields.get(str(location[-1])) if len(location) == 1 else None
            hint = f": write {own.examples[0]}" if own is not None and own.examples else ""
            lines.append(f"{source}: {_table(location[:-1])}key {location[-1]!r} is missing{hint}")
        else:
            # In a list the key has its position.
            of_list = len(location) > 1 and isinstance(location[-1], int)
            key, table = ".".join(map(str, location[-1 - of_list :])), location[: -1 - of_list]
            what = f"{_table(table)}{key} = {shown(detail['input'])}"
            lines.append(f"{source}: {what}: {_expected(kind, detail, model)}")
    if len(lines) > _LINES_MAX + 1:  # instead of "and 1 more" show the error
        lines[_LINES_MAX:] = [f"{where}: and {len(lines) - _LINES_MAX} more errors"]
    return "\n".join(lines)


def _table(location: Sequence[str | int]) -> str:
    return f"[{'.'.join(str(step) for step in location)}]: " if location else ""


def _model_at(location: Sequence[str | int], model: type[BaseModel]) -> type[BaseModel]:
    for step in location:
        if isinstance(step, str) and step in model.model_fields:  # else it is a name in a table of tables
            model = next(_models(model.model_fields[step].annotation))
    return model


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    """Yield the models inside an annotation such as ``tuple[JobSpec, ...]`` or ``LinkSpec | None``."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _models(part)


_KINDS = {
    "int_type": "expected an integer",
    "float_type": "expected a number",
    "finite_number": "expected a finite number",
    "bool_type": "expected true or false",
    "string_type": "expected text",
    "tuple_type": "expected a list",
    "model_type": "expected a table",
    "string_too_short": "expected a name",
}
_LIMITS = {
    "greater_than_equal": ("at least", "ge"),
    "greater_than": ("more than", "gt"),
    "less_than_equal": ("at most", "le"),
    "less_than": ("less than", "lt"),
}


def _expected(kind: str, detail: Mapping[str, Any], model: type[BaseModel]) -> str:
    if kind == "tuple_type" and isinstance(detail["input"], dict):
        *table, key = detail["loc"]
        field = _model_at(table, model).model_fields.get(str(key))
        if field is not None and any(_models(field.annotation)):
            return f"expected a list: write [[{'.'.join(str(step) for step in detail['loc'])}]], with two brackets"
    if kind in _KINDS:
        return _KINDS[kind]
    context = detail.get("ctx", {})
    if kind in _LIMITS:
        words, limit = _LIMITS[kind]
        return f"expected {words} {context[limit]:g}"
    if kind == "literal_error":
        options = re.findall(r"'([^']*)'", context["expected"])
        return f"expected {context['expected']}{did_you_mean(detail['input'], options)}"
    return str(detail["msg"])


def shown(value: object) -> str:
    """Return a value about as in the file, in at most 40 characters."""
    text = json.dumps(value, default=str)
    return text if len(text) <= 40 else text[:37] + "..."
