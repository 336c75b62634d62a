"""What do the commands do, and say, where the driver refuses to set anything (deny), or says that it has and has not
(pretend)? Nothing may be set, and nothing claimed.

An NVML of our own (refusing_nvml.c) stands before the driver's: what looks is passed on, all else is written down and
stopped, by default and not by a list of what is known to set. Before any command runs, each name that is stopped is
shown to be ours. Then every command that sets clocks, or tells what comes of them, runs behind it in both modes:

    kernel-dvfs build --cuda on --graph on
    python experiments/benchmarks/refusing_nvml.py -o OUT

Written to OUT: refusing_nvml.txt (what each command did, and whether it should), outputs.txt (all that they said) and
the calls that were stopped, deny.log and pretend.log. Exit code 1 where a command did what it should not.
"""

from __future__ import annotations

import argparse
import ctypes
import datetime
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve()
ROOT = HERE.parents[2]
LIBRARY = "libnvidia-ml.so.1"
# what looks, opens and closes; every other name of the library is stopped
LOOKS = re.compile(
    r"nvml(Init(WithFlags|_v2)?|Shutdown|ErrorString"
    r"|(Device|System|Unit|Vgpu\w*?|GpuInstance|ComputeInstance|Gpm\w*?|EventSet|Excluded\w*?)?Get\w+"
    r"|EventSet(Create|Wait(_v2)?|Free)|DeviceRegisterEvents|DeviceOnSameBoard|DeviceValidateInforom)"
)
MUST_STOP = tuple(
    f"nvmlDevice{name}"
    for name in (
        *("SetGpuLockedClocks", "ResetGpuLockedClocks", "SetMemoryLockedClocks", "ResetMemoryLockedClocks"),
        *("SetPowerManagementLimit", "SetPersistenceMode"),
    )
)
TOOLS = ("nvidia-smi", "dcgmi", "sudo")  # which set as well, and could find another NVML
CORE_MHZ = 900  # that no busy board chooses by itself
CLAIMS = r"against auto: time|\bkept: [-+]|saved \d|against auto, .*; used"


class Case(NamedTuple):
    """A command, and what is right of it: exit codes, a word that it says."""

    name: str
    words: tuple[str, ...]
    deny: tuple[set[int], str]
    pretend: tuple[set[int], str]
    needs: str = ""  # a part of the native layer
    seconds: float = 60.0  # it may take


REFUSED = {2}, "no permission"


def cases(busy: list[str], pair: str) -> list[Case]:
    """In order of what they need."""
    lock = ("--pair", pair)

    def work(seconds: float) -> tuple[str, ...]:
        return ("--", *busy, str(seconds))

    return [
        Case("devices", ("devices",), ({0}, "core clocks: .* listed"), ({0}, "core clocks: .* listed")),
        Case("counter", ("counter", "--seconds", "3"), ({0}, "agree"), ({0}, "agree")),
        Case("reset", ("reset", "--all"), REFUSED, ({0}, "both locks reset")),
        Case("apply", ("apply", *lock, "--baseline", *work(4)), REFUSED, ({0}, "not_reached")),
        Case(
            "apply --power-limit",
            ("apply", "--pair", "auto,auto", "--power-limit", "500", *work(3)),
            REFUSED,
            ({2}, "power limit"),
        ),
        Case(
            "tune",
            ("tune", "--progress", r"step (\d+)", "--block", "1", "--minutes", "1", *work(34)),
            REFUSED,
            ({0}, "auto is kept .*not_reached"),
        ),
        Case("broker", (*lock, *work(3)), ({2}, "no permission"), ({0}, "not_reached")),
        Case(
            "latency",
            ("latency", "--core", str(CORE_MHZ), "1500", "--repeats", "2", "--limit", "0.2", "-o", "latency.json"),
            REFUSED,
            ({0, 2}, "no change was seen to land"),
            "cuda",
        ),
        Case(
            "measure",
            ("measure", "--gpu", "nvml", "--target", "forward_gelu", "--clocks", pair, "-o", "record.json"),
            REFUSED,
            ({0}, '"verdict": "not_reached"'),
            "cuda",
        ),
        Case(
            "play",
            (str(HERE), "--play", str(CORE_MHZ)),
            ({1}, "no permission"),
            ({0}, "auto instead: .*not reached"),
            "graph",
        ),
    ]


