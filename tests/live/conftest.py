from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from tests.chromium import headless


class Browser:
    """Chromium, and how tests look at the page in it."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver

    def open(self, url: str) -> None:
        self.driver.get("about:blank")
        self.driver.get_log("browser")
        self.driver.get(url)
        self.until("return window.live !== undefined && live.counts.drawn > 0")

    def run(self, script: str, *arguments: Any) -> Any:
        return self.driver.execute_script(script, *arguments)

    def until(self, script: str, within_s: float = 30.0) -> Any:
        """Wait until a script returns something true, and return that."""
        deadline = time.monotonic() + within_s
        while not (found := self.run(script)):
            assert time.monotonic() < deadline, f"not within {within_s:g} s: {script}"
        return found

    def complaints(self) -> list[str]:
        return [entry["message"] for entry in self.driver.get_log("browser")]

    @contextmanager
    def wide(self, width: int, height: int = 900) -> Iterator[None]:
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        try:
            yield
        finally:
            self.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with headless(tmp_path_factory.mktemp("browser")) as driver:
        yield Browser(driver)


@pytest.fixture
def until() -> Callable[[Callable[[], Any]], Any]:
    def wait(found: Callable[[], Any], within_s: float = 30.0) -> Any:
        deadline = time.monotonic() + within_s
        while not (value := found()):
            assert time.monotonic() < deadline, f"not within {within_s:g} s"
        return value

    return wait
