"""Does it hold, whatever comes: runs killed at any moment, flipped bits, hostile archives, odd environments?

Each part draws from a seed, prints a line with what it tried and what failed, and ends with exit code 1 where anything
did:

    python experiments/benchmarks/robustness.py kills --seed 7

kills: a study whose whole group is killed, again and again, then completed: every file is as of one never killed.
flips: one bit of a record, setup or profile of that study: refused in one line, or what is read is the same.
deaths: whatever ends the owner of a GPU, at any moment, its clocks are free and its lease is gone (fake NVML).
broker: clients that say anything and hand over anything: it goes on, nothing stays locked, its log is plain lines.
archives: hostile contributions: refused in one line, or read, and no file anywhere else.
environments: commands in odd environments: done, or one line.

Damaged configurations, tables, records and files of every other reader are the tests' own fuzzers, which take other
seeds and numbers (`pytest tests/test_fuzzed_readers.py --fuzz N --fuzz-seed S`). What all of that showed last:
experiments/results/robustness.txt.
"""

import argparse
import contextlib
import gzip
import hashlib
import io
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import tempfile
import time
import traceback
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests/workflow"))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests/fakenvml"))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "workflow"))

import fake
from reduced_study import FOLDER, clone, command

from kernel_dvfs.errors import InputError
from kernel_dvfs.measurement import record, setup
from kernel_dvfs.profile import contribution, store

ROOT = Path(__file__).resolve().parents[2]
GIFT = ROOT / "experiments/collection/nvidia-h200/gpt3-xl-b40-tp1-2026-11-21"
EVIL = ("../x", "/tmp/x", "a/../../x", "x" * 300, "a\x1b[2J", "a\nb", "$(touch x)", "contribution.json/x", ".", "")


def shown(seed: str, what: str, tried: int, failed: list[str]) -> int:
    print(f"{what}, seed {seed}: {tried} tried, {len(failed)} failed", flush=True)
    for line in failed[:10]:
        print(f"  {line}")
    return bool(failed)


@contextlib.contextmanager
def judged(name: str, refused: list[str], failed: list[str]) -> Iterator[None]:
    """What is done within may be refused, in one line that is printed as it stands; any other error is a failure."""
    try:
        yield
    except InputError as error:
        refused.append(name)
        if not (str(error) and str(error).isprintable()):
            failed.append(f"{name}: {str(error)!r}")
    except Exception:
        failed.append(f"{name}: {traceback.format_exc(limit=-3)}")


# --- kills ------------------------------------------------------------------------------------------------------------


def run(directory: Path, wait_s: float | None = None) -> int | None:
    """The exit code of the study's run; None where its group was killed after so many seconds."""
    environment = os.environ | {"SOURCE_DATE_EPOCH": "1700000000"}
    with open(directory / "said.log", "ab") as said:
        process = subprocess.Popen(
            command("all"), cwd=directory, stdout=said, stderr=said, env=environment, start_new_session=True
        )
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.wait(wait_s)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return None


def digests(directory: Path) -> dict[str, str]:
    """Of each file, but the date of the newest result in a page, and what a process killed while it wrote has left
    beside its place: hidden, of its number, read by nobody."""
    files = [path for path in (directory / "results").rglob("*") if path.is_file() and path.name[0] != "."]
    contents = {path: re.sub(rb"(<dt>newest result</dt>)<dd>[^<]*", rb"\1", path.read_bytes()) for path in files}
    return {str(path.relative_to(directory)): hashlib.sha256(each).hexdigest() for path, each in contents.items()}


def study(folder: Path) -> Path:
    directory = clone(folder)
    if run(directory):
        sys.exit(f"error: the study failed: {(directory / 'said.log').read_text()[-2000:]}")
    return directory


def kills(seed: str, number: int, at: Path) -> int:
    rng, began_s = random.Random(seed), time.monotonic()
    whole = study(at / "whole")
    took_s = time.monotonic() - began_s
    killed, done = clone(at / "killed"), 0
    while done < number and run(killed, rng.uniform(2, 0.35 * took_s)) is None:
        done += 1
    failed = [f"the completing run failed: {killed}/said.log"] if run(killed) else []
    wanted, found = digests(whole), digests(killed)
    failed += [name for name in sorted({*wanted, *found}) if wanted.get(name) != found.get(name)]
    print(f"{done} kills of the whole group, {len(wanted)} files, {len(wanted.items() & found.items())} byte-identical")
    return shown(seed, "kills: files of a completed study", len({*wanted, *found}), failed)