# --- the library ------------------------------------------------------------------------------------------------------


def drivers() -> Path:
    """The file of the driver's NVML."""
    ctypes.CDLL(LIBRARY)
    return Path(next(line.split()[-1] for line in open("/proc/self/maps") if "nvidia-ml" in line)).resolve()


def shim(folder: Path) -> tuple[Path, list[str], list[str]]:
    """(folder to put first on LD_LIBRARY_PATH, names that are stopped, names that are passed on)."""
    driver = drivers()
    told = subprocess.run(["nm", "-D", "--defined-only", driver], check=True, capture_output=True, text=True).stdout
    names = sorted({line.split()[-1].partition("@")[0] for line in told.splitlines()})
    names = [name for name in names if name.startswith("nvml")]
    passed = [name for name in names if LOOKS.fullmatch(name)]
    stop = [name for name in names if name not in passed]
    (folder / "stopped.h").write_text("".join(f"STOP({name})\n" for name in stop))
    # the driver's under a name of ours; linked by a library without content, since its own says that it has the first
    behind, first = folder / "behind", folder / "first"
    for each in (behind, first, folder / "empty"):
        each.mkdir()
    shutil.copy(driver, behind / "libdrivers-nvml.so")
    (folder / "empty.c").write_text("extern int nothing; int nothing;\n")
    compiler = [shutil.which("cc") or shutil.which("gcc") or "cc", "-shared", "-fPIC", "-O1", "-Wall"]
    subprocess.run([*compiler, "-o", folder / "empty/libdrivers-nvml.so", folder / "empty.c"], check=True)
    words = ["-o", first / LIBRARY, f"-I{folder}", HERE.with_suffix(".c"), f"-Wl,-soname,{LIBRARY}"]
    words += ["-Wl,--no-as-needed", f"-L{folder}/empty", "-ldrivers-nvml", f"-Wl,-rpath,{behind}"]
    subprocess.run([*compiler, *words], check=True)
    return first, stop, passed


# in a process of its own: where each name comes from, and whether the driver answers behind it
CHECK = """
import ctypes, json, sys
library, first = ctypes.CDLL("libnvidia-ml.so.1"), sys.argv[1]
maps = [line.split() for line in open("/proc/self/maps") if "r-xp" in line]
def file_of(name):
    at = ctypes.cast(getattr(library, name), ctypes.c_void_p).value
    return next(each[-1] for each in maps if int(each[0].split("-")[0], 16) <= at < int(each[0].split("-")[1], 16))
stop, passed = json.load(sys.stdin)
leaks = [name for name in stop if file_of(name) != first] + [name for name in passed if file_of(name) == first]
print(json.dumps([leaks, library.nvmlInit_v2()]))
"""


def check(first: Path, stop: list[str], passed: list[str], environment: dict[str, str]) -> None:
    """Exit unless all that is stopped is ours, the well-known setters among it, and the driver answers behind it."""
    words = [sys.executable, "-c", CHECK, str(first / LIBRARY)]
    done = subprocess.run(words, input=json.dumps([stop, passed]), env=environment, capture_output=True, text=True)
    leaks, code = json.loads(done.stdout) if done.stdout else ([done.stderr], -1)
    missing = [name for name in MUST_STOP if name not in stop]
    if leaks or code or missing:
        sys.exit(f"error: NOT SAFE, nothing is run: leaks {leaks[:5]}, init {code}, not stopped {missing}")


# --- what is run ------------------------------------------------------------------------------------------------------


def busy(seconds: float) -> None:
    """A training of products on the GPU; where there is no torch, one that waits."""
    end_s, step = time.monotonic() + seconds, 0
    try:
        import torch

        one = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    except (ImportError, RuntimeError):
        torch = None
    end_s = time.monotonic() + seconds
    while time.monotonic() < end_s:
        if torch:
            for _ in range(40):
                one @ one
            torch.cuda.synchronize()
        else:
            time.sleep(0.05)
        step += 1
        print(f"step {step}", flush=True)


