"""Break the code in one place at a time and see whether a test notices.

    python tests/mutate.py ROOM [COUNT] [--seed 1] [--without FOLDER] [--tests tests/ROOM ...] [--most 60]
        [--again OUTPUT] [-o OUTPUT]

ROOM: a folder or file below workflow/kernel_dvfs, or below workflow (kernel_dvfs_pipeline). A break is a changed
comparison, sign, number, `and`, `not`, `min` inside a function; what only makes a message is left alone. The same room,
seed and code give the same breaks.

It works on a copy of the tree. First the tests run once, unbroken, and each function of the room is noted with the
tests that call it. Then each break is shown to these alone, the quickest first, until one fails. A break that makes
them hang counts as noticed. What survives is code without a test, a test that cannot tell, or a break that changes
nothing.
"""

from __future__ import annotations

import argparse
import ast
import compileall
import contextlib
import copy
import json
import math
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from select import select
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
ROAD, SIBLINGS = Path("workflow/kernel_dvfs"), Path("workflow")  # what holds rooms
QUIET = ["-q", "-p", "no:cacheprovider", "--hypothesis-seed=0", "--fuzz=200", "-m", "not workflow and not compiles"]
_ENDED = (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)  # a run of pytest that came to its end
# what tests import, loaded once: every run is a fork of this process
LIBRARIES = ("numpy", "pandas", "pyarrow.parquet", "scipy.special", "jsonschema", "yaml", "mpmath", "hypothesis")

COMPARE = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq}
COMPARE |= {ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is}
ARITHMETIC = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.Pow: ast.Mult}
ARITHMETIC |= {ast.FloorDiv: ast.Mult, ast.Mod: ast.Mult, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd}
OPPOSITE = {"min": "max", "max": "min", "minimum": "maximum", "maximum": "minimum", "any": "all", "all": "any"}
OPPOSITE |= {"argmin": "argmax", "argmax": "argmin", "floor": "ceil", "ceil": "floor"}


@dataclass(frozen=True)
class Break:
    """One place of one file, and what is done to it there."""

    path: Path  # below the root
    number: int  # of the place, in the file's order
    line: int
    function: int  # the line where the function begins that it is in
    change: str  # in words

    def __str__(self) -> str:
        return f"{str(self.path).removeprefix(f'{ROAD}/')}:{self.line} {self.change}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("room")
    parser.add_argument("count", type=int, nargs="?", default=30)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--without", action="append", default=[], help="a folder of the room that is left alone")
    parser.add_argument("--tests", nargs="+", help="default: tests/ROOM, without kernel_dvfs_")
    parser.add_argument("--most", type=float, default=60, help="CPU seconds of tests that a break is shown to (60)")
    parser.add_argument("--again", type=Path, help="only those of the breaks that survived in this output")
    parser.add_argument("-o", "--output", type=argparse.FileType("w"), default=sys.stdout)
    given = parser.parse_args()
    breaks = breaks_of(given.room, given.without)
    if not breaks:
        parser.error(f"{given.room}: nothing to break there; name a folder or file below {ROAD}, or below {SIBLINGS}")
    chosen = random.Random(given.seed).sample(breaks, min(given.count, len(breaks)))

    if given.again:
        survived = {line.rpartition(" | ")[0] for line in given.again.read_text().splitlines() if "| SURVIVED" in line}
        chosen = [each for each in chosen if str(each) in survived]

    def say(line: str) -> None:
        print(line, file=given.output, flush=True)

    with copy_of_the_tree() as folder:
        reached, seconds = unbroken(
            source_of(given.room), given.tests or [f"tests/{given.room.removeprefix('kernel_dvfs_')}"]
        )
        say(f"{given.room}: {len(breaks)} places, seed {given.seed}, {len(seconds)} tests")
        noticed = 0
        for each in chosen:
            tests = quickest_first(reached[str(each.path), each.function], seconds, given.most)
            by = broken(each, folder, tests, sum(map(seconds.get, tests)))
            noticed += bool(by)
            verdict = f"noticed by {by}" if by else f"SURVIVED {len(tests)} tests"
            say(f"{each} | {verdict}")
        say(f"== {given.room}, seed {given.seed}: {noticed} of {len(chosen)} noticed")


# --- breaks -----------------------------------------------------------------------------------------------------------


def breaks_of(room: str, without: list[str]) -> list[Break]:
    """All breaks of a room, file after file; none where there is no such room."""
    start = ROOT / source_of(room)
    left_alone = [start / each for each in without]
    found = []
    for path in [start] if start.is_file() else sorted(start.rglob("*.py")):
        if not any(path.is_relative_to(each) for each in left_alone):
            for number, (node, function) in enumerate(places(ast.parse(path.read_text("utf-8"))).items()):
                found.append(Break(path.relative_to(ROOT), number, node.lineno, function, in_words(node)))
    return found


