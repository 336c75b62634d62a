"""From the output of a server's own benchmark and a log of power to a serving profile.

Read as documented by their sources (vllm/benchmarks/serve.py, sglang/bench_serving.py): what `vllm bench serve
--save-result` writes, one object a file or, with --append-result, several; and the JSON lines of SGLang's
bench_serving. Each object is one request rate at one degree and clock. A list of runs says what they do not.

Power: `nvidia-smi --query-gpu=timestamp,index,power.draw.instant,clocks.sm --format=csv -lms 100` in local time, or the
samples of Zeus's PowerMonitor as a CSV with its own names (timestamp in Unix time, gpu_index, power_mw). The mean is
added up over GPUs. Where a result says when each request was sent (vLLM's --save-detailed), power and tokens are both
of the run without a tenth at either end, where a benchmark fills and drains the server; else of the whole run.
Dates of results and of nvidia-smi are both the benchmark machine's local time and are compared as they stand, whatever
the time zone here; against Unix time they need that machine's utc_offset_h.
"""

from __future__ import annotations

import csv
import json
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from glob import glob
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np

from kernel_dvfs.errors import InputError
from kernel_dvfs.files import parse_yaml
from kernel_dvfs_serving.profile import LATENCIES
from kernel_dvfs_serving.requests import CLASSES, classify

# of a run, at each end, where a benchmark fills and drains the server; a log without times to cut it by may be off the
# run by as much
TRIMMED = 0.1
# samples of a GPU within a run that a mean is taken of, and seconds of a run without one
LEAST_SAMPLES, LONGEST_GAP_S = 10, 2.0
# requests that may fail
FAILED_SHARE = 0.01
# SM clock in the log against the one named: above it, another run's
CLOCK_TOLERANCE = 0.02
_WHOLE = (
    "not all results have the times of their requests (vLLM: --save-detailed), so power and tokens are of whole runs "
    "there, filling and draining included"
)
_LIST_KEYS = {"model", "gpu", "runs", "kv_tokens", "kv_byte_per_token", "utc_offset_h"}
_RUN_KEYS = {"result", "power", "tp", "core_mhz", "gpus", "idle_power_w", "ends"}
# characters of a wrong value in a message
_SHOWN = 40
# of all time zones
_LEAST_OFFSET_H, _MOST_OFFSET_H = -12, 14
# result's keys, ms, by column of a profile; vLLM and SGLang agree on them
# a list each, one entry a request
_TIMED = ("start_times", "ttfts", "itls", "input_lens", "output_lens")
_LATENCY_KEYS = dict(zip(LATENCIES, ("median_ttft_ms", "p99_ttft_ms", "median_itl_ms", "p99_itl_ms")))


@dataclass(frozen=True, slots=True)
class Result:
    """What one benchmark at one request rate found."""

    where: str  # file and place in it
    ends_s: float | None  # local time of the benchmark's machine, as if it were UTC; None where it is not said
    duration_s: float
    input_tokens: float  # mean of a request
    output_tokens: float
    latencies_s: dict[str, float]  # by LATENCIES
    said: dict[str, Any]  # all of it

    @property
    def tps(self) -> float:
        """Tokens/s, prompt and answer: in the run's middle where the requests' times are known, else in all of it."""
        if not self.is_timed:
            return self.said["completed"] * (self.input_tokens + self.output_tokens) / self.duration_s
        begun_s = min(self.said["start_times"])
        from_s, to_s = begun_s + TRIMMED * self.duration_s, begun_s + (1 - TRIMMED) * self.duration_s
        tokens = 0.0
        for start_s, ttft_s, gaps_s, prompt, answer in zip(*(self.said[name] for name in _TIMED)):
            if answer:
                # a prompt is read by its first token; several tokens may come at once, after one gap
                moments = start_s + ttft_s + np.concatenate([[0.0], np.cumsum(gaps_s)])
                inside = (moments >= from_s) & (moments <= to_s)
                tokens += prompt * bool(inside[0]) + answer * float(inside.mean())
        return tokens / (to_s - from_s)

    @property
    def is_timed(self) -> bool:
        """Whether it says when each request was sent and each token came (vLLM's --save-detailed)."""
        own = [self.said.get(name) for name in _TIMED]
        return all(isinstance(each, list) and each for each in own) and len({len(each) for each in own if each}) == 1

    @property
    def class_(self) -> str:
        """Its requests' class. Raises InputError where they belong to several."""
        inputs, outputs = (self.said.get(name) for name in ("input_lens", "output_lens"))
        if isinstance(inputs, list) and isinstance(outputs, list):
            if len(inputs) != len(outputs) or not all(each == 0 or _positive(each) for each in inputs + outputs):
                raise InputError(f"{self.where}: input_lens and output_lens are not two numbers a request; cut off?")
            # a request that failed has no answer
            answered = [pair for pair in zip(inputs, outputs) if pair[1]]
            found = set(classify(*np.array(answered, dtype=float).T).tolist()) if answered else set()
            if len(found) > 1:
                names = ", ".join(CLASSES[each] for each in sorted(found))
                raise InputError(f"{self.where}: requests of classes {names}; benchmark each class by itself")
        return CLASSES[int(classify(np.array([self.input_tokens]), np.array([self.output_tokens]))[0])]


