"""Classes that only declare their fields: messages, events, effects, tasks, outcomes, tokens and reports."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import dataclass_transform


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
class Struct:
    """Base of these classes. Each subclass is a frozen dataclass."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        dataclass(frozen=True)(cls)


def hyphenated(name: str) -> str:
    """Return the name of a class as words in small letters.

    Examples
    --------
    >>> hyphenated("RosterOffer")
    'roster-offer'
    """
    return re.sub(r"(?<!^)(?=[A-Z])", "-", name).lower()