# --- deaths -----------------------------------------------------------------------------------------------------------

# locks clocks and frees them as fast as it can, and dies at a moment that is drawn
OWNER = """
import os, signal, sys, time
from kernel_dvfs.gpu.guard import Guard
with Guard(sys.argv[1], through="nvml") as guard:
    guard.lock((345, 900), (2201, 2201))
    print("locked", flush=True)
    end_s = time.monotonic() + float(sys.argv[2])
    while time.monotonic() < end_s:
        guard.lock((345, 1200), (2201, 2201))
        guard.reset_core()
        guard.lock_core(345, 900)
    {death}
"""
BY_ITSELF = ("raise RuntimeError", "sys.exit(3)", "os._exit(3)", "os.abort()", "os.kill(os.getpid(), signal.SIGSEGV)")
BY_OTHERS = (
    "INT",
    "TERM",
    "HUP",
    "QUIT",
    "USR1",
    "USR2",
    "ALRM",
    "PROF",
    "XCPU",
    "KILL",
    "KILL to the group",
    "INT TERM",
)


def deaths(seed: str, number: int, at: Path) -> int:
    rng, failed = random.Random(seed), []
    boards = fake.Boards(fake.build(at), at / "boards.state", "h200", time="real")
    (at / "locks").mkdir()
    more = {
        "KERNEL_DVFS_LOCK_DIR": at / "locks",
        "KERNEL_DVFS_BROKER_DIR": at / "none",
        "PYTHONPATH": ROOT / "workflow",
    }
    environment = boards.environment(**{name: str(path) for name, path in more.items()})
    every = [*BY_ITSELF, *BY_OTHERS]
    for death in every * number:
        after_s = rng.uniform(0, 1)
        code = OWNER.format(death=death if death in BY_ITSELF else "time.sleep(60)")
        words = [sys.executable, "-c", code, boards.uuid, str(after_s if death in BY_ITSELF else 60)]
        run = subprocess.Popen(
            words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True
        )
        assert run.stdout and run.stdout.readline() == "locked\n", death
        if death in BY_OTHERS:
            time.sleep(after_s)
            kill = os.killpg if "group" in death else os.kill
            for name in death.removesuffix(" to the group").split():
                kill(run.pid, getattr(signal, f"SIG{name}"))
        try:
            run.wait(60)
        except subprocess.TimeoutExpired:
            failed.append(f"{death} after {after_s:.3f} s: lives on")
            run.kill()
        end_s = time.monotonic() + 60
        while boards.locks != ("none", "none") or [*(at / "locks").iterdir()]:
            if time.monotonic() > end_s:
                left = [path.name for path in (at / "locks").iterdir()]
                failed.append(f"{death} after {after_s:.3f} s: {boards.locks}, {left}")
                break
            time.sleep(0.05)
    return shown(seed, f"deaths: {len(every)} of the owner of a GPU", len(every) * number, failed)


# --- broker -----------------------------------------------------------------------------------------------------------

WORDS = (
    "hello",
    "list",
    "take",
    "evict",
    "prove",
    "lock",
    "reset",
    "limit",
    "",
    None,
    5,
    [],
    {},
    "\x1b[2J",
    "take " * 99,
)