def play(core_mhz: int) -> None:
    """A captured step, played at one pair, and at two in turn."""
    import importlib.util

    if not importlib.util.find_spec("torch"):
        sys.exit("not run: there is no torch here")
    from gpu_play import schedule

    import kernel_dvfs
    from kernel_dvfs_clocks.errors import InputError
    from kernel_dvfs_clocks.files import write_json
    from kernel_dvfs_clocks.nvml.board import resolve
    from kernel_dvfs_clocks.nvml.facts import facts, slug
    from kernel_dvfs_clocks.nvml.library import Library
    from kernel_dvfs_deploy import play as played
    from kernel_dvfs_step.framework import function_of

    try:
        step = function_of(f"{HERE.parent}/own_steps/steps.py:gpt_eager")()
        captured = kernel_dvfs.capture(step, results_dir=os.environ["RESULTS"])
        with Library() as nvml:
            name = slug(facts(nvml, resolve(nvml, "")))
        for changes in (0, 2):
            content = schedule(captured.record, 2)
            content["gpu"] = {"kind": "nvml", "name": name, "slug": name}
            content["pairs"] = [{"core_mhz": mhz, "mem_mhz": "auto"} for mhz in (core_mhz, 1500)]
            if not changes:
                content["launches"] = [[kernel, 0, time_s] for kernel, _, time_s in content["launches"]]
                content |= {"pairs": content["pairs"][:1], "changes": []}
            write_json(f"schedule_{changes}.json", content)
            with played(captured, f"schedule_{changes}.json", repeats=2, block_s=1.0) as run:
                print(run.certificate, flush=True)
    except InputError as error:
        sys.exit(f"error: {error}")


class Ran(NamedTuple):
    """What came of a command."""

    code: int | None  # None: it took too long
    said: str
    seconds: float


