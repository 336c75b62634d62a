"""A step captured and tried, in a process of its own: a kernel that hangs takes that process with it, and the next one
goes on without it.

`capture` is the parent, which imports neither torch nor CUDA; `python -m kernel_dvfs_step.capturing` the child, which
is told what to do on its standard input and says what it finds line by line on a pipe.
"""

from __future__ import annotations

import json
import math
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import IO, Any

from kernel_dvfs.native.load import load
from kernel_dvfs.workload import step as steps
from kernel_dvfs.workload.step import LEAST_SHARE, Step
from kernel_dvfs_clocks.errors import InputError, lines
from kernel_dvfs_clocks.files import compact_json, write_json
from kernel_dvfs_step import assembly, framework, grouping, interpreter, nodes, pace, trace, trial
from kernel_dvfs_step.beside import Beside, Cost
from kernel_dvfs_step.calls import Kept
from kernel_dvfs_step.framework import Opened
from kernel_dvfs_step.living import elapsed_ms
from kernel_dvfs_step.trial import Tried
from kernel_dvfs_step.watchdog import Watchdog, end_with_reader

# replays of the graph that are traced: for so long, at least so many, at most of so many events
_TRACED_S, _LEAST_TRACED, _MOST_EVENTS = 1.0, 4, 20000
_KEPT_REPLAYS = 2
_MOST_PROCESSES = 12
# of what a child wrote to its standard error, so much is looked at, and so much of its last line told
_LAST_BYTE, _LINE_LETTERS = 1 << 14, 200
_ROUND_S, _ROUNDS = 0.3, 5
# how long loop and graph are measured each: the energy counter's edges are seen within some milliseconds
COST_S = 2.5
# how long what is done with the whole step may take, s; a trial may take so many steps beside its own limit
_WHOLE_LIMIT_S, _TRACE_LIMIT_S, _STEPS_A_TRIAL = 600.0, 120.0, 6


def capture(
    source: str,
    name: str = "",
    results_dir: str = "results",
    say: Callable[[str], object] = print,
    keep: str = "",
    share: bool = False,
) -> Step:
    """Capture and try the step that FILE.py:FUNCTION makes, and return it. say: told in a line what goes on.

    keep: a folder for node list and trace, which tests group again; "": they are not kept. share: although others
    compute on the GPU. Raises InputError.
    """
    # both refuse, with the remedy, before anything is started; the second asks to compile something
    say(interpreter.check(source))
    load("graph", results_dir)
    failed: dict[int, list[str]] = {}  # by the main node of a class's first launch, as in trial.walk
    known: dict[int, Tried] = {}
    joined: set[str] = set()
    captured, loop = "", None
    for _ in range(_MOST_PROCESSES):
        request: dict[str, Any] = {"source": source, "name": name or name_of(source), "results": results_dir}
        request |= {"keep": keep, "share": share, "loop": loop}
        request |= {"failed": failed, "known": {first: asdict(result) for first, result in known.items()}}
        request["joined"] = sorted(joined)
        for line in _child(request):
            if "say" in line:
                say(line["say"])
            elif "error" in line:
                raise InputError(line["error"])
            elif "captured" in line:  # before anything else: what is known of a node is known by its number
                if captured not in ("", line["captured"]):
                    raise InputError(
                        f"{source}: launches other kernels each time it is captured ({captured}, then "
                        f"{line['captured']}); do kernels depend on a measured time (torch.backends.cudnn.benchmark, "
                        "max-autotune)? switch that off"
                    )
                captured = line["captured"]
            elif "loop" in line:
                loop = line["loop"]
            elif "tried" in line:
                known[line["tried"]] = Tried(**line["result"])
            elif "failed" in line:
                whys = failed.setdefault(line["failed"], [])
                # what took no turns need not be tried without taking turns
                whys += [line["why"]] * (2 if line.get("alone") and not whys else 1)
                if len(whys) == trial.MOST_ERRORS - 1:
                    joined.add(line["kind"])
                say(f"{line['what']}: {line['why']}; going on without it")
            elif "step" in line:
                return steps.from_content(line["step"], source)
    raise InputError(f"{source}: {_MOST_PROCESSES} processes hung or failed one after the other; see what they said")