def import_runs(path: str | Path) -> tuple[list[dict[str, Any]], list[str]]:
    """(rows for profile.write_profile, notes for the user) of a list of runs (YAML, docs/serving.md).

    Paths are relative to the list. Raises InputError: in which run and file, what, and the remedy.
    """
    listed = _read_list(path)
    rows: list[dict[str, Any]] = []
    notes: list[str] = []
    idle_w: dict[tuple[int, int], list[float]] = {}  # by degree and clock: each run's
    for number, run in enumerate(listed["runs"], start=1):
        where = f"{path}: run {number}"
        own = _rows_of(Path(path), where, run, listed, notes)
        rows += own
        if "idle_power_w" in run:
            if not _positive(run["idle_power_w"]):
                raise InputError(f"{where}: idle_power_w {run['idle_power_w']}; expected watts of the whole instance")
            for setting in {(row["tp"], row["core_mhz"]) for row in own}:
                idle_w.setdefault(setting, []).append(float(run["idle_power_w"]))
    # means of a class's requests are one figure of the whole profile
    for class_ in {row["class"] for row in rows}:
        own = [row for row in rows if row["class"] == class_]
        for name in ("input_tokens", "output_tokens"):
            mean = float(np.average([row[name] for row in own]))
            for row in own:
                row[name] = mean
    if any(note is _WHOLE for note in notes):
        notes = [note for note in notes if note is not _WHOLE] + [f"{path}: {_WHOLE}"]
    rows += _idle_rows(path, rows, {setting: float(np.mean(own)) for setting, own in idle_w.items()})
    rows.sort(key=lambda row: (row["tp"], CLASSES.index(row["class"]), row["core_mhz"], row["tps"]))
    return rows, notes


def _read_list(path: str | Path) -> dict[str, Any]:
    try:
        listed = parse_yaml(Path(path).read_text("utf-8"))
    except FileNotFoundError:
        raise InputError(f"{path}: no such list of runs") from None
    except ValueError as error:
        raise InputError(f"{path}: not YAML ({error})") from None
    if not isinstance(listed, dict) or not isinstance(listed.get("runs"), list) or not listed["runs"]:
        raise InputError(f"{path}: expected model, gpu and runs, a list of {{result: ..., power: ...}}")
    _require_keys(str(path), listed, _LIST_KEYS, ("model", "gpu"))
    kv_tokens = listed.get("kv_tokens", {})
    if not isinstance(kv_tokens, dict) or not all(_positive(each) for pair in kv_tokens.items() for each in pair):
        raise InputError(f"{path}: kv_tokens {kv_tokens}; expected {{tp: tokens}}")
    if "kv_byte_per_token" in listed and not _positive(listed["kv_byte_per_token"]):
        raise InputError(f"{path}: kv_byte_per_token {listed['kv_byte_per_token']}; expected a number above 0")
    offset_h = listed.get("utc_offset_h", 0)
    if (
        isinstance(offset_h, bool)
        or not isinstance(offset_h, int | float)
        or not (_LEAST_OFFSET_H <= offset_h <= _MOST_OFFSET_H)
    ):
        raise InputError(
            f"{path}: utc_offset_h {offset_h}; expected hours of the benchmark machine's local time before UTC, "
            f"{_LEAST_OFFSET_H} to {_MOST_OFFSET_H}, such as 1 for Paris in winter"
        )
    return listed


def _require_keys(where: str, given: Any, allowed: set[str], needed: tuple[str, ...]) -> None:
    if not isinstance(given, dict):
        raise InputError(f"{where}: expected keys and values; allowed: {', '.join(sorted(allowed))}")
    for key in given:
        if key not in allowed:
            raise InputError(f"{where}: unknown key '{key}'; allowed: {', '.join(sorted(allowed))}")
    for key in needed:
        if not isinstance(given.get(key), str) or "," in given[key] or "\n" in given[key]:
            raise InputError(f"{where}: {key} missing; give it as text, without commas")


