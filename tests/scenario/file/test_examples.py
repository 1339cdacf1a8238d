"""Files that are installed with the package: found by name, listed with what they need."""

from __future__ import annotations

from pathlib import Path

import pytest

from p2pclust.errors import UsageError
from p2pclust.lab.scenario.file.examples import SCENARIOS, SWEEPS, examples, find_example

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(("installed", "home"), [(SCENARIOS, "scenarios"), (SWEEPS, "topology")])
def test_a_checkout_has_each_file_once(installed: Path, home: str) -> None:
    assert installed.is_symlink()
    assert installed.resolve() == ROOT / home


def test_what_needs_nothing_comes_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("P2PCLUST_DATA", str(tmp_path))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    found = examples(SCENARIOS)
    assert [example.name for example in found] == [
        example.name for example in sorted(found, key=lambda example: (bool(example.needs), example.name))
    ]
    needs = {example.name: example.needs for example in found}
    assert set(needs) == {file.stem for file in (ROOT / "scenarios").glob("*.toml")}
    assert needs["quickstart"] == ""
    assert needs["rice-mill"] == "p2pclust data fetch rice"
    assert needs["fedcref-digits"] == "pip install 'p2pclust[models]'"
    (tmp_path / "rice.npz").touch()
    assert {example.name: example.needs for example in examples(SCENARIOS)}["rice-mill"] == ""
    assert {example.name for example in examples(SWEEPS) if example.needs} == {"models-by-overlay"}


class TestFinding:
    @pytest.fixture(autouse=True)
    def _empty(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)

    def found(self, given: str) -> Path:
        return find_example(Path(given), SCENARIOS, "p2pclust run")

    def test_by_name_also_beside_a_folder_of_that_name(self) -> None:
        assert self.found("quickstart") == SCENARIOS / "quickstart.toml"
        Path("quickstart").mkdir()
        assert self.found("quickstart") == SCENARIOS / "quickstart.toml"

    @pytest.mark.parametrize("name", ["quickstart", "quickstart.toml", "mine"])
    def test_a_file_of_ones_own_comes_first(self, name: str) -> None:
        Path(name).touch()
        assert self.found(name) == Path(name)

    @pytest.mark.parametrize("given", ["mine.toml", "there/mine", "mine.tml"])
    def test_what_has_an_ending_or_a_folder_is_a_file(self, given: str) -> None:
        assert self.found(given) == Path(given)  # whoever reads it says that it is not there

    def test_a_name_that_is_nearly_one(self) -> None:
        with pytest.raises(
            UsageError, match=r"^quickstar: no such file, and no installed one .* \(did you mean 'quickstart'\? "
        ):
            self.found("quickstar")

    @pytest.mark.parametrize("given", ["scenarios/quickstart.toml", "quickstart.toml"])
    def test_a_checkouts_path_where_there_is_no_checkout(self, given: str) -> None:
        with pytest.raises(UsageError, match=rf"^{given}: no such file; .* by its name: p2pclust run quickstart$"):
            self.found(given)