def name_of(source: str) -> str:
    """Return a name for FILE.py:FUNCTION: `train-make-step`."""
    path, _, function = source.rpartition(":")
    stem = os.path.splitext(os.path.basename(path))[0]
    return re.sub(r"[^A-Za-z0-9]+", "-", f"{stem}-{function}").strip("-") or "step"


def _child(request: dict[str, Any]) -> Any:
    """Yield what a child says, line by line; its death counts as an error, unless it told why."""
    # a file, since a pipe that nobody reads would fill up: a failed assert writes a line for each of its threads
    with tempfile.TemporaryFile() as errors:
        yield from _heard(request, errors)


def _heard(request: dict[str, Any], errors: IO[bytes]) -> Any:
    read_end, write_end = os.pipe()
    words = [sys.executable, "-m", "kernel_dvfs_step.capturing", str(write_end)]
    child = subprocess.Popen(words, pass_fds=(write_end,), stdin=subprocess.PIPE, stderr=errors, text=True)
    os.close(write_end)
    ended = False
    try:
        with suppress(BrokenPipeError), child.stdin as stdin:  # type: ignore[union-attr]
            stdin.write(compact_json(request))
        with os.fdopen(read_end, encoding="utf-8") as answers:
            for text in answers:
                line = json.loads(text)
                if "failed" in line and (why := _last_words(errors)):
                    line["why"] += f"; it said: {why}"
                ended = ended or bool({"error", "failed", "step"} & line.keys())
                yield line
    finally:
        if not ended:
            child.kill()
        code = child.wait()
    if not ended:
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        last = _last_words(errors) or "nothing"
        raise InputError(f"{request['source']}: the process that captured it died ({how}); it said: {last}")


def _last_words(errors: IO[bytes]) -> str:
    """Return one line of what a child wrote to its standard error: its last one, "" where there is none.

    By the descriptor, whose place the child shares: its own writing goes on at the end.
    """
    size = os.fstat(errors.fileno()).st_size
    begin = max(0, size - _LAST_BYTE)
    text = os.pread(errors.fileno(), _LAST_BYTE, begin).decode(errors="replace")
    lines_ = [line.strip() for line in text.splitlines() if line.strip()]
    return lines_[-1][:_LINE_LETTERS] if lines_ else ""


# --- in the child -----------------------------------------------------------------------------------------------------


def main(pipe: int, request: dict[str, Any]) -> None:
    """Capture, try, and tell."""

    def tell(**line: Any) -> None:
        os.write(pipe, compact_json(line).encode() + b"\n")

    # a parent that was killed: the GPU is to be free for the next one
    end_with_reader(pipe)
    try:
        extension = load("graph", request["results"])
        beside = Beside()
        # before any trace: what traces stays in the process, and makes every launch of the loop longer
        opened = framework.open_source(extension, request["source"], look=_loop(beside, request, tell))
        beside.open(opened.device["uuid"], request.get("share", False))
        tell(captured=opened.living.checksum)
        captured = Capturing(opened, request, tell, beside)
        tell(step=captured.step())
    except InputError as error:
        tell(error=" ".join(lines(error)))
    except _Failed:
        pass
    # the context may be lost, and what the user's file started may wait: nothing is to be cleaned up
    sys.stdout.flush()
    os._exit(0)


def _loop(beside: Beside, request: dict[str, Any], tell: Callable[..., None]) -> Callable[[Any, Any], None] | None:
    """Return what measures calls of the step as the user's own loop makes them; None where that is known."""
    if request.get("loop"):
        return None

    def look(torch: Any, step: Callable[[], object]) -> None:
        beside.open(f"GPU-{torch.cuda.get_device_properties(0).uuid}", request.get("share", False))
        try:
            copies = Kept(torch)
        except torch.OutOfMemoryError:
            tell(say=f"{request['source']}: its loop was not measured: no memory was left for a copy of the state")
            return
        request["loop"] = beside.cost(step, copies.restore, torch.cuda.synchronize, COST_S)
        copies.restore()
        tell(loop=request["loop"])

    return look


