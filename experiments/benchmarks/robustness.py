"""Does it hold, whatever comes: runs killed at any moment, flipped bits, odd environments?

Each part draws from a seed, prints a line with what it tried and what failed, and ends with exit code 1 where anything
did:

    python experiments/benchmarks/robustness.py kills --seed 7

kills: a study whose whole group is killed, again and again, then completed: every file is as of one never killed.
flips: one bit of a record, setup or profile of that study: refused in one line, or what is read is the same.
deaths: whatever ends the owner of a GPU, at any moment, its clocks are free and its lease is gone (fake NVML).
power: likewise under a power limit, its holder killed or not: the limit that was there comes back, by itself or by the
    next `reset`.
forgeries: whatever a user puts where leases are: root's `reset` in all its forms, and the next run, end in plain lines,
    free what they should, change no power limit and write to no other file. Needs root.
epilogs: jobs that are killed, with a lost GPU, planted leases and modules: the epilog of a real slurmd frees every GPU
    that answers, and runs nothing that was planted. Needs root, slurm-wlm and munge.
sudo: command lines near those that sudoers allows: sudo runs the four things for one GPU, and nothing wider. Needs root
    and sudo.
broker: clients that say anything and hand over anything: it goes on, nothing stays locked, its log is plain lines.
budgets: files of every kind, plausible, odd and hostile: read or refused in one line, each for less than 2 s of a
    processor and 300 MB.
environments: commands in odd environments: done, or one line.

Damaged configurations, tables, records and files of every other reader are the tests' own fuzzers, which take other
seeds and numbers (`pytest tests/test_fuzzed_readers.py --fuzz N --fuzz-seed S`). What all of that showed last:
experiments/results/robustness.txt.
"""

import argparse
import contextlib
import hashlib
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests/workflow"))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests/fakenvml"))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests/readers"))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests/slurm"))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests/real"))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "workflow"))

import fake
from reduced_study import FOLDER, clone, command

from kernel_dvfs.measurement import record, setup
from kernel_dvfs.profile import store, table
from kernel_dvfs_clocks.errors import InputError

ROOT = Path(__file__).resolve().parents[2]


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
from kernel_dvfs_clocks.guard import Guard
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


# --- power ------------------------------------------------------------------------------------------------------------

ADMINS_MW = 537_000  # lower than the board's own 700 W
# sets limits as fast as it can; a killed holder leaves them to the next one
LIMITS = """
import random, sys
from kernel_dvfs_clocks.guard import Guard
rng = random.Random(sys.argv[2])
with Guard(sys.argv[1], through="nvml") as guard:
    guard.limit_power(423_000)
    print(guard.holder.pid, flush=True)
    while True:
        guard.lock_core(345, 900)
        guard.limit_power(rng.randrange(200_000, 700_000))
        if rng.random() < 0.3:
            guard.limit_power(None)
"""


def power(seed: str, number: int, at: Path) -> int:
    """Owners that are killed while they set power limits."""
    rng, failed = random.Random(seed), []
    boards = fake.Boards(fake.build(at), at / "boards.state", "h200", time="real", limit_mw=ADMINS_MW)
    locks = at / "locks"
    locks.mkdir()
    environment = _environment(boards, locks, at)
    alone = 0
    for turn in range(number):
        after_s, how = rng.uniform(0, 0.6), rng.choice(["alone", "watched", "watched"])
        kill, name = rng.choice([(os.kill, "KILL"), (os.killpg, "KILL"), (os.kill, "TERM"), (os.kill, "SEGV")])
        words = [sys.executable, "-c", LIMITS, boards.uuid, f"{seed} {turn}"]
        run = subprocess.Popen(
            words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True
        )
        assert run.stdout
        holder = int(run.stdout.readline())
        time.sleep(after_s)
        if how == "alone":
            os.kill(run.pid, signal.SIGSTOP)  # else it may start another one before it dies
            os.kill(holder, signal.SIGKILL)
            kill, name = os.kill, "KILL"
        kill(run.pid, getattr(signal, f"SIG{name}"))
        run.wait(60)
        if how == "alone":
            alone += 1
            words = [sys.executable, "-m", "kernel_dvfs", "reset", *rng.choice([["--all"], ["--all", "--stale"]])]
            subprocess.run(words, env=environment, capture_output=True, timeout=60)
        end_s = time.monotonic() + 60
        while (left := (boards.get("limit_mw"), *boards.locks, *map(str, locks.iterdir()))) != (
            str(ADMINS_MW),
            *("none", "none"),
        ):
            if time.monotonic() > end_s:
                failed.append(f"SIG{name} after {after_s:.3f} s, {how}: {left}")
                break
            time.sleep(0.05)
    print(f"{alone} with the holder killed first")
    return shown(seed, "power: kills of who sets a power limit", number, failed)