def said(rng: random.Random, uuid: str) -> bytes:
    """A request, or what is none."""
    how = rng.choice(["sound", "sound", "sound", "request", "request", "junk", "long", "part", "many"])
    if how == "sound":
        about = {
            "uuid": uuid,
            "mode": "lock",
            "own": rng.random() < 0.5,
            "domain": rng.choice(["core", "mem", "power"]),
        }
        about |= {"do": rng.choice(["take", "take", "lock", "reset", "limit"]), "mhz": [345, 900], "mw": 400_000}
        return json.dumps(about).encode() + b"\n"
    odd = (
        None,
        -1,
        10**30,
        1e308,
        [345, 900],
        [900, 345],
        [1, 2, 3],
        [0, 0],
        ["a", {}],
        "core",
        "mem",
        "power",
        {},
        True,
    )
    request = {"do": rng.choice(WORDS), "uuid": rng.choice([uuid, uuid, uuid, "GPU-0", "../x", 5, None, [uuid]])}
    request |= {
        "mode": rng.choice(["lock", "auto-only", "dry-run", "no", 5]),
        "own": rng.choice([True, False, 1, None]),
    }
    request |= {name: rng.choice(odd) for name in ("domain", "mhz", "mw") if rng.random() < 0.7}
    line = json.dumps(request).encode() + b"\n"
    if how == "junk":
        return bytes(rng.randrange(256) for _ in range(rng.choice([1, 30, 3000]))) + rng.choice([b"", b"\n"])
    if how == "long":
        return b"[" * rng.choice([100, 4096, 100_000]) + b"\n"
    if how == "part":
        return line[: rng.randrange(len(line))]
    return line * rng.choice([2, 40]) if how == "many" else line


def broker(seed: str, number: int, at: Path) -> int:
    """Clients that say anything, and hand over anything, each until it likes no more."""
    rng, failed = random.Random(seed), []
    boards = fake.Boards(fake.build(at), at / "boards.state", "h200", time="real")
    boards.set(deny=1)
    nodes = fake.device_nodes(at)
    more = {"KERNEL_DVFS_BROKER_DIR": at / "broker", "KERNEL_DVFS_DEVICES_DIR": nodes, "FAKENVML_ROOT": 1}
    more |= {"PYTHONPATH": ROOT / "workflow", "KERNEL_DVFS_LOCK_DIR": at}
    environment = boards.environment(**{name: str(each) for name, each in more.items()})
    with open(at / "broker.log", "wb") as log:
        words = [sys.executable, "-m", "kernel_dvfs", "broker", "--allow", str(os.getuid())]
        serving = subprocess.Popen(words, env=environment, stdout=log, stderr=log)
    path, taken = str(at / "broker/broker.sock"), 0

    def connected() -> socket.socket:
        for _ in range(200):
            made = socket.socket(socket.AF_UNIX)
            made.settimeout(20)
            with contextlib.suppress(FileNotFoundError, ConnectionRefusedError):
                made.connect(path)
                return made
            time.sleep(0.1)
        sys.exit("error: the broker does not come")

    clients: list[socket.socket] = []
    handed = [os.open(each, os.O_RDWR) for each in (nodes / "nvidia7", nodes / "nvidia6", "/dev/null")]
    handed += [os.open("/", os.O_RDONLY), os.open(nodes / "nvidia7", os.O_PATH), *os.pipe(), socket.socket().detach()]
    for _ in range(number):
        if not clients or (len(clients) < 4 and rng.random() < 0.4):
            clients.append(connected())
        client = rng.choice(clients)
        files = [rng.choice(handed) for _ in range(rng.choice([1, 1, 2, 60]))] if rng.random() < 0.5 else []
        try:
            client.settimeout(0.05)
            client.sendall(said(rng, boards.uuid)) if not files else socket.send_fds(
                client, [said(rng, boards.uuid)], files
            )
            with contextlib.suppress(TimeoutError):
                answer = client.recv(1 << 16)
                taken += answer.startswith(b"{}")
                if b'"node"' in answer and rng.random() < 0.8:
                    socket.send_fds(client, [b"{}\n"], [handed[0]])
            gone = rng.random() < 0.2
        except OSError:
            gone = True
        if gone:
            clients.remove(client)
            client.close()
    for client in clients:
        client.close()
    with connected() as client:
        client.sendall(b'{"do": "hello"}\n')
        if b"allowed" not in client.recv(1 << 16):
            failed.append("it does not answer any more")
    end_s = time.monotonic() + 30
    while boards.locks != ("none", "none") and time.monotonic() < end_s:
        time.sleep(0.05)
    if boards.locks != ("none", "none"):
        failed.append(f"locks are left: {boards.locks}")
    serving.terminate()
    if code := serving.wait(60):
        failed.append(f"it ended with exit code {code}")
    text = (at / "broker.log").read_text("utf-8", "replace")
    failed += [line for line in text.splitlines() if "Traceback" in line or not line.isprintable()]
    failed += [line for line in text.splitlines() if "error: " in line and "Error" in line]
    print(f"{taken} times a client had the GPU or a clock; {len(text.splitlines())} lines in the log")
    return shown(seed, "broker: requests", number, failed)


