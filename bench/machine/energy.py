"""The energy that processors have used, as Linux tells it (powercap: RAPL of Intel and AMD)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_ROOT = Path("/sys/class/powercap")


@dataclass(frozen=True, slots=True)
class Package:
    """The counter of one processor package, in microjoules; it begins anew after ``wraps``."""

    counter: Path
    wraps: int

    def microjoules(self) -> int:
        return int(self.counter.read_text())


def packages(root: Path = _ROOT) -> Sequence[Package]:
    """Return the packages whose counters may be read; none on most virtual machines."""
    found = []
    for zone in sorted(root.glob("*-rapl:[0-9]*")):
        if zone.name.count(":") > 1:
            continue  # a part of a package, which counts it too
        try:
            one = Package(zone / "energy_uj", int((zone / "max_energy_range_uj").read_text()) + 1)
            one.microjoules()
        except OSError:  # only root may read them
            continue
        found.append(one)
    return found


class Meter:
    """The joules of all packages since it was made; ``None`` where the machine does not tell."""

    def __init__(self, packages: Sequence[Package]) -> None:
        self._begin = [(one, one.microjoules()) for one in packages]

    def joules(self) -> float | None:
        if not self._begin:
            return None
        used = sum((one.microjoules() - begin) % one.wraps for one, begin in self._begin)
        return used / 1e6