def _environment(boards: fake.Boards, locks: Path, at: Path) -> dict[str, str]:
    own = {"KERNEL_DVFS_LOCK_DIR": locks, "KERNEL_DVFS_BROKER_DIR": at / "none", "PYTHONPATH": ROOT / "workflow"}
    return boards.environment(**{name: str(each) for name, each in own.items()})


# --- forgeries --------------------------------------------------------------------------------------------------------

NOBODY = 65534


def forged(rng: random.Random, uuid: str) -> bytes:
    """What no run writes into a lease, or nearly what one does."""
    sound = {
        **{"schema": "kernel-dvfs/lease/1", "uuid": uuid, "pid": 1, "process_start": 5, "boot_id": "x", "user": "root"},
        **{"host": "h", "since_utc": "2026-11-29T00:00:00Z", "requested": "900-2201"},
    }
    odd = (None, -1, 10**30, 1e308, "\x1b[2J", "a\nb", "x" * 9000, [], {}, True, "../../x", "$(touch x)")
    how = rng.choice(["sound", "field", "field", "names", "deep", "junk", "empty", "power"])
    if how == "power":
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return json.dumps({"schema": "kernel-dvfs/power-limit/1", "boot_id": boot, "limit_mw": 111_000}).encode()
    if how == "field":
        sound[rng.choice([*sound, "more"])] = rng.choice(odd)
    if how == "names":
        return ("{" + ", ".join(['"requested": "x"'] * rng.choice([2, 4000, 20000])) + "}").encode()
    if how == "deep":
        return b"[" * rng.choice([100, 60_000])
    if how == "junk":
        return bytes(rng.randrange(256) for _ in range(rng.choice([1, 300, 65_000])))
    return b"" if how == "empty" else json.dumps(sound).encode()


def put(rng: random.Random, path: Path, content: bytes, canary: Path) -> str:
    """Something of nobody's at a path; what, in a word."""
    kind = rng.choice(["file", "file", "file", "file", "link", "second name", "pipe", "folder", "socket"])
    if kind == "file":
        path.write_bytes(content)
        path.chmod(rng.choice([0o666, 0o644, 0o600, 0o000]))
    elif kind == "link":
        path.symlink_to(rng.choice([canary, Path("/dev/zero"), Path("nowhere"), path]))
    elif kind == "second name":
        os.link(canary, path)
        return kind  # whose owner is the canary's
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(str(path))
    os.chown(path, NOBODY, NOBODY, follow_symlinks=False)
    return kind


