"""The energy of a machine, read from files as Linux has them."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

BENCH = Path(__file__).parents[2] / "bench"


@pytest.fixture
def energy(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCH))
    return import_module("machine.energy")


def zone(root: Path, name: str, used: int, most: int) -> Path:
    folder = root / name
    folder.mkdir()
    (folder / "energy_uj").write_text(f"{used}\n")
    (folder / "max_energy_range_uj").write_text(f"{most}\n")
    return folder / "energy_uj"


def test_packages_are_added_up_and_their_parts_are_not(tmp_path: Path, energy: Any) -> None:
    first = zone(tmp_path, "intel-rapl:0", 1_000_000, 9_999_999)
    second = zone(tmp_path, "intel-rapl:1", 9_000_000, 9_999_999)
    core = zone(tmp_path, "intel-rapl:0:0", 0, 9_999_999)
    meter = energy.Meter(energy.packages(tmp_path))
    first.write_text("3500000\n")
    second.write_text("1000000\n")  # it has begun anew
    core.write_text("2000000\n")
    assert meter.joules() == 4.5


def test_a_machine_without_counters_tells_nothing(tmp_path: Path, energy: Any) -> None:
    (tmp_path / "intel-rapl:0").mkdir()
    assert energy.Meter(energy.packages(tmp_path)).joules() is None