def source_of(room: str) -> Path:
    """The folder or file of a room, below the root; it may not be there."""
    paths = [base / f"{room}{ending}" for base in (ROAD, SIBLINGS) for ending in ("", ".py")]
    return next((path for path in paths if (ROOT / path).exists()), paths[0])


def places(tree: ast.Module) -> dict[ast.expr, int]:
    """{expression inside a function that can be broken: the first line of that function's code}, in order."""
    inside: dict[ast.AST, int] = {}
    for function in (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)):
        begins = min(each.lineno for each in (function, *function.decorator_list))
        # a function within comes later, and its expressions are its own
        inside |= dict.fromkeys((node for part in (function.args, *function.body) for node in ast.walk(part)), begins)
    alone: set[ast.AST] = set()
    for node in inside:
        for part in (getattr(node, "annotation", None), getattr(node, "returns", None)):
            alone.update(ast.walk(part) if part else ())
        if isinstance(node, (ast.Raise, ast.JoinedStr)):
            alone.update(ast.walk(node))
    return {
        node: begins
        for node, begins in inside.items()
        if isinstance(node, ast.expr) and node not in alone and change_of(node)
    }


def in_words(node: ast.expr) -> str:
    """What becomes of a place, shortened."""
    twin = copy.deepcopy(node)
    _break(twin)
    return f"{ast.unparse(node)[:70]} -> {ast.unparse(twin)[:70]}"


def _break(node: ast.expr) -> None:
    change = change_of(node)
    assert change is not None  # it is a place
    change()


def change_of(node: ast.expr) -> Callable[[], Any] | None:
    """What breaks an expression; None where nothing does."""
    match node:
        case ast.Compare(ops=[op, *_]) if type(op) in COMPARE:
            return lambda: node.ops.__setitem__(0, COMPARE[type(op)]())
        case ast.BinOp(op=op, left=left, right=right) if type(op) in ARITHMETIC:
            words = any(isinstance(side, ast.JoinedStr) or _is_text(side) for side in (left, right))
            return None if words else lambda: setattr(node, "op", ARITHMETIC[type(op)]())
        case ast.BoolOp(op=op):
            return lambda: setattr(node, "op", ast.Or() if isinstance(op, ast.And) else ast.And())
        case ast.UnaryOp(op=ast.Not() | ast.USub() | ast.Invert() as op, operand=operand):
            return lambda: setattr(node, "operand", ast.UnaryOp(op, operand))
        case ast.Constant(value=bool(value)):
            return lambda: setattr(node, "value", not value)
        case ast.Constant(value=int(value) | float(value)):
            return lambda: setattr(node, "value", value + 1 if isinstance(value, int) or not value else 1.5 * value)
        case ast.Name(id=name) if name in OPPOSITE:
            return lambda: setattr(node, "id", OPPOSITE[name])
        case ast.Attribute(attr=name) if name in OPPOSITE:
            return lambda: setattr(node, "attr", OPPOSITE[name])
    return None


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, (str, bytes))


def changed(text: str, number: int) -> str:
    """The file with one place broken."""
    tree = ast.parse(text)
    _break(list(places(tree))[number])
    return ast.unparse(ast.fix_missing_locations(tree))


# --- runs -------------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def copy_of_the_tree() -> Iterator[Path]:
    """A folder with the tree's files, compiled, which this process then works in."""
    listed = ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, capture_output=True, check=True, text=True).stdout.split("\0")
    with tempfile.TemporaryDirectory(prefix="mutate-") as base:
        folder = Path(base, ROOT.name)
        for name in filter(None, names):
            if (ROOT / name).exists():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, folder / name, follow_symlinks=False)
        # measured data that tests look for beside the repository
        if (ROOT.parent / "shared").is_dir():
            Path(base, "shared").symlink_to(ROOT.parent / "shared")
        for cache in (ROOT / "workflow").rglob("__pycache__"):
            shutil.copytree(cache, folder / cache.relative_to(ROOT))
        compileall.compile_dir(folder / "workflow", quiet=2)
        os.environ |= {"PYTHONPATH": str(folder / "workflow"), "PYTHONDONTWRITEBYTECODE": "1"}
        os.environ |= {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
        sys.dont_write_bytecode = True
        sys.path.insert(0, str(folder / "workflow"))
        os.chdir(folder)
        for name in LIBRARIES:
            with contextlib.suppress(ImportError):
                __import__(name)
        yield folder
        os.chdir("/")


class Watch:
    """A pytest plugin: which tests failed, the CPU time of each, and which functions of a room each called, through its
    fixtures too."""

    def __init__(self, source: Path | None = None) -> None:
        self.room = f"{Path.cwd() / source}" if source else None
        self.failed: list[str] = []
        self.seconds: dict[str, float] = defaultdict(float)
        self.called: dict[str, set[tuple[str, int]]] = defaultdict(set)  # by test, and by fixture
        self.fixtures: dict[str, list[str]] = {}
        self._open: list[set[tuple[str, int]]] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed.append(report.nodeid)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.failed.append(report.nodeid)

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any) -> Iterator[None]:
        with self._noting(f"fixture {fixturedef.argname}"):
            return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self.fixtures[item.nodeid] = list(getattr(item, "fixturenames", ()))
        before_s = sum(os.times()[:4])
        with self._noting(item.nodeid):
            done = yield
        self.seconds[item.nodeid] = sum(os.times()[:4]) - before_s
        return done

    @contextlib.contextmanager
    def _noting(self, who: str) -> Iterator[None]:
        if not self.room:
            yield
            return
        self._open.append(self.called[who])
        self._listen(self._call)
        try:
            yield
        finally:
            self._open.pop()
            self._listen(self._call if self._open else None)

    def _listen(self, function: Any) -> None:
        sys.settrace(function)
        threading.settrace(function)

    def _call(self, frame: Any, *_: Any) -> None:
        if self._open and frame.f_code.co_filename.startswith(self.room):
            self._open[-1].add((frame.f_code.co_filename, frame.f_code.co_firstlineno))

    def reached(self) -> dict[str, list[tuple[str, int]]]:
        """{test: the functions that it called, (path below the root, first line)}."""
        start = len(str(Path.cwd())) + 1
        return {
            test: sorted(
                (path[start:], line)
                for path, line in self.called[test].union(*(self.called[f"fixture {name}"] for name in names))
            )
            for test, names in self.fixtures.items()
        }