def forgeries(seed: str, number: int, at: Path) -> int:
    """What users put where leases are, before root's commands and a run of root's."""
    if os.geteuid():
        sys.exit("error: forgeries: needs root, who is not to trust what others have written")
    rng, failed = random.Random(seed), []
    boards = fake.Boards(fake.build(at), at / "boards.state", "h200,h200", time="real", limit_mw=ADMINS_MW)
    canary, locks = at / "canary", at / "locks"
    canary.write_text("as it was")
    environment = _environment(boards, locks, at)
    take = f"from kernel_dvfs_clocks.guard import Guard\nwith Guard({boards.uuid!r}): pass"
    lock = "from kernel_dvfs_clocks.nvml.board import Board\nfrom kernel_dvfs_clocks.nvml.library import Library\n"
    lock += f"with Library() as nvml: Board(nvml, {boards.uuid!r}).lock_core(345, 900)"
    # {words: whether the clocks are free afterwards, whatever lies there}
    asked = {("reset", "--all", "--after-job"): True, ("reset", "--all", "--force"): True, ("reset", "--all"): False}
    asked |= {("reset", "--all", "--stale"): False, ("devices",): False, (): False}
    for _ in range(number):
        locks.mkdir()
        locks.chmod(0o1777)
        names = [f"kernel-dvfs-{boards.get('uuid', board)}" for board in (0, 1)] + ["kernel-dvfs-GPU-none", "x"]
        put_there = []
        for name in rng.sample(
            [f"{each}{end}" for each in names for end in (".json", ".power")], rng.choice([1, 2, 5])
        ):
            content = forged(rng, boards.uuid)
            put_there.append(f"{name}: {put(rng, locks / name, content, canary)}, {content[:60]!r}")
        subprocess.run([sys.executable, "-c", lock], env=environment, check=True)
        words, frees = rng.choice([*asked.items()])
        call = [sys.executable, *(("-m", "kernel_dvfs", *words) if words else ("-c", take))]
        what = f"{' '.join(words) or 'a run'} with {put_there}"
        try:
            done = subprocess.run(call, env=environment, cwd=at, capture_output=True, timeout=60)
        except subprocess.TimeoutExpired:
            failed.append(f"{what}: does not end")
            continue
        said = (done.stdout + done.stderr).decode("utf-8", "replace")
        if words and ("Traceback" in said or done.returncode not in (0, 2)):
            failed.append(f"{what}: exit code {done.returncode}, {said[-500:]!r}")
        if any(not line.isprintable() for line in said.splitlines()):
            failed.append(f"{what}: says {said[-500:]!r}")
        if frees and boards.locks != ("none", "none"):
            failed.append(f"{what}: {boards.locks}, {said[-500:]!r}")
        if canary.read_text() != "as it was" or boards.get("limit_mw") != str(ADMINS_MW):
            failed.append(f"{what}: {canary.read_text()!r}, {boards.get('limit_mw')} mW")
            canary.write_text("as it was")
        shutil.rmtree(locks)
    return shown(seed, "forgeries: of leases and power limits", number, failed)


# --- epilogs ----------------------------------------------------------------------------------------------------------


def epilogs(seed: str, number: int, at: Path) -> int:
    """Jobs on a slurmd of our own, each with what it leaves, and an end."""
    import cluster
    from test_epilogs import FIRST, HOLDS, NAMES, Node

    if why := cluster.missing():
        sys.exit(f"error: epilogs: no Slurm can be started here: {why}")
    rng, failed, counted = random.Random(seed), [], {"lost": 0, "killed": 0, "planted": 0, "held": 0}
    node = Node(fake.build(at))
    try:
        node.slurm.start()
        mark = node.folder / "mark"
        (node.folder / "plant").write_text(
            f"import os\nopen({str(mark)!r}, 'a').write(f'{{__name__}} as {{os.geteuid()}}\\n')\n"
        )
        for turn in range(number):
            gpus, ends = rng.choice([1, 2]), rng.choice(["itself", "itself", "scancel", "scancel --signal=KILL"])
            loses, holds, plants = gpus == 2 and rng.random() < 0.4, rng.random() < 0.5, rng.random() < 0.6
            lines = []
            if plants:
                for place, names in ((node.folder, NAMES + FIRST), (node.folder / "of_nobody", NAMES)):
                    lines.append(f"mkdir -p {place}")
                    lines += [f"cp {node.folder}/plant {place}/{name}.py 2>/dev/null" for name in names]
                (node.folder / "planted").write_bytes(forged(rng, node.uuid(0)))
                lines += [f"cp {node.folder}/planted {node.locks}/kernel-dvfs-{node.uuid(b)}.json" for b in range(gpus)]
            options = [f"--gpus={gpus}", f"--uid={NOBODY}", f"--gid={NOBODY}"]
            job = node.begin("\n".join(lines), *options)
            for board in range(gpus):
                node.lock(board)
            if holds:  # a run of root's within the job, killed with its holder
                code = HOLDS.format(uuid=node.uuid(0), then="os.kill(os.getpid(), signal.SIGKILL)")
                own = os.environ | node.own | {"PYTHONPATH": str(ROOT / "workflow")}
                subprocess.run([sys.executable, "-c", code], env=own, capture_output=True)
            node.boards.set(1, lost=int(loses))
            time.sleep(rng.uniform(0, 0.5))
            if ends != "itself":
                node.slurm.ask(*ends.split(), "--full", job)
            code = node.end(job)
            what = f"job {turn}: {gpus} GPUs, {ends}, lost {loses}, held {holds}, planted {plants}"
            if code != 2 * loses:
                failed.append(f"{what}: exit code {code}: {node.said('epilog')[-500:]}")
            failed += [
                f"{what}: GPU {b} stays locked" for b in range(gpus) if not (b and loses) and not node.is_free(b)
            ]
            if mark.exists():
                failed.append(f"{what}: root has run {mark.read_text()}")
                mark.unlink()
            counted["lost"] += loses
            counted["killed"] += ends != "itself"
            counted["planted"] += plants
            counted["held"] += holds
            node.boards.set(1, lost=0)
            if loses:
                node.wait_for(lambda: "Epilog error" in node.state(), "the node to be drained")
                node.resume()
            for path in [*node.locks.iterdir(), *node.folder.glob("*.log"), *node.folder.glob("*.py")]:
                path.unlink()
            shutil.rmtree(node.folder / "of_nobody", ignore_errors=True)
    finally:
        node.slurm.stop()
        shutil.rmtree(node.folder)
    print(", ".join(f"{count} {name}" for name, count in counted.items()))
    return shown(seed, "epilogs: jobs", number, failed)


