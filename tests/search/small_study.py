"""A small study by clock: four kernels, eleven pairs of clocks, on a board that is made up and scatters by its seed."""

import contextlib
import io
import zlib
from dataclasses import dataclass, field
from pathlib import Path

from kernel_dvfs.measurement import setup as setups
from kernel_dvfs.measurement.visit import Visit, asked, round_of
from kernel_dvfs.search import loop, study_file
from kernel_dvfs_clocks.clocks import BASELINE, Pair, label

PAIRS = [BASELINE, *(Pair(core, mem) for mem in (9251, 5001) for core in (2100, 1905, 1680, 1470, 1155))]
# us at 1 GHz of core and of memory clock, W at the highest clocks
KERNELS = {
    "forward_fc_gemm": (2110.0, 1310.0, 338.0),
    "forward_gelu": (1137.0, 5290.0, 241.0),
    "backward_fcproj_bias_reduce": (811.0, 1083.0, 207.0),
    "embedding_layernorm": (317.0, 990.0, 195.0),
}
LAUNCHES = dict(zip(KERNELS, (24, 24, 24, 1)))  # of an iteration, as in the setup
OPTIONS = {
    "pairs": ",".join(map(label, PAIRS)),
    "limits_percent": [0, 6.5],
    "minutes": 17,
    "worth_percent": 0.02,
    "over_percent": 10,
    "ties": "tied",
    "seed": 3,
}


@dataclass
class Board:
    """What measures visits, by a formula; a session has a pace of its own. It knows what it was asked for."""

    kernels: tuple = tuple(KERNELS)
    library: str = ""  # SHA-256 of its kernels; "": it is simulated
    disturbed: dict = field(default_factory=dict)  # {pair: how many of its next visits are}
    visited: list = field(default_factory=list)

    run: dict = field(default_factory=dict)

    @property
    def device(self) -> dict:
        made = {"kind": "simulated", "name": "made up", "uuid": "made-up-7", "driver": "1.5", "power_limit_mw": 350_000}
        made |= {"energy_scope": "board", "counter_period_ms": 20.0, "counter_read_ms": 0.5}
        return made | ({"library_sha256": self.library} if self.library else {})

    def visit(self, visit: Visit) -> dict:
        """Measure."""
        self.visited.append(visit)
        left = self.disturbed.get(visit.pair, 0)
        self.disturbed[visit.pair] = left - 1
        core, mem = (2082.0, 9251.0) if visit.pair == BASELINE else (float(visit.pair[0]), float(visit.pair[1]))
        pace = 1 + 2e-4 * drawn(visit.session)
        time_us = {
            name: self.time_us(name, core, mem) * pace * (1 + 1e-4 * drawn(visit, name)) for name in self.kernels
        }
        return {
            "request": asked(visit) | {"policy": "auto" if visit.pair == BASELINE else "lock", "switch_s": 0.01},
            "passes": {
                "n": 7,
                "iteration_us": sum(LAUNCHES[name] * each for name, each in time_us.items()),
                "power_mw": 1000 * self.round_w(self.kernels, core, mem) * (1.03 if visit.pair == BASELINE else 1.0),
                "is_capped": False,
                "time_us": time_us,
            },
            "powers": [
                {
                    "kernels": list(names),
                    "duration_s": visit.window_s,
                    "power_mw": 1000 * self.round_w(names, core, mem),
                    "time_us": sum(count * time_us[name] for name, count in round_of(names, LAUNCHES).items()),
                    "core_mhz": core,
                    "is_capped": False,
                }
                for names in visit.metered
            ],
            "reached": {"core_mhz": core - 1.5, "mem_mhz": mem},
            "temp_c": [51.0, 52.5],
            "spent_s": 0.7 + visit.pass_s + 1.25 * visit.window_s * len(visit.metered),
            "verdict": "disturbed" if left > 0 else "ok",
            "reasons": ["another process"] if left > 0 else [],
        }

    @staticmethod
    def time_us(name: str, core_mhz: float, mem_mhz: float) -> float:
        """Return the time of a launch, without scatter."""
        core, memory, _ = KERNELS[name]
        return ((core / core_mhz) ** 3 + (memory / mem_mhz) ** 3) ** (1 / 3) * 1000 + 4

    @staticmethod
    def power_w(name: str, core_mhz: float, mem_mhz: float) -> float:
        """Return the power of a kernel."""
        share = core_mhz / 2100
        return 60 + 20 * mem_mhz / 9251 + (KERNELS[name][2] - 80) * share * (0.4 + 0.6 * share**2)

    def round_w(self, names, core_mhz: float, mem_mhz: float) -> float:
        """Return the mean power of kernels that run in turn, each as often as in an iteration."""
        time_us = [LAUNCHES[name] * self.time_us(name, core_mhz, mem_mhz) for name in names]
        power_w = [self.power_w(name, core_mhz, mem_mhz) for name in names]
        return sum(us * watts for us, watts in zip(time_us, power_w)) / sum(time_us)


def drawn(*of) -> float:
    """Return a number from -1 to 1 that depends on these words alone."""
    return zlib.crc32(repr(of).encode()) / 2**31 - 1


@dataclass
class Folder:
    """A study in a folder of its own."""

    root: Path
    path: str  # of the setup

    @property
    def setup(self):
        return setups.read(self.path)

    @property
    def measurements(self) -> str:
        return str(self.root / "measurements")

    @property
    def output(self) -> Path:
        return self.root / "by_clock.json"

    def run(self, options=OPTIONS, **more) -> study_file.ByClock:
        """Play the study to its end; its lines are not shown."""
        with contextlib.redirect_stderr(io.StringIO()):
            loop.run(self.path, self.measurements, options, str(self.output), **more)
        return study_file.read(str(self.output))

    def records(self) -> dict:
        """Return {path: bytes} of all records."""
        root = Path(self.measurements)
        return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*.json"))}

    def another(self, **protocol) -> "Folder":
        """Return the same folder under another protocol."""
        own = self.setup
        path = setups.store(str(self.root / "setup"), own.gpu, own.workload, own.targets, own.measurement | protocol)
        return Folder(self.root, path)