def forked(watch: Watch, words: list[str], limit_s: float) -> dict[str, Any] | None:
    """What a run of pytest in a child shows; None where it took more CPU time than the limit, or ten times as long."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.setsid()
        resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(limit_s), math.ceil(limit_s)))
        null = os.open(os.devnull, os.O_RDWR)
        for each in (0, 1, 2):
            os.dup2(null, each)
        found: dict[str, Any] = {"failed": ["the run itself"], "seconds": {}, "reached": {}}
        try:
            code = pytest.main([*QUIET, *words], plugins=[watch])
            # a run that does not get to its end, for example as a conftest.py cannot be imported, fails no test
            failed = watch.failed or (found["failed"] if code not in _ENDED else [])
            found = {"failed": failed, "seconds": watch.seconds, "reached": watch.reached()}
        finally:
            with os.fdopen(writer, "w") as pipe:
                json.dump(found, pipe)
            os._exit(0)
    os.close(writer)
    until, parts = time.monotonic() + 10 * limit_s, []
    with os.fdopen(reader, "rb", buffering=0) as pipe:
        while select([pipe], [], [], max(0.0, until - time.monotonic()))[0]:
            if not (part := pipe.read(1 << 20)):
                break
            parts.append(part)
        else:
            parts = []
    # what the tests started goes as well
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return json.loads(b"".join(parts)) if parts else None


def unbroken(source: Path, tests: list[str]) -> tuple[dict[tuple[str, int], set[str]], dict[str, float]]:
    """({function: the tests that call it}, {test: seconds}). A test that fails unbroken is left out."""
    found = forked(Watch(source), tests, 3600)
    if found is None or not found["reached"]:
        raise SystemExit(f"error: {' '.join(tests)}: no test ran to its end")
    if found["failed"]:
        print(f"note: {len(found['failed'])} fail unbroken: {', '.join(found['failed'][:3])}", file=sys.stderr)
    reached: dict[tuple[str, int], set[str]] = defaultdict(set)
    for test, functions in found["reached"].items():
        if test not in found["failed"]:
            for path, line in functions:
                reached[path, line].add(test)
    return reached, found["seconds"]


def quickest_first(tests: set[str], seconds: dict[str, float], most_s: float) -> list[str]:
    """The tests, file after file as fixtures of a file are made once, as long as their time allows."""
    of_file: dict[str, float] = defaultdict(float)
    for test in tests:
        of_file[test.partition("::")[0]] += seconds[test]
    found, sum_s = [], 0.0
    for test in sorted(tests, key=lambda test: (of_file[test.partition("::")[0]], seconds[test], test)):
        sum_s += seconds[test]
        if sum_s > most_s and found:
            break
        found.append(test)
    return found


def broken(each: Break, folder: Path, tests: list[str], expected_s: float) -> str:
    """The test that notices a break; "" where none does."""
    if not tests:
        return ""
    path = folder / each.path
    text, times = path.read_text("utf-8"), path.stat()
    try:
        path.write_text(changed(text, each.number), "utf-8")
        # compiled code is taken for its source's by size and second: that of the break before must not be
        os.utime(path, (each.number, each.number))
        found = forked(Watch(), ["-x", *tests], 30 + 3 * expected_s)
    finally:
        path.write_text(text, "utf-8")
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    if found is None:
        return "its time limit"
    return found["failed"][0] if found["failed"] else ""


if __name__ == "__main__":
    main()