# --- sudo -------------------------------------------------------------------------------------------------------------

WORDS_OF_SUDO = ("-lgc", "-lmc", "-rgc", "-rmc", "-pl", "300", "-ac", "345,1500", "2201,2201", "1,2", "345", "-i", "0")
WORDS_OF_SUDO += ("", " ", "*", "-lgc 1,2", "1,2 -pl 300", "１,２", "-lgc=1,2", "$(id)", ";", "\n-pl 3", "--help", "-r")


def sudo(seed: str, number: int, at: Path) -> int:
    """Command lines of a user whom sudoers names, half of them near what is allowed."""
    from laboratory import Lab
    from test_sudo import missing, named_by_sudoers

    if why := missing():
        sys.exit(f"error: sudo: {why}")
    rng, failed = random.Random(seed), []
    at.chmod(0o755)
    boards = fake.Boards(fake.build(at), at / "boards.state", "h200,h200", time="real")
    tool, uuid, ran = "/opt/bin/nvidia-smi", boards.uuid, 0
    with named_by_sudoers(Lab(boards, at / "work", {})) as made:
        for _ in range(number):
            words = [tool, "-i", uuid, rng.choice(["-lgc", "-lmc", "-rgc", "-rmc"])]
            words += [f"{rng.randrange(3000)},{rng.randrange(3000)}"] * words[-1].startswith("-l")
            for _ in range(rng.choice([0, 1, 1, 2, 3])):
                change = rng.choice(["put", "put", "cut", "swap", "join"])
                place = rng.randrange(len(words))
                if change == "put":
                    words.insert(place + 1, rng.choice([*WORDS_OF_SUDO, uuid, boards.get("uuid", 1)]))
                elif change == "cut" and len(words) > 1:
                    del words[max(1, place)]
                elif change == "swap":
                    words[place] = rng.choice([*WORDS_OF_SUDO, boards.get("uuid", 1), "/bin/sh", "/opt/bin/../bin/sh"])
                elif place + 1 < len(words):
                    words[place : place + 2] = [" ".join(words[place : place + 2])]
            may = words[0] == tool and re.fullmatch(
                rf"-i {uuid} (-l[gm]c [0-9]+,[0-9]+|-r[gm]c)", " ".join(words[1:]), re.ASCII
            )
            call = [*made.under, "sudo", "-k", "-n", "--", *words]
            done = subprocess.run(call, capture_output=True, text=True, timeout=60)
            was_refused = done.returncode == 1 and ("password is required" in done.stderr or "sorry" in done.stderr)
            was_refused |= "not found" in done.stderr
            ran += not was_refused
            if bool(may) == was_refused:
                failed.append(f"{words}: {'allowed' if may else 'wider'}, exit code {done.returncode}, {done.stderr}")
            if boards.get("limit_mw") != "700000" or boards.get("core_lock", 1) != "none":
                failed.append(f"{words}: more than clocks of one GPU: {boards.get('limit_mw')} mW")
        made.boards.set(deny=0)
    print(f"{ran} were run")
    return shown(seed, "sudo: command lines", number, failed)


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
    measured = at / "measured.csv"
    rows = [f"{kernel},{core},5001,{9 / core},{core / 90}" for kernel in "ab" for core in (900, 1200, 1500)]
    measured.write_text("\n".join(["kernel,core_mhz,mem_mhz,time_s,energy_j", *rows]) + "\n")
    table.import_to_profile(measured, profile, reference="highest")
    commands = [["devices"], ["reset", "--all"], ["choose", profile, "-o", schedule]]
    commands += [["import", str(measured), "--reference", "highest", "-o", profile]]
    commands += [["report", profile, schedule, "-o", str(at / "r.html")]]
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


