"""The fake NVML from a test: build it once a session, make boards, turn knobs, read what the boards really did."""

import ctypes
import hashlib
import json
import os
import shutil
import subprocess
from pathlib import Path

# requests of a probe of all clocks: both locked, both reset
_PROBED = 4
SOURCES = Path(__file__).resolve().parent
# nvidia-ml-py opens the library by this name only
LIBRARY = "libnvidia-ml.so.1"


def build(folder: Path) -> Path:
    """Compile the library into `folder`; its path. Beside it the specs of its boards, checked once for all processes
    that simulate one: hundreds."""
    from simulated_load import SPECS

    from kernel_dvfs.gpu import spec as gpu_spec

    for name in SPECS.values():
        (folder / f"{name}.json").write_text(json.dumps(gpu_spec.resolve(name)))
    library = folder / LIBRARY
    sources = sorted(str(path) for path in SOURCES.glob("*.c"))
    # symbolic: names that the C library has as well (advance) stay our own
    flags = ["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
    flags += [f"-Wl,-soname,{LIBRARY}", "-Wl,-Bsymbolic"]
    subprocess.run([shutil.which("cc") or "cc", *flags, "-o", str(library), *sources, "-lm", "-lpthread"], check=True)
    return library


def build_record(folder: Path, simulation: Path = SOURCES / "simulated_load.py", **made_of) -> Path:
    """A record of `simulation` as the library of kernels, as a build of the native layer leaves one; its path."""
    beside = folder / simulation.name
    if not beside.exists():
        beside.symlink_to(simulation)
    library = {"file": simulation.name, "sha256": hashlib.sha256(simulation.read_bytes()).hexdigest()}
    path = folder / "simulated_load.json"
    path.write_text(
        json.dumps({"schema": "kernel-dvfs/build/1", "status": "built", "reason": None, **made_of, "library": library})
    )
    return path


def device_nodes(folder: Path) -> Path:
    """A folder with nvidia7, nvidia6, ...: other devices stand in for those of the boards 0, 1, ..."""
    made = folder / "dev"
    made.mkdir(exist_ok=True)
    for minor, name in zip((7, 6, 5), ("null", "zero", "full"), strict=True):
        node = made / f"nvidia{minor}"
        if not node.is_symlink():
            node.symlink_to(f"/dev/{name}")
    return made


class Boards:
    """Fake boards in a state file of their own: "h200", or several, "h200,rtx_3080_ti"; "": what it has."""

    def __init__(self, library: Path, path: Path, profiles: str = "h200", **knobs):
        self.library, self.folder, self.path = library, library.parent, path
        # a copy under another name: this process keeps one library, whatever a test loads as NVML
        self._library = ctypes.CDLL(str(library))
        assert not (profiles and self._library.fakenvml_create(str(path).encode(), profiles.encode()))
        self.set(**knobs)

    def set(self, board: int = 0, **knobs) -> None:
        """Turn knobs: fail="symbol:code[:after[:times]]", counter="freeze@2.5", time="virtual", deny=1, ..."""
        for key, value in knobs.items():
            code = self._library.fakenvml_set(str(self.path).encode(), board, key.encode(), str(value).encode())
            assert not code, f"no knob {key} = {value}"

    def get(self, key: str, board: int = 0) -> str:
        """What the board really does: core_lock, mem_lock (next in force), core_mhz, energy_mj (true), sets, ..."""
        text = ctypes.create_string_buffer(64)
        size = ctypes.c_size_t(64)
        assert not self._library.fakenvml_get(str(self.path).encode(), board, key.encode(), text, size), key
        return text.value.decode()

    @property
    def uuid(self) -> str:
        return self.get("uuid")

    @property
    def locks(self) -> tuple:
        """(core, memory) locks, `none` each where nothing is locked."""
        return self.get("core_lock"), self.get("mem_lock")

    def environment(self, **more) -> dict:
        """The environment of a process that finds this NVML instead of a driver's."""
        return os.environ | {"LD_LIBRARY_PATH": str(self.folder), "FAKENVML_STATE": str(self.path)} | more


def drawn_for(boards: Boards, trials: list[dict]) -> list[dict]:
    """What the board drew for the request of each trial of `kernel-dvfs latency`, s: lag_s, stall_s, ramp_s.

    trials: of the file, all that were made since the board was, in their order. A board remembers 512 requests.
    """
    every = [boards.get(f"change:{number}").split() for number in range(int(boards.get("changes")))]
    place, turn, found = _PROBED, None, []
    for trial in trials:
        if turn != (trial["repeat"], trial["domain"]):
            turn = trial["repeat"], trial["domain"]
            place += 1  # the other clock was given back
        domain, _, *times = every[place + 1]  # the start, then the target
        assert domain == trial["domain"], (place, trial)
        found.append(dict(zip(("lag_s", "stall_s", "ramp_s"), (1e-9 * int(each) for each in times))))
        place += 2
    return found
