"""Energy of this machine, where its processors meter it (RAPL)."""

from pathlib import Path
from typing import Optional

POWERCAP = Path("/sys/class/powercap")


class Meter:
    """Joules since it was made. Packages only: their parts are counted in them."""

    def __init__(self, root: Path = POWERCAP):
        self._zones = [zone for zone in sorted(root.glob("intel-rapl:*")) if zone.name.count(":") == 1]
        self._start = [self._read(zone, "energy_uj") for zone in self._zones]

    @property
    def missing(self) -> str:
        """Why nothing is metered; empty where it is."""
        if not self._zones:
            return "this machine has no meter that the system shows (RAPL)"
        if None in self._start:
            return "the meter of this machine (RAPL) may be read by root only"
        return ""

    def joules(self) -> Optional[float]:
        """None where nothing is metered."""
        if self.missing:
            return None
        total = 0
        for zone, start in zip(self._zones, self._start):
            now = self._read(zone, "energy_uj")
            if now is None or start is None:
                return None
            # It begins at 0 again after its largest value.
            total += now - start if now >= start else now - start + (self._read(zone, "max_energy_range_uj") or 0)
        return total / 1e6

    @staticmethod
    def _read(zone: Path, name: str) -> Optional[int]:
        try:
            return int((zone / name).read_text())
        except (OSError, ValueError):
            return None