# --- budgets ----------------------------------------------------------------------------------------------------------

MOST_CPU_S, MOST_MB = 2.0, 300


def memory_mb(name: str) -> float:
    """A figure of /proc/self/status, such as VmHWM: the most that this process has held."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(name))
    return int(line.split()[1]) / 1024


def cost(path: Path, read: Callable[[Path], object]) -> tuple[float, float, str]:
    """(CPU s, MB, what went wrong) of reading a file in this process."""
    Path("/proc/self/clear_refs").write_text("5")  # the most so far is what is held now
    held_mb, began_s, wrong = memory_mb("VmRSS"), time.process_time(), ""
    try:
        read(path)
    except InputError as error:
        wrong = "" if str(error) and "\n" not in str(error) else repr(str(error))
    except Exception:
        wrong = traceback.format_exc(limit=-3)
    return time.process_time() - began_s, memory_mb("VmHWM") - held_mb, wrong


def budgets(seed: str, number: int, at: Path) -> int:
    """number: files, over all kinds."""
    from made_files import FILES, drawn

    at.mkdir(parents=True, exist_ok=True)
    failed, tried, worst = [], 0, []
    first = zlib.crc32(seed.encode())
    for kind, (name, _, read) in FILES.items():
        for start in range(0, number // len(FILES) + 1, 50):
            # of 50 files each in a process of its own: what one holds is not what the next is told to
            out, into = os.pipe()
            child = os.fork()
            if not child:
                os.close(out)
                with os.fdopen(into, "w") as told:
                    for place in range(start, min(start + 50, number // len(FILES) + 1)):
                        path = at / name
                        path.write_bytes(drawn(kind, [first, zlib.crc32(kind.encode()), place]))
                        print(json.dumps([place, path.stat().st_size, *cost(path, read)]), file=told, flush=True)
                os._exit(0)
            os.close(into)
            with os.fdopen(out) as told:
                found = [json.loads(line) for line in told]
            ended = os.waitpid(child, 0)[1]
            if ended:
                failed.append(f"{kind} {start + len(found)}: the process ended with {ended}")
            for place, size, cpu_s, mb, wrong in found:
                tried += 1
                worst.append((cpu_s, mb, kind, place))
                if wrong:
                    failed.append(f"{kind} {place}: {wrong}")
                if cpu_s > MOST_CPU_S or mb > MOST_MB:
                    failed.append(f"{kind} {place}: {size} bytes cost {cpu_s:.2f} CPU s and {mb:.0f} MB")
    for place, unit in ((0, "CPU s"), (1, "MB")):
        print(
            f"most {unit}: "
            + ", ".join(f"{own[2]} {own[3]} {own[place]:.2f}" for own in sorted(worst, key=lambda own: -own[place])[:5])
        )
    return shown(seed, "budgets: files", tried, failed)


# {part: (what does it, how many)}
PARTS = {"kills": (kills, 8), "deaths": (deaths, 1), "flips": (flips, 250)}
PARTS |= {"power": (power, 40), "forgeries": (forgeries, 200), "epilogs": (epilogs, 20), "sudo": (sudo, 300)}
PARTS |= {"broker": (broker, 3000), "environments": (environments, 1), "budgets": (budgets, 2400)}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--seed", default="1")
    parser.add_argument(
        "--number",
        type=int,
        default=0,
        help="of each: kills 8, deaths 1 a way, flips 250, files 2400, ... (see PARTS)",
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