class _Failed(Exception):
    """A kernel failed; the parent has been told."""


class Capturing:
    """A step that is being tried. request: what the parent asks for; tell: answers it; beside: the GPU's board."""

    def __init__(self, opened: Opened, request: dict[str, Any], tell: Callable[..., None], beside: Beside) -> None:
        self._opened, self._request, self._tell = opened, request, tell
        self._living, self._beside = opened.living, beside
        self._began = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        # what is being tried: its main node, its name, what it is told by from process to process
        self._now: tuple[int, str, str] | None = None
        self._is_alone = False  # it takes no turns
        self._dog = Watchdog(lambda _: self._say_failed(trial.hung(self._limit_s)))
        self._limit_s = _WHOLE_LIMIT_S

    def step(self) -> dict[str, Any]:
        """Return the record of the step, for a line of JSON."""
        living, request = self._living, self._request
        whole = self._whole()
        with self._dog.limit(self._limit_s, "replays and calls compared"):
            faith = self._opened.faith()
        self._limit_s = trial.LIMIT_S + _STEPS_A_TRIAL * 1e-6 * whole["time_us"]
        outline = self._outline(whole["time_us"])
        self._tell(
            say=f"{request['source']}: {len(living.nodes)} nodes, {len(outline.launches)} launches of "
            f"{len(outline.classes)} classes, {whole['time_us'] / 1e3:.3f} ms a step"
        )
        failed = {int(first): whys for first, whys in request["failed"].items()}
        known = {int(first): Tried(**result) for first, result in request["known"].items()}

        alone = {
            outline.launches[members[0]].main
            for members in outline.classes
            if trial.turns(living, outline.launches, members) == 1
        }

        def limit(first: int, seconds: float) -> Any:
            self._is_alone = first in alone
            self._now = first, outline.functions[first], grouping.kind_of(living.nodes[first])
            self._limit_s = seconds + _STEPS_A_TRIAL * 1e-6 * whole["time_us"]
            return self._dog.limit(self._limit_s, outline.functions[first])

        def report(first: int, result: Tried) -> None:
            self._tell(tried=first, result=asdict(result))

        try:
            tried = trial.walk(
                *(living, outline.launches, outline.classes, outline.times_us, limit, failed, known, report),
                self._beside.neighbours,
            )
            by_difference, not_repeated = self._sections(outline, failed)
            self._now = None
            costs = self._costs()
            # a GPU that has just run the graph for seconds is hot
            clocks_mhz = self._clocks_mhz(outline, pace.STEP_HOT_S if costs else pace.STEP_WARM_S)
            with self._dog.limit(self._limit_s, "state"):
                living.memory.check_restored()
        except living.extension.CudaError as error:
            self._say_failed(f"it failed when it was repeated alone ({error})")
            raise _Failed from error
        if neighbours := self._beside.neighbours:
            shared = f"{neighbours} other process(es) computed on the GPU, which makes times and energies theirs, too"
            faith = faith._replace(noticed=(*faith.noticed, shared))
        if newcomers := self._beside.newcomers():
            shared = f"{newcomers} other process(es) began to compute on the GPU meanwhile: capture it again"
            faith = faith._replace(noticed=(*faith.noticed, shared))
        for line in (*faith.frozen, *faith.noticed, *outline.noticed):
            self._tell(say=f"{request['source']}: {line}")
        record = assembly.step(
            name=request["name"],
            source=request["source"],
            date_utc=self._began,
            device=self._opened.device,
            versions=self._opened.versions | {"cuda_driver": _version(self._opened.device["driver"])},
            outline=outline,
            tried=tried,
            clocks_mhz=clocks_mhz,
            whole=whole | costs,
            state=living.memory.state,
            by_difference=by_difference,
            not_repeated=not_repeated,
            faith=faith,
            items=self._opened.items,
        )
        return asdict(record)

    def _costs(self) -> dict[str, float]:
        """Return what a call in the user's own loop costs, as it was measured, and a replay."""
        living, loop = self._living, self._request.get("loop")
        if not loop:
            return {}
        with self._dog.limit(_WHOLE_LIMIT_S, "the graph"):
            living.memory.restore()
            graph = self._beside.cost(living.replay, living.memory.restore, living.device.synchronize, COST_S)
            living.memory.check_restored()
        costs = {}
        for name, cost in (("loop", Cost(*loop)), ("graph", graph)):
            costs[f"{name}_us"] = round(1e6 * cost.time_s, 3)
            if cost.energy_j is not None:
                costs[f"{name}_j"] = round(cost.energy_j, 6)
        return costs

    def _say_failed(self, why: str) -> None:
        if self._now is None:
            self._tell(error=f"{self._request['source']}: the step as a whole: {why}")
            return
        number, what, kind = self._now
        self._tell(failed=number, what=what[:120], kind=kind, why=why, alone=self._is_alone)

    def _outline(self, step_us: float) -> assembly.Outline:
        living = self._living
        # as hot as in training, and no more than a trace can hold
        count = max(_LEAST_TRACED, min(round(_TRACED_S * 1e6 / step_us), _MOST_EVENTS // len(living.nodes)))
        with self._dog.limit(_TRACE_LIMIT_S + 2e-6 * count * step_us, "trace"):
            living.memory.restore()
            events = framework.traced_replays(living.replay, count)
        replays = trace.replays(living.functions, events, count)
        if not replays:
            self._tell(say=f"{self._request['source']}: the trace does not show every node: no times within the step")
        # the first replays start from an idle GPU
        outline = assembly.outline_of(
            *(living.nodes, living.functions, living.memory.segments, self._opened.calls),
            replays[len(replays) // 2 :],
            self._request["joined"],
            self._beside.neighbours,
        )
        if self._request["keep"]:
            self._keep(trace.last(events, _KEPT_REPLAYS * len(living.nodes)))
        return outline

    def _keep(self, events: list[trace.Event]) -> None:
        folder, living = self._request["keep"], self._living
        segments = [list(segment) for segment in living.memory.segments]
        content = {"nodes": nodes.to_json(living.nodes), "functions": living.functions, "segments": segments}
        write_json(os.path.join(folder, "nodes.json"), content)
        calls = [trace.to_json(call) for call in self._opened.calls]
        write_json(os.path.join(folder, "trace.json"), {"calls": calls, "replays": trace.to_json(events)})

    def _whole(self) -> dict[str, Any]:
        """Return the times of the step as one graph: as it was captured, and rebuilt from its nodes."""
        living = self._living
        with self._dog.limit(self._limit_s, "the whole step"):
            rebuilt = living.whole()
            time_us, rebuilt_us = self._times_us(living.replay, lambda: rebuilt.run(1))
            left = []
            for run in (living.replay, living.replay, lambda: rebuilt.run(1)):
                living.memory.restore()
                run()
                left.append(living.memory.state_hash())
            living.memory.restore()
        return assembly.whole_of(living.edges) | {
            "time_us": round(time_us, 3),
            "rebuilt_us": round(rebuilt_us, 3),
            "same_bits": left[0] == left[2],
            "deterministic": left[0] == left[1],
        }

    def _times_us(self, *ways: Callable[[], None]) -> list[float]:
        """Return the medians over rounds of the time of one run of each way, in turn: what heats the GPU heats all of
        them."""
        living = self._living

        def timed(run: Callable[[], None], count: int) -> float:
            living.memory.restore()
            return 1e3 * elapsed_ms(living, run, count)

        count = max(2, round(_ROUND_S * 1e6 / timed(ways[0], 2)))
        rounds = [[timed(run, count) for run in ways] for _ in range(_ROUNDS)]
        return [statistics.median(times_us) for times_us in zip(*rounds)]

    def _clocks_mhz(self, outline: assembly.Outline, warm_s: float) -> list[float] | None:
        """Return the core clock of each launch within the step; None where there is no memory to read it."""
        living, self._limit_s = self._living, _WHOLE_LIMIT_S
        try:
            with self._dog.limit(self._limit_s, "the clocks within the step"):
                return pace.within_step_mhz(living, [launch.main for launch in outline.launches], warm_s)
        except living.extension.OutOfMemory as error:
            self._tell(say=f"{self._request['source']}: no clocks within the step: {error}; hot kernels are not paced")
            return None

    def _sections(
        self, outline: assembly.Outline, failed: dict[int, list[str]]
    ) -> tuple[dict[str, str], dict[str, str]]:
        """Return {section that cannot be repeated by itself: why}: those that can be measured as a difference, and
        those that cannot. Each is run from where the step meets it, and once more.

        A section changes parameters and optimiser, which is put back; where what it computes on the way is other data
        the second time, it overwrote what it reads (backward does, in memory that torch's pool gave it), and would
        soon run on numbers that no step ever sees.
        """
        living = self._living
        by_difference: dict[str, str] = {}
        not_repeated: dict[str, str] = {}
        for number, section in enumerate(dict.fromkeys(outline.sections)):
            key = -1 - number
            members = [place for place, name in enumerate(outline.sections) if name == section]
            if why_not := _why_no_difference(members, outline.times_us):
                reasons, also = not_repeated, f", {why_not}"
            else:
                reasons, also = by_difference, ""
            if key in failed:
                reasons[section] = failed[key][-1] + also
                continue
            launches = [outline.launches[place] for place in members]
            places = sorted(place for launch in launches for place in launch.nodes)
            if places[0] and trial.reads_integers(living.functions[place] for place in places):
                # what it overwrote may be their integers: a device assert, and this process is lost
                reasons[section] = f"its kernels read integers, which it may overwrite when it is repeated{also}"
                continue
            self._now = key, f"section {section}", section
            with self._dog.limit(self._limit_s, section):
                living.meet(places[0])
                loop = living.loop(places, keep_edges=True)
                loop.run(1)
                before = living.memory.scratch_hashes()
                loop.run(1)
                if living.memory.scratch_hashes() != before:
                    reasons[section] = f"repeated by itself, it runs on other data: it overwrites what it reads{also}"
        return by_difference, not_repeated


def _why_no_difference(members: Sequence[int], times_us: Sequence[float | None]) -> str:
    """Return why a section of these launches cannot be told as the step up to its end less the step before it; "": it
    can."""
    if members[-1] - members[0] != len(members) - 1:
        return "and kernels of other sections run between its own"
    until_us = [time for time in times_us[: members[-1] + 1] if time is not None]
    if len(until_us) <= members[-1]:
        return "and how much of the step it is was not traced"
    share = math.fsum(until_us[members[0] :]) / math.fsum(until_us)
    if share < LEAST_SHARE:
        return f"and it is {100 * share:.1f} % of the step so far, too little for a difference"
    return ""


def _version(number: int) -> str:
    """Return 13.0, of 13000."""
    return f"{number // 1000}.{number % 1000 // 10}"


def same_content(path: str, step: Step) -> bool:
    """Return whether the file at `path` is of the same captured launches in the same sections, and of the same device,
    with clocks if these have been read, so that it need not be written again."""
    try:
        old = steps.read(path)
    except InputError:
        return False
    # clocks that could not be read this time are no reason to lose those of the file
    return _content(old) == _content(step) and _has_clocks(old) >= _has_clocks(step)


def _content(step: Step) -> tuple[Any, ...]:
    sections = [step.targets[step.order[launch]].section for launch in step.nodes]
    return step.checksum, step.device["uuid"], step.source, sections


def _has_clocks(step: Step) -> bool:
    return any(target.core_mhz for target in step.targets)


if __name__ == "__main__":
    main(int(sys.argv[1]), json.load(sys.stdin))