def _positive(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= sys.float_info.max


def _rows_of(path: Path, where: str, run: Any, listed: dict[str, Any], notes: list[str]) -> list[dict[str, Any]]:
    _require_keys(where, run, _RUN_KEYS, ("result", "power"))
    files = sorted(glob(run["result"], root_dir=path.parent))
    if not files:
        raise InputError(f"{where}: result {run['result']}: no such file")
    log = read_power(path.parent / run["power"])
    results = [result for file in files for result in read_results(path.parent / file)]
    rows: list[dict[str, Any]] = []
    for result in results:
        if result.ends_s is None and len(results) > 1:
            raise InputError(f"{result.where}: no date in it, so each result needs a run with a power log of its own")
        start_s, end_s = _span(where, result, run, log, listed)
        tp = _setting(result, run, "tp")
        core_mhz = _setting(result, run, "core_mhz")
        power_w, clock_mhz, gpus = log.mean(result, start_s, end_s, run.get("gpus"))
        if gpus != tp:
            raise InputError(
                f"{result.where}: power of {gpus} GPUs, but tp {tp}; name the instance's own: gpus: [0, 1]"
            )
        if clock_mhz is not None and clock_mhz > core_mhz * (1 + CLOCK_TOLERANCE):
            raise InputError(
                f"{result.where}: the SM clock was {clock_mhz:.0f} MHz in {run['power']}, above the {core_mhz} named; "
                "was it locked?"
            )
        if not result.is_timed:
            notes.append(_WHOLE)
        if clock_mhz is not None and clock_mhz < core_mhz * (1 - CLOCK_TOLERANCE):
            notes.append(f"{result.where}: SM clock {clock_mhz:.0f} MHz, held below {core_mhz}")
        head = {"model": listed["model"], "gpu": listed["gpu"], "tp": tp, "core_mhz": core_mhz, "class": result.class_}
        rows.append(
            head
            | {"tps": float(f"{result.tps:.6g}"), "power_w": power_w, "source": "measured"}
            | result.latencies_s
            | {"input_tokens": result.input_tokens, "output_tokens": result.output_tokens}
            | _cache(where, listed, tp)
        )
    return rows


def _span(
    where: str, result: Result, run: dict[str, Any], log: PowerLog, listed: dict[str, Any]
) -> tuple[float, float]:
    """When a result's run started and ended, s on its power log's clock. Raises InputError where nothing says it."""
    ends_s = result.ends_s
    if "ends" in run:
        if ends_s is not None:
            raise InputError(f"{where}: ends is given, but {result.where} has a date of its own; leave ends out")
        ends_s = _moment(f"{where}: ends", run["ends"])
    if ends_s is not None:
        if log.unix:
            if "utc_offset_h" not in listed:
                raise InputError(
                    f"{where}: {log.path} is in Unix time and the result's date in local time; give the list "
                    "utc_offset_h, hours of that machine's time before UTC"
                )
            ends_s -= 3600 * listed["utc_offset_h"]
        return ends_s - result.duration_s, ends_s
    start_s = min(samples[0, 0] for samples in log.samples.values())
    end_s = max(samples[-1, 0] for samples in log.samples.values())
    if abs(end_s - start_s - result.duration_s) > TRIMMED * result.duration_s:
        raise InputError(
            f"{result.where}: no date in it, and {log.path} is {end_s - start_s:.0f} s long for a run of "
            f"{result.duration_s:.0f} s; cut the log to the run, or give the run its end: ends: 20260131-235959"
        )
    return start_s, end_s


def _moment(where: str, text: Any) -> float:
    """A date as vLLM writes it, s, local time as if it were UTC. Raises InputError."""
    try:
        return datetime.strptime(str(text), "%Y%m%d-%H%M%S").replace(tzinfo=UTC).timestamp()
    except ValueError:
        raise InputError(f"{where} {text!r}; expected such as 20260131-235959") from None


def _cache(where: str, listed: dict[str, Any], tp: int) -> dict[str, Any]:
    """What the list says of KV caches, as columns."""
    made: dict[str, Any] = {}
    if "kv_tokens" in listed:
        if tp not in listed["kv_tokens"]:
            raise InputError(f"{where}: tp {tp} is not in kv_tokens; give all degrees, or none")
        made["kv_tokens"] = int(listed["kv_tokens"][tp])
    if "kv_byte_per_token" in listed:
        made["kv_byte_per_token"] = float(listed["kv_byte_per_token"])
    return made


def _idle_rows(
    path: str | Path, rows: list[dict[str, Any]], idle_w: dict[tuple[int, int], float]
) -> list[dict[str, Any]]:
    """A row without load for each curve: idle power, and the latencies of the least load measured.

    idle_w: of the whole instance, by degree and clock. Raises InputError where it is missing, or no less than power
    under load.
    """
    least: dict[tuple, dict[str, Any]] = {}
    for row in rows:
        setting = row["tp"], row["core_mhz"]
        where = f"{path}: tp {setting[0]}, {setting[1]} MHz"
        if setting not in idle_w:
            raise InputError(
                f"{where}: no idle_power_w; give it to one of its runs: watts of the whole instance without requests "
                "at that clock"
            )
        if row["power_w"] <= idle_w[setting]:
            raise InputError(
                f"{where}: {row['power_w']:.1f} W at {row['tps']:.0f} tokens/s, but idle_power_w {idle_w[setting]:g}; "
                "is the log of that run, on that machine's clock (utc_offset_h), and the idle power of the instance?"
            )
        key = *setting, row["class"]
        if key not in least or row["tps"] < least[key]["tps"]:
            least[key] = row
    return [row | {"tps": 0.0, "power_w": idle_w[row["tp"], row["core_mhz"]]} for row in least.values()]


def _setting(result: Result, run: dict[str, Any], name: str) -> int:
    """A whole number that the run, or the result by --metadata, says."""
    value = run.get(name, result.said.get(name))
    try:
        if value is not None and not isinstance(value, bool) and int(value) == float(value) and int(value) >= 1:
            return int(value)
    except (TypeError, ValueError, OverflowError):
        pass
    said = "missing" if value is None else repr(value)[:_SHOWN]
    raise InputError(f"{result.where}: {name} {said}; give it to the run, or to the benchmark: --metadata {name}=...")


# -- results -----------------------------------------------------------------------------------------------------------


def read_results(path: str | Path) -> list[Result]:
    """The results of a file of vLLM's or SGLang's benchmark. Raises InputError."""
    try:
        text = Path(path).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read ({error})") from None
    found: list[Result] = []
    decoder, place = json.JSONDecoder(), 0
    while place < len(text):
        if text[place].isspace():
            place += 1
            continue
        where = f"{path}: result {len(found) + 1}"
        try:
            said, place = decoder.raw_decode(text, place)
        except (ValueError, RecursionError) as error:
            raise InputError(f"{where}: not JSON ({error}); cut off?") from None
        if not isinstance(said, dict):
            raise InputError(f"{where}: expected an object, as vllm bench serve --save-result writes")
        found.append(_result(where, said))
    if not found:
        raise InputError(f"{path}: empty; run the benchmark with --save-result")
    return found


def _result(where: str, said: dict[str, Any]) -> Result:
    def number(name: str, remedy: str = "is this vllm bench serve's or SGLang's?") -> float:
        value = said.get(name)
        if not _positive(value):
            raise InputError(f"{where}: {name} {'missing' if value is None else repr(value)[:_SHOWN]}; {remedy}")
        return float(value)  # type: ignore[arg-type]

    completed = number("completed")
    asked, lost = (said.get(name) if _positive(said.get(name)) else 0 for name in ("num_prompts", "failed"))
    failed = max(float(lost or 0), float(asked or 0) - completed)
    if failed > FAILED_SHARE * (completed + failed):
        raise InputError(f"{where}: {failed:.0f} of {completed + failed:.0f} requests failed; measure that load again")
    percentiles = "add --percentile-metrics ttft,tpot,itl --metric-percentiles 99 to the benchmark"
    latencies = {column: number(name, percentiles) / 1e3 for column, name in _LATENCY_KEYS.items()}
    ends_s = _moment(f"{where}: date", said["date"]) if "date" in said else None
    inputs, outputs = (number(f"total_{name}_tokens") / completed for name in ("input", "output"))
    return Result(where, ends_s, number("duration"), inputs, outputs, latencies, said)


# -- power -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class PowerLog:
    """Samples of power by GPU: arrays of shape (n,) each, ascending in time."""

    path: str
    samples: dict[str, np.ndarray]  # by GPU: (n, 3) time s, W, SM clock MHz or NaN
    unix: bool  # whether the time is Unix time; else local time as if it were UTC

    def mean(
        self, result: Result, start_s: float, end_s: float, gpus: list[int] | None = None
    ) -> tuple[float, float | None, int]:
        """(W of all GPUs together, median SM clock MHz where logged, GPUs) over a result's run from start_s to end_s,
        or over its middle, as its tokens are counted.

        Raises InputError where it was not logged throughout.
        """
        chosen = self.samples
        if gpus is not None:
            if not isinstance(gpus, list):
                raise InputError(f"{self.path}: gpus {gpus}; expected a list such as [0, 1]")
            missing = [str(each) for each in gpus if str(each) not in chosen]
            if missing or not gpus:
                raise InputError(f"{self.path}: no GPU {', '.join(missing)}; it has {', '.join(chosen)}")
            chosen = {str(each): chosen[str(each)] for each in gpus}
        total_w, clocks = 0.0, []
        trimmed_s = TRIMMED * (end_s - start_s) if result.is_timed else 0.0
        start_s, end_s = start_s + trimmed_s, end_s - trimmed_s
        for gpu, samples in chosen.items():
            inside = samples[(samples[:, 0] >= start_s) & (samples[:, 0] <= end_s)]
            moments = [start_s, *inside[:, 0], end_s]
            if len(inside) < LEAST_SAMPLES or np.diff(moments).max() > LONGEST_GAP_S:
                raise InputError(
                    f"{result.where}: {self.path} has {len(inside)} samples of GPU {gpu} while it ran; log the whole "
                    f"run, at least every {LONGEST_GAP_S:g} s, on the clock of the machine that ran the benchmark"
                )
            total_w += float(np.trapezoid(inside[:, 1], inside[:, 0]) / (inside[-1, 0] - inside[0, 0]))
            clocks += inside[:, 2][~np.isnan(inside[:, 2])].tolist()
        return total_w, float(np.median(clocks)) if clocks else None, len(chosen)


# columns of either kind: time, GPU (may be left out), power and its factor to W, SM clock (may be left out)
_NVIDIA_POWER = ("power.draw.instant [W]", "power.draw [W]", "power.draw.average [W]")
_NVIDIA_CLOCK = ("clocks.current.sm [MHz]", "clocks.sm [MHz]")


def read_power(path: str | Path) -> PowerLog:
    """A log of power from its CSV. Raises InputError: which line, what, and the remedy."""
    try:
        with open(path, newline="", encoding="utf-8") as file:
            lines = [[cell.strip() for cell in line] for line in csv.reader(file)]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path}: cannot be read ({error})") from None
    header = lines[0] if lines else []
    zeus = "power_mw" in header
    power = "power_mw" if zeus else next((name for name in _NVIDIA_POWER if name in header), None)
    if power is None or "timestamp" not in header:
        raise InputError(
            f"{path}: no columns timestamp and power.draw.instant [W]; log with nvidia-smi "
            "--query-gpu=timestamp,index,power.draw.instant,clocks.sm --format=csv -lms 100"
        )
    gpu = "gpu_index" if zeus else "index"
    clock = next((name for name in _NVIDIA_CLOCK if name in header), None)
    found: dict[str, list[tuple[float, float, float]]] = {}
    for number, cells in enumerate(lines[1:], start=2):
        if len(cells) != len(header):
            if number == len(lines):
                continue  # the logger was ended while it wrote
            raise InputError(f"{path}: line {number}: {len(cells)} cells under {len(header)} columns; mend the line")
        row = dict(zip(header, cells))
        sample = _sample(f"{path}: line {number}", row, power, clock, zeus)
        found.setdefault(row.get(gpu, "0"), []).append(sample)
    if not found:
        raise InputError(f"{path}: no samples under the header")
    return PowerLog(str(path), {name: np.array(sorted(own)) for name, own in found.items()}, unix=zeus)


def _sample(where: str, row: dict[str, str], power: str, clock: str | None, zeus: bool) -> tuple[float, float, float]:
    try:
        if zeus:
            moment, watt = float(row["timestamp"]), float(row[power]) / 1e3
        else:
            moment = datetime.strptime(row["timestamp"], "%Y/%m/%d %H:%M:%S.%f").replace(tzinfo=UTC).timestamp()
            watt = float(row[power].removesuffix("W"))
        core_mhz = float(row[clock].removesuffix("MHz")) if clock else 0.0
        if not (isfinite(moment) and isfinite(watt) and isfinite(core_mhz) and watt >= 0 and core_mhz >= 0):
            raise ValueError(f"power {row[power]!r}")
        return moment, watt, core_mhz if clock else float("nan")
    except ValueError as error:
        raise InputError(f"{where}: {error}; expected a time, a power and a clock as the header says") from None
