"""A soak says what share of the processor it had, so that a late job on a busy machine is not blamed on the peers."""

from __future__ import annotations

import pytest
from tests.soak.processor import Processor, observed

pytestmark = pytest.mark.processes


def test_a_soak_that_was_starved_says_so() -> None:
    processor = Processor()
    for second in range(180):
        processor.add(float(second), 0.006)
    assert processor.line() == "processor: it had 83 % of what it asked for, in the worst minute 83 %"
    for second in range(180, 240):
        processor.add(float(second), 0.1)
    assert processor.line().startswith(
        "starved of processor time: it had 17 % of what it asked for, in the worst minute 5 %"
    )


def test_a_process_asks_for_the_processor_as_long_as_the_soak_lasts() -> None:
    processor = Processor()
    with observed(processor):
        while processor.share() is None:
            pass
    share = processor.share()
    assert share is not None
    assert 0 < share <= 1