def run(words: list[str], environment: dict[str, str], folder: Path, seconds: float) -> Ran:
    """Run a command to its end, or for so many seconds."""
    began_s = time.monotonic()
    process = subprocess.Popen(
        words,
        env=environment,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    code: int | None
    try:
        said, _ = process.communicate(timeout=max(1.0, seconds))
        code = process.returncode
    except subprocess.TimeoutExpired:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        try:
            said, _ = process.communicate(timeout=5)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            said, _ = process.communicate()
        code = None
    return Ran(code, said, time.monotonic() - began_s)


@contextmanager
def brokered(command: list[str], environment: dict[str, str], folder: Path) -> Iterator[None]:
    """A broker, as long as the context lasts; its log goes to broker.log."""
    log = folder / "broker.log"
    with open(log, "w") as file:
        words = [*command, "broker", "--allow", str(os.getuid())]
        process = subprocess.Popen(words, env=environment, cwd=folder, stdout=file, stderr=file)
    socket = Path(environment["KERNEL_DVFS_BROKER_DIR"]) / "broker.sock"
    end_s = time.monotonic() + 15
    while not socket.exists() and process.poll() is None and time.monotonic() < end_s:
        time.sleep(0.05)
    try:
        yield
    finally:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(10)
        process.kill()
        with open(log, "a") as file:
            file.write(f"exit code {process.wait()}\n")


def state(environment: dict[str, str]) -> str:
    """What can be set, of every board, as the driver tells it."""
    code = """
import pynvml as nvml
nvml.nvmlInit()
for index in range(nvml.nvmlDeviceGetCount()):
    board = nvml.nvmlDeviceGetHandleByIndex(index)
    told = [nvml.nvmlDeviceGetName(board), nvml.nvmlSystemGetDriverVersion(), nvml.nvmlDeviceGetUUID(board)[:12]]
    for name in ("PowerManagementLimit", "EnforcedPowerLimit", "PersistenceMode", "MigMode", "ComputeMode", "EccMode"):
        try:
            told.append(f"{name} {getattr(nvml, 'nvmlDeviceGet' + name)(board)}")
        except nvml.NVMLError:
            pass
    print(*told, sep=", ")
"""
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    return done.stdout.strip() or done.stderr.strip()[-300:]


def main() -> int:
    """Returns 1 where a command did what it should not."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, help="a folder")
    parser.add_argument("--seconds", type=float, default=600, help="in all; what would come later is not run (600)")
    parser.add_argument("--results", type=Path, default=Path("results"), help="the folder with the native layer")
    parser.add_argument("--build", action="store_true", help="build it first, beside the commands that do not need it")
    parser.add_argument("--only", nargs="+", help="these commands")
    parser.add_argument("--busy", type=float, help=argparse.SUPPRESS)
    parser.add_argument("--play", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.busy:
        busy(options.busy)
    elif options.play:
        play(options.play)
    else:
        return compared(options)
    return 0


def compared(options: argparse.Namespace) -> int:
    """Run every command in both modes and write what came of them. Returns 1 where one did what it should not."""
    end_s = time.monotonic() + options.seconds
    options.output.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp())
    first, stop, passed = shim(folder)
    results = options.results.resolve()
    own = environment_behind(first, folder, results)
    check(first, stop, passed, own)
    before = state(own)
    builds = built(folder, results, own) if options.build else {}
    lines = [
        f"{datetime.date.today().isoformat()}; {before}",
        f"{len(stop)} names of NVML stopped, each shown to be stopped; {len(passed)} passed on",
        "",
        f"{'mode':8} {'command':20} {'code':>4} {'s':>6}  calls stopped; what it said last",
    ]
    wrong: list[str] = []
    skipped: list[str] = []
    wanted = cases([sys.executable, str(HERE), "--busy"], f"{CORE_MHZ},auto")
    wanted = [case for case in wanted if not options.only or case.name in options.only]
    # first what needs no build, then what needs the shorter one
    needs = ("", "graph", "cuda")
    every = [(case, mode) for need in needs for mode in ("deny", "pretend") for case in wanted if case.needs == need]
    with open(options.output / "outputs.txt", "w") as outputs:
        for case, mode in every:
            if case.needs in builds:
                with suppress(subprocess.TimeoutExpired):
                    builds[case.needs].wait(max(1.0, end_s - time.monotonic() - 30))
            left_s = end_s - time.monotonic() - 5
            if left_s < 3:
                skipped.append(f"{mode} {case.name} (no time was left)")
                continue
            log = options.output / f"{mode}.log"
            log.touch()
            known = len(log.read_text().splitlines())
            work = folder / f"{mode}-{case.name.replace(' ', '')}"
            environment = own | {"REFUSING_NVML_MODE": mode, "REFUSING_NVML_LOG": str(log.resolve())}
            ran = of_case(case, environment, work, results, min(case.seconds, left_s))
            outputs.write(f"=== {mode}: {case.name}: {' '.join(case.words)}\n{ran.said}\nexit code {ran.code}\n\n")
            outputs.flush()
            if ran.said.startswith("not run: "):
                skipped.append(f"{mode} {case.name} ({ran.said.strip()})")
                continue
            wrong += [f"{mode} {case.name}: {each}" for each in problems(ran, *getattr(case, mode))]
            calls = Counter(line.split()[1] for line in log.read_text().splitlines()[known:])
            lines.append(f"{mode:8} {case.name:20} {ran.code!s:>4} {ran.seconds:6.1f}  {told(calls)}; {last(ran.said)}")
            print(lines[-1], flush=True)
        after = state(own)
        for part, process in builds.items():
            process.kill()
            log = folder / f"{part}.log"
            outputs.write(f"=== build of {part}: exit code {process.wait()}\n{log.read_text()[-4000:]}\n")
    wrong += [] if after == before else ["the state of the board has changed"]
    lines += ["", f"state of the board afterwards: {'as before' if after == before else after}"]
    lines += [f"NOT RUN: {each}" for each in skipped]
    lines += [f"WRONG: {each}" for each in wrong] or ["nothing was set, and nothing was claimed"]
    (options.output / "refusing_nvml.txt").write_text("\n".join(lines) + "\n")
    print("\n".join(lines[len(every) + 4 - len(skipped) :]))
    shutil.rmtree(folder, ignore_errors=True)
    return int(bool(wrong))


def environment_behind(first: Path, folder: Path, results: Path) -> dict[str, str]:
    """The environment in which this NVML is found first, and tools that set clocks do nothing."""
    tools = folder / "tools"
    tools.mkdir()
    for name in TOOLS:
        (tools / name).write_text(f'#!/bin/sh\necho "$$ {name} $*" >>"$REFUSING_NVML_LOG"\nexit 4\n')
        (tools / name).chmod(0o755)
    paths = {"LD_LIBRARY_PATH": first, "PYTHONPATH": ROOT / "workflow", "PATH": tools}
    own = {name: os.pathsep.join([str(each), *filter(None, [os.environ.get(name)])]) for name, each in paths.items()}
    return os.environ | own | {"RESULTS": str(results), "REFUSING_NVML_LOG": str(folder / "checked.log")}


def built(folder: Path, results: Path, environment: dict[str, str]) -> dict[str, subprocess.Popen[bytes]]:
    """Builds of the native layer, which have begun."""
    found = {}
    for part in ("graph", "cuda"):
        words = [sys.executable, "-m", "kernel_dvfs", "build", "--out", str(results / "native"), f"--{part}", "on"]
        with open(folder / f"{part}.log", "w") as log:
            found[part] = subprocess.Popen(words, env=environment, cwd=ROOT, stdout=log, stderr=log)
    return found


def problems(ran: Ran, codes: set[int], word: str) -> list[str]:
    """What a command did that it should not."""
    found = [] if ran.code in codes else [f"exit code {ran.code}, not {sorted(codes)}"]
    found += [] if re.search(word, ran.said) else [f"does not say {word!r}"]
    found += [f"claims: {claim[0]!r}" for claim in [re.search(CLAIMS, ran.said)] if claim]
    return found + (["a traceback"] if "Traceback" in ran.said else [])


def told(calls: Counter[str]) -> str:
    """Calls that were stopped, in a few words."""
    return ", ".join(f"{name.removeprefix('nvmlDevice')} {count}" for name, count in sorted(calls.items())) or "none"


def last(said: str) -> str:
    """The last line that is not the training's."""
    lines = [line for line in said.splitlines() if line and not re.fullmatch(r"step \d+", line)]
    return lines[-1][:300] if lines else ""


def of_case(case: Case, environment: dict[str, str], work: Path, results: Path, seconds: float) -> Ran:
    """What came of a case; a broker's log and a record's verdict are part of what it said."""
    command = [sys.executable, "-P", "-m", "kernel_dvfs"]
    for name, folder in (("KERNEL_DVFS_LOCK_DIR", work / "locks"), ("KERNEL_DVFS_BROKER_DIR", work / "broker")):
        folder.mkdir(parents=True)
        environment = environment | {name: str(folder)}
    if case.name == "play":
        return run([sys.executable, *case.words], environment, work, seconds)
    if case.name == "broker":
        with brokered(command, environment, work):
            listed = run([*command, "broker", "--list"], environment, work, 20)
            ran = run([*command, "apply", "--through", "broker", *case.words], environment, work, seconds)
        log = (work / "broker.log").read_text()
        return Ran(ran.code, f"{listed.said}the broker's own log:\n{log}{ran.said}", ran.seconds)
    if case.needs == "cuda":
        (work / "results").mkdir()
        (work / "results/native").symlink_to(results / "native")
        import yaml

        # a small iteration: of a point at other clocks all kernels are made ready
        config = yaml.safe_load((ROOT / "config.yaml").read_text()) | {"batch": 4, "window_s": 2}
        (work / "config.yaml").write_text(yaml.safe_dump(config))
    ran = run([*command, *case.words], environment, work, seconds)
    record = work / "record.json"
    if record.exists():
        found = json.loads(record.read_text())
        verdict = json.dumps({"verdict": found["verdict"], "reasons": found["reasons"]})
        return Ran(ran.code, f"{ran.said}the record: {verdict}\n", ran.seconds)
    return ran


if __name__ == "__main__":
    sys.exit(main())