# --- flips ------------------------------------------------------------------------------------------------------------


def flips(seed: str, number: int, at: Path) -> int:
    rng = random.Random(seed)
    failed: list[str] = []
    refused: list[str] = []
    whole = (at / "whole") if (at / "whole").is_dir() else study(at / "whole")
    readers = {
        "measurements/*/*/*/r0.json": record.read_any,
        "setup/*.json": setup.read,
        "profile.parquet": lambda path: (lambda read: (read.metadata, read.table.to_pylist()))(
            store.read_profile(path)
        ),
    }
    files = [(path, read) for pattern, read in readers.items() for path in sorted((whole / FOLDER).glob(pattern))]
    by_reader = [[pair for pair in files if pair[1] is read] for read in readers.values()]
    for _ in range(number):
        path, read = rng.choice(rng.choice(by_reader))
        data, before = path.read_bytes(), repr(read(str(path)))
        place = rng.randrange(8 * len(data))
        damaged = bytearray(data)
        damaged[place // 8] ^= 1 << place % 8
        path.write_bytes(damaged)
        name = f"{path.name}: bit {place}"
        with judged(name, refused, failed):
            if repr(read(str(path))) != before:
                failed.append(f"{name} is not seen")
        path.write_bytes(data)
    print(f"{len(refused)} refused, the rest changed nothing that is read")
    return shown(seed, "flips: bits of records, setups and profiles", number, failed)


# --- archives ---------------------------------------------------------------------------------------------------------


def member(name: str, rng: random.Random, data: bytes = b"x") -> tuple[tarfile.TarInfo, bytes]:
    made = tarfile.TarInfo(name)
    made.type = rng.choice([tarfile.REGTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE])
    made.linkname = rng.choice(["/etc/passwd", "../../x", "contribution.json", "\x1b[2J"])
    made.size = len(data) if made.isreg() else 0
    return made, data


def hostile(rng: random.Random) -> bytes:
    """An archive that is not as one should be."""
    files = {path.name: path.read_bytes() for path in GIFT.iterdir() if path.name in contribution.MEMBERS}
    how = rng.choice(["name", "names", "twice", "size", "content", "bytes", "cut", "bomb", "number", "kind", "pax"])
    if how == "content":
        about = json.loads(files["contribution.json"])
        key = rng.choice([*about, "more"])
        odd = (None, [], {}, -1, 10**400, 1e308, True, "\x1b[2J", "../x", [[]], {"": {}}, "9" * 5000)
        about[key] = rng.choice(odd)
        if isinstance(json.loads(files["contribution.json"]).get(key), dict) and rng.random() < 0.7:
            about[key] = json.loads(files["contribution.json"])[key]
            about[key][rng.choice([*about[key], "more"])] = rng.choice(odd)
        files["contribution.json"] = json.dumps(about).encode()
    if how in ("number", "kind"):
        rows = files["profile.csv"].decode().splitlines()
        place = rng.randrange(len(rows))
        cells = rows[place].split(",")
        odd = ("nan", "inf", "-1", "1e999", "9" * 400, "\x1b[2J", "=1+1", '"', "\x00", "", "auto", "../x")
        cells[rng.randrange(len(cells))] = rng.choice(odd)
        rows[place] = ",".join(cells if how == "number" else cells[:-1])
        files["profile.csv"] = "\n".join(rows).encode() + b"\n"
        about = json.loads(files["contribution.json"])
        about["files"]["profile.csv"] = hashlib.sha256(files["profile.csv"]).hexdigest()
        files["contribution.json"] = json.dumps(about).encode()
    inner = io.BytesIO()
    with tarfile.open(fileobj=inner, mode="w", format=rng.choice([tarfile.PAX_FORMAT, tarfile.GNU_FORMAT])) as archive:
        for name, data in files.items():
            made = tarfile.TarInfo(name)
            made.size = len(data)
            if how == "name" and rng.random() < 0.5:
                made.name = rng.choice(EVIL) + name
            if how == "pax":
                made.pax_headers = {
                    rng.choice(["path", "size", "linkpath", "GNU.sparse.size"]): rng.choice(["-1", "9" * 30, *EVIL])
                }
            archive.addfile(made, io.BytesIO(data))
        if how == "names":
            made, data = member(rng.choice([*EVIL, *files]), rng)
            archive.addfile(made, io.BytesIO(data))
        if how == "twice":
            made = tarfile.TarInfo(rng.choice([*files]))
            archive.addfile(made)
        if how == "bomb":
            made = tarfile.TarInfo("latency.json")
            made.size = rng.choice([1 << 20, 300 << 20])
            archive.addfile(made, io.BytesIO(bytes(made.size)))
    data = bytearray(inner.getvalue())
    if how == "size":
        data[124:136] = rng.choice([b"77777777777\0", b"\x80" + b"\xff" * 11, b"-0000000001\0", b"           \0"])
    packed = bytearray(gzip.compress(bytes(data), 1))
    if how == "bytes":
        for _ in range(rng.choice([1, 3, 30])):
            packed[rng.randrange(len(packed))] = rng.randrange(256)
    return bytes(packed[: rng.randrange(len(packed))] if how == "cut" else packed)


def archives(seed: str, number: int, at: Path) -> int:
    rng = random.Random(seed)
    failed: list[str] = []
    refused: list[str] = []
    folder = at / "archives"
    (folder / "inside").mkdir(parents=True)
    os.chdir(folder / "inside")
    for number_ in range(number):
        path, out = folder / "inside/a.tar.gz", folder / "inside/p.parquet"
        path.write_bytes(hostile(rng))
        with judged(str(number_), refused, failed):
            contribution.import_contribution(path, out)
        beside = {each.name for each in folder.rglob("*")} - {"inside", "a.tar.gz", "p.parquet", "p-latency.json"}
        if beside:
            failed.append(f"{number_}: left {beside}")
    print(f"{len(refused)} refused, the rest harmless and read")
    return shown(seed, "archives: hostile contributions", number, failed)


# --- environments -----------------------------------------------------------------------------------------------------

GONE = object()  # a variable that is not there
ODD: dict[str, dict] = {
    "as it is": {},
    **{f"{name} is missing": {name: GONE} for name in ("HOME", "PATH", "TERM", "LANG", "USER")},
    **{
        f"{name} is empty": {name: ""}
        for name in ("HOME", "PATH", "TMPDIR", "KERNEL_DVFS_LOCK_DIR", "CUDA_VISIBLE_DEVICES")
    },
    "no home": {"HOME": "/nonexistent"},
    "no folder for what passes": {"TMPDIR": "/nonexistent"},
    "no locale": {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    "a locale that is not there": {"LC_ALL": "xx_YY.UTF-8"},
    "ASCII alone": {"PYTHONIOENCODING": "ascii", "LC_ALL": "POSIX"},
    "a time zone that is none": {"TZ": "No/Where:9"},
    "a terminal of one column": {"COLUMNS": "1"},
    "columns that are no number": {"COLUMNS": "wide"},
    "an epoch that is none": {"SOURCE_DATE_EPOCH": "yesterday"},
    "an epoch before all": {"SOURCE_DATE_EPOCH": "-99999999999999"},
    "an epoch after all": {"SOURCE_DATE_EPOCH": "9" * 30},
    "devices that are none": {"CUDA_VISIBLE_DEVICES": "GPU-nothing,9,-1"},
    "a folder of leases that is not there": {"KERNEL_DVFS_LOCK_DIR": "/nonexistent/a"},
    "a folder of leases that is a file": {"KERNEL_DVFS_LOCK_DIR": "/etc/passwd"},
    "a relative folder of leases": {"KERNEL_DVFS_LOCK_DIR": "locks"},
    "a folder of leases with a line's end": {"KERNEL_DVFS_LOCK_DIR": "/tmp/a\nerror: b"},
    "a folder of the broker that is no socket's": {"KERNEL_DVFS_BROKER_DIR": "/etc"},
    "a folder of the broker that is too long": {"KERNEL_DVFS_BROKER_DIR": "/tmp/" + "x" * 200},
    "patience that is none": {"KERNEL_DVFS_NVML_PATIENCE_S": "long"},
    "patience of nan": {"KERNEL_DVFS_NVML_PATIENCE_S": "nan"},
    "patience without end": {"KERNEL_DVFS_NVML_PATIENCE_S": "inf"},
    "patience below nothing": {"KERNEL_DVFS_NVML_PATIENCE_S": "-1"},
    "half a job of Slurm": {"SLURM_JOB_ID": "x", "SLURM_JOB_GPUS": "a,b", "SLURM_GPU_FREQ": "\x1b[2J"},
    "a token for no daemon": {"ZEUSD_SOCK_PATH": "/etc/passwd", "ZEUSD_TOKEN": "a\nb"},
    "a backend that is none": {"MPLBACKEND": "nothing", "MPLCONFIGDIR": "/nonexistent"},
    "threads that are no number": {"OMP_NUM_THREADS": "many"},
    "bytes that are no text": {"HOME": os.fsdecode(b"/tmp/caf\xe9"), "USER": os.fsdecode(b"\xff")},
    "no docstrings": {"PYTHONOPTIMIZE": "2"},
    "nothing is compiled": {"PYTHONDONTWRITEBYTECODE": "1"},
    "warnings are told": {"PYTHONWARNINGS": "always"},
}
# of the process, beside its variables
STREAMS = {
    "no output": "exec 1>&-",
    "no errors": "exec 2>&-",
    "no input": "exec 0<&-",
    "a full disk": "exec 1>/dev/full",
    "16 open files": "ulimit -n 16",
    "a mask of all": "umask 077",
    "no core, 600 MB": "ulimit -c 0",
}


def environments(seed: str, _: int, at: Path) -> int:
    rng, failed, tried = random.Random(seed), [], 0
    boards = fake.Boards(fake.build(at), at / "boards.state", "h200")
    profile, schedule = str(at / "p.parquet"), str(at / "s.json")
    contribution.import_contribution(GIFT, profile)
    commands = [["devices"], ["reset", "--all"], ["choose", profile, "-o", schedule]]
    commands += [["import", str(GIFT), "-o", profile], ["report", profile, schedule, "-o", str(at / "r.html")]]
    cases = {name: (more, "") for name, more in ODD.items()} | {name: ({}, code) for name, code in STREAMS.items()}
    base = boards.environment(KERNEL_DVFS_LOCK_DIR=str(at), KERNEL_DVFS_TEST_LOAD=str(fake.build_record(at)))
    for name in rng.sample(sorted(cases), len(cases)):
        more, code = cases[name]
        environment = {
            key: each
            for key, each in (base | more | {"PYTHONPATH": str(ROOT / "workflow")}).items()
            if each is not GONE
        }
        for words in commands:
            tried += 1
            with tempfile.TemporaryDirectory() as folder:
                call = ["sh", "-c", f'{code}\nexec "$0" "$@"', sys.executable, "-m", "kernel_dvfs", *words]
                if not code:
                    call = call[3:]
                done = subprocess.run(call, env=environment, cwd=folder, capture_output=True, timeout=120)
                left = sorted(path.name for path in Path(folder).iterdir() if path.name != "locks")
            errors = [line for line in done.stderr.decode("utf-8", "replace").splitlines() if line.startswith("error:")]
            told = done.returncode == 0 or len(errors) == 1 or name in ("no errors", "16 open files")
            if b"Traceback" in done.stderr or not told or left or done.returncode not in (0, 1, 2, 120):
                failed.append(f"{name}: {words[0]}: exit {done.returncode}, left {left}: {done.stderr[-1500:]!r}")
    print(f"{len(cases)} environments, {len(commands)} commands each")
    return shown(seed, "environments: commands", tried, failed)


# {part: (what does it, how many)}
PARTS = {"kills": (kills, 8), "deaths": (deaths, 1), "flips": (flips, 250), "archives": (archives, 305)}
PARTS |= {"broker": (broker, 3000), "environments": (environments, 1)}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--seed", default="1")
    parser.add_argument(
        "--number", type=int, default=0, help="of kills (8), of each death (1), of flips (250), of archives (305)"
    )
    parser.add_argument("--folder", type=Path, help="where studies are made, and kept (default: one that is deleted)")
    options = parser.parse_args()
    part, number = PARTS[options.part]
    place = options.folder or Path(tempfile.mkdtemp())
    try:
        sys.exit(part(options.seed, options.number or number, place))
    finally:
        if not options.folder:
            shutil.rmtree(place, ignore_errors=True)
