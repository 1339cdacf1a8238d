"""Sphinx's roles in docstrings become links, or plain code where the site has no page of that name."""

from __future__ import annotations

import re
from typing import Any

import griffe

_ROLE = re.compile(r":(?P<role>\w+):`(?P<name>[^`]+)`")


class Roles(griffe.Extension):
    """Rewrites the docstrings of everything that is loaded."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Rewrite the docstring of one object."""
        if obj.docstring is not None:
            put = _linked if obj.path.startswith("p2pclust.estimators.") else _plain
            obj.docstring.value = _ROLE.sub(put, obj.docstring.value)


def _linked(match: re.Match[str]) -> str:
    """Return a link to another estimator; their docstrings name only such classes."""
    return f"[`{match['name']}`][p2pclust.{match['name']}]" if match["role"] == "class" else _plain(match)


def _plain(match: re.Match[str]) -> str:
    return f"`{match['name']}`"
