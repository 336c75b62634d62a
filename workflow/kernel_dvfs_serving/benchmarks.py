"""From the output of a server's own benchmark and a log of power to a serving profile.

Read as documented by their sources (vllm/benchmarks/serve.py, sglang/bench_serving.py): what `vllm bench serve
--save-result` writes, one object a file or, with --append-result, several; and the JSON lines of SGLang's
bench_serving. Each object is one request rate at one degree and clock. A list of runs says what they do not.

Power: `nvidia-smi --query-gpu=timestamp,index,power.draw.instant,clocks.sm --format=csv -lms 100` in local time, or the
samples of Zeus's PowerMonitor as a CSV with its own names (timestamp in Unix time, gpu_index, power_mw). GPUs are told
apart by index, uuid, pci.bus_id or serial; the mean is added up over them. Where a result says when each request was
sent (vLLM's --save-detailed), power and tokens are both of the run without a tenth at either end, where a benchmark
fills and drains the server; else of the whole run.
Dates of results and of nvidia-smi are both the benchmark machine's local time and are compared as they stand, whatever
the time zone here; against Unix time they need that machine's utc_offset_h.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from glob import glob
from math import isfinite, nan
from pathlib import Path
from typing import Any

import numpy as np

from kernel_dvfs.profile.raw import RawTable, exactly, is_not_there, quote, read_csv, some, to_number
from kernel_dvfs.profile.units import UNIT_NAMES, guess, is_possible, unit_of_epoch
from kernel_dvfs.profile.units import watts as shown_w
from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_clocks.files import parse_yaml
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
# a GPU that no column names
ONLY_GPU = "0"
# characters of a wrong value in a message
_SHOWN = 40
# of all time zones
_LEAST_OFFSET_H, _MOST_OFFSET_H = -12, 14
# a list each, one entry a request
_TIMED = ("start_times", "ttfts", "itls", "input_lens", "output_lens")
# result's keys, ms, by column of a profile; vLLM and SGLang agree on them
_LATENCY_KEYS = dict(zip(LATENCIES, ("median_ttft_ms", "p99_ttft_ms", "median_itl_ms", "p99_itl_ms")))


@dataclass(frozen=True, slots=True)
class BenchmarkResult:
    """What one benchmark at one request rate found."""

    where: str  # file and place in it
    ends_s: float | None  # local time of the benchmark's machine, as if it were UTC; None where it is not said
    duration_s: float
    input_tokens: float  # mean of a request
    output_tokens: float
    latencies_s: dict[str, float]  # by LATENCIES
    content: dict[str, Any]  # all of it

    @property
    def tps(self) -> float:
        """Return tokens/s, prompt and answer: in the run's middle where the requests' times are known, else of all."""
        if not self.is_timed:
            return self.content["completed"] * (self.input_tokens + self.output_tokens) / self.duration_s
        begun_s = min(self.content["start_times"])
        from_s, to_s = begun_s + TRIMMED * self.duration_s, begun_s + (1 - TRIMMED) * self.duration_s
        tokens = 0.0
        for start_s, ttft_s, gaps_s, prompt, answer in zip(*(self.content[name] for name in _TIMED)):
            if answer:
                # a prompt is read by its first token; several tokens may come at once, after one gap
                moments = start_s + ttft_s + np.concatenate([[0.0], np.cumsum(gaps_s)])
                inside = (moments >= from_s) & (moments <= to_s)
                tokens += prompt * bool(inside[0]) + answer * float(inside.mean())
        return tokens / (to_s - from_s)

    @property
    def is_timed(self) -> bool:
        """Return whether it says when each request was sent and each token came (vLLM's --save-detailed)."""
        lists = [self.content.get(name) for name in _TIMED]
        return (
            all(isinstance(entries, list) and entries for entries in lists)
            and len({len(entries) for entries in lists if entries}) == 1
        )

    @property
    def class_(self) -> str:
        """Return its requests' class. Raises InputError where they belong to several."""
        inputs, outputs = (self.content.get(name) for name in ("input_lens", "output_lens"))
        if isinstance(inputs, list) and isinstance(outputs, list):
            if len(inputs) != len(outputs) or not all(tokens == 0 or _positive(tokens) for tokens in inputs + outputs):
                raise InputError(f"{self.where}: input_lens and output_lens are not two numbers a request; cut off?")
            # a request that failed has no answer
            answered = [pair for pair in zip(inputs, outputs) if pair[1]]
            kinds = set(classify(*np.array(answered, dtype=float).T).tolist()) if answered else set()
            if len(kinds) > 1:
                names = ", ".join(CLASSES[kind] for kind in sorted(kinds))
                raise InputError(f"{self.where}: requests of classes {names}; benchmark each class by itself")
        return CLASSES[int(classify(np.array([self.input_tokens]), np.array([self.output_tokens]))[0])]


def import_runs(path: str | Path) -> tuple[list[dict[str, Any]], list[str]]:
    """Return (rows for profile.write_profile, notes for the user) of a list of runs (YAML, docs/serving.md).

    Paths are relative to the list. Raises InputError: in which run and file, what, and the remedy.
    """
    listed = _read_list(path)
    rows: list[dict[str, Any]] = []
    notes: list[str] = []
    idle_w: dict[tuple[int, int], list[float]] = {}  # by degree and clock: each run's
    for number, run in enumerate(listed["runs"], start=1):
        where = f"{path}: run {number}"
        new_rows = _rows_of(Path(path), where, run, listed, notes)
        rows += new_rows
        if "idle_power_w" in run:
            if not _positive(run["idle_power_w"]):
                raise InputError(f"{where}: idle_power_w {run['idle_power_w']}; expected watts of the whole instance")
            for setting in {(row["tp"], row["core_mhz"]) for row in new_rows}:
                idle_w.setdefault(setting, []).append(float(run["idle_power_w"]))
    # means of a class's requests are one figure of the whole profile
    for class_ in {row["class"] for row in rows}:
        class_rows = [row for row in rows if row["class"] == class_]
        for name in ("input_tokens", "output_tokens"):
            mean = float(np.average([row[name] for row in class_rows]))
            for row in class_rows:
                row[name] = mean
    if any(note is _WHOLE for note in notes):
        notes = [note for note in notes if note is not _WHOLE] + [f"{path}: {_WHOLE}"]
    rows += _idle_rows(path, rows, {setting: float(np.mean(runs_w)) for setting, runs_w in idle_w.items()})
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
    if not isinstance(kv_tokens, dict) or not all(_positive(number) for pair in kv_tokens.items() for number in pair):
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
    notes += log.notices
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
                f"{result.where}: power of {gpus} GPUs ({some(log.samples)}), but tp {tp}; name the instance's own: "
                f"gpus: [{', '.join([*log.samples][:tp])}]"
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
    where: str, result: BenchmarkResult, run: dict[str, Any], log: PowerLog, listed: dict[str, Any]
) -> tuple[float, float]:
    """Return when a result's run started and ended, s on its log's clock. Raises InputError where nothing says it."""
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
    """Return a date as vLLM writes it, s, local time as if it were UTC. Raises InputError."""
    try:
        return datetime.strptime(str(text), "%Y%m%d-%H%M%S").replace(tzinfo=UTC).timestamp()
    except ValueError:
        raise InputError(f"{where} {text!r}; expected such as 20260131-235959") from None


def _cache(where: str, listed: dict[str, Any], tp: int) -> dict[str, Any]:
    """Return what the list says of KV caches, as columns."""
    columns: dict[str, Any] = {}
    if "kv_tokens" in listed:
        if tp not in listed["kv_tokens"]:
            raise InputError(f"{where}: tp {tp} is not in kv_tokens; give all degrees, or none")
        columns["kv_tokens"] = int(listed["kv_tokens"][tp])
    if "kv_byte_per_token" in listed:
        columns["kv_byte_per_token"] = float(listed["kv_byte_per_token"])
    return columns


def _idle_rows(
    path: str | Path, rows: list[dict[str, Any]], idle_w: dict[tuple[int, int], float]
) -> list[dict[str, Any]]:
    """Return a row without load for each curve: idle power, and the latencies of the least load measured.

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


def _setting(result: BenchmarkResult, run: dict[str, Any], name: str) -> int:
    """Return a whole number that the run, or the result by --metadata, says."""
    value = run.get(name, result.content.get(name))
    try:
        if value is not None and not isinstance(value, bool) and int(value) == float(value) and int(value) >= 1:
            return int(value)
    except (TypeError, ValueError, OverflowError):
        pass
    problem = "missing" if value is None else repr(value)[:_SHOWN]
    raise InputError(
        f"{result.where}: {name} {problem}; give it to the run, or to the benchmark: --metadata {name}=..."
    )


# -- results -----------------------------------------------------------------------------------------------------------


def read_results(path: str | Path) -> list[BenchmarkResult]:
    """Return the results of a file of vLLM's or SGLang's benchmark. Raises InputError."""
    try:
        text = Path(path).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read ({error})") from None
    results: list[BenchmarkResult] = []
    decoder, place = json.JSONDecoder(), 0
    while place < len(text):
        if text[place].isspace():
            place += 1
            continue
        where = f"{path}: result {len(results) + 1}"
        try:
            content, place = decoder.raw_decode(text, place)
        except (ValueError, RecursionError) as error:
            raise InputError(f"{where}: not JSON ({error}); cut off?") from None
        if not isinstance(content, dict):
            raise InputError(f"{where}: expected an object, as vllm bench serve --save-result writes")
        results.append(_result(where, content))
    if not results:
        raise InputError(f"{path}: empty; run the benchmark with --save-result")
    return results


def _result(where: str, content: dict[str, Any]) -> BenchmarkResult:
    def number(name: str, remedy: str = "is this vllm bench serve's or SGLang's?") -> float:
        value = content.get(name)
        if not _positive(value):
            raise InputError(f"{where}: {name} {'missing' if value is None else repr(value)[:_SHOWN]}; {remedy}")
        return float(value)  # type: ignore[arg-type]

    completed = number("completed")
    asked, lost = (content.get(name) if _positive(content.get(name)) else 0 for name in ("num_prompts", "failed"))
    failed = max(float(lost or 0), float(asked or 0) - completed)
    if failed > FAILED_SHARE * (completed + failed):
        raise InputError(f"{where}: {failed:.0f} of {completed + failed:.0f} requests failed; measure that load again")
    percentiles = "add --percentile-metrics ttft,tpot,itl --metric-percentiles 99 to the benchmark"
    latencies = {column: number(name, percentiles) / 1e3 for column, name in _LATENCY_KEYS.items()}
    ends_s = _moment(f"{where}: date", content["date"]) if "date" in content else None
    inputs, outputs = (number(f"total_{name}_tokens") / completed for name in ("input", "output"))
    return BenchmarkResult(where, ends_s, number("duration"), inputs, outputs, latencies, content)


# -- power -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class PowerLog:
    """Samples of power by GPU: arrays of shape (n,) each, ascending in time."""

    path: str
    samples: dict[str, np.ndarray]  # by GPU: (n, 3) time s, W, SM clock MHz or NaN
    unix: bool  # whether the time is Unix time; else local time as if it were UTC
    names: dict[str, str]  # every name of a GPU in it -> its name in samples
    notices: tuple[str, ...]  # what of it was left out, a line each

    def mean(
        self, result: BenchmarkResult, start_s: float, end_s: float, gpus: list[int | str] | None = None
    ) -> tuple[float, float | None, int]:
        """Return (W of all GPUs together, median SM clock MHz where logged, GPUs) over a result's run from start_s to
        end_s, or over its middle, as its tokens are counted.

        Raises InputError where it was not logged throughout.
        """
        chosen = self.samples
        if gpus is not None:
            if not isinstance(gpus, list):
                raise InputError(f"{self.path}: gpus {gpus}; expected a list such as [0, 1]")
            missing = [str(gpu) for gpu in gpus if str(gpu) not in self.names]
            if missing or not gpus:
                raise InputError(f"{self.path}: no GPU {some(missing)}; it has {some(chosen)}")
            chosen = {gpu: chosen[gpu] for gpu in (self.names[str(name)] for name in gpus)}
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


# headings in small letters, the best first: power, the clock, and what tells GPUs apart. Of nvidia-smi and of Zeus
_POWER = ("power_draw_instant_w", "power_draw_w", "power_draw_average_w", "power_mw", "power_w")
_CLOCK = ("clocks_current_sm_mhz", "clocks_sm_mhz")
_GPU = ("index", "gpu_index", "uuid", "gpu_uuid", "pci_bus_id", "gpu_bus_id", "serial", "gpu_serial")
_HOW = "nvidia-smi --query-gpu=timestamp,index,power.draw.instant,clocks.sm --format=csv -lms 100"
# between samples of one GPU: where a quarter of the gaps is shorter than this share of the long ones, it is several
_SHORT_GAP = 0.25


def read_power(path: str | Path) -> PowerLog:
    """Return a log of power from its CSV. Raises InputError: which line, what, and the remedy."""
    raw = read_csv(path, exactly("timestamp", *_POWER, *_CLOCK, *_GPU), may_be_cut=True)
    # what a board cannot measure at once it may measure as a mean
    has = [column for column in _POWER if any(to_number(cell) is not None for cell in raw.columns.get(column, ()))]
    if not has or "timestamp" not in raw.columns:
        raise raw.fault(f"no columns timestamp and power.draw.instant [W]; log with {_HOW}")
    power = has[0]
    raw = raw.without([row for row, cell in enumerate(raw.columns[power]) if is_not_there(cell)], "no power in it")
    per_watt = 1e3 if power.endswith("_mw") else 1.0
    watts = []
    for row, value in enumerate(raw.numbers(power)):
        if value is None or value < 0:
            raise raw.fault(f"{quote(raw.columns[power][row])}; expected a power of at least 0", power, row)
        watts.append(value / per_watt)
    # of which some are more than one GPU draws, or none is as much as one does
    most = max(range(raw.rows), key=watts.__getitem__)
    if not is_possible("power", watts[most]):
        unit = guess("power", watts[most])
        likely = f"; is it in {UNIT_NAMES[unit]}?" if unit else ""
        what = f"{quote(raw.columns[power][most])} is {shown_w(watts[most])}, no power of a GPU{likely}"
        raise raw.fault(what, power, most)
    times, is_unix = _moments(raw)
    clock = next((column for column in _CLOCK if column in raw.columns), None)
    mhz = [nan if value is None else value for value in raw.numbers(clock)] if clock else [nan] * raw.rows
    named = [column for column in _GPU if column in raw.columns]
    gpus = raw.texts(named[0]) if named else [ONLY_GPU] * raw.rows
    samples_by_gpu: dict[str, list[tuple[float, float, float]]] = {}
    for gpu, sample in zip(gpus, zip(times, watts, mhz, strict=True), strict=True):
        samples_by_gpu.setdefault(gpu, []).append(sample)
    samples = {gpu: np.array(sorted(rows)) for gpu, rows in samples_by_gpu.items()}
    for gpu, gpu_samples in samples.items():
        gaps_s = np.diff(gpu_samples[:, 0])
        several = not named and len(gaps_s) > 3 and np.percentile(gaps_s, 25) < _SHORT_GAP * np.percentile(gaps_s, 95)
        if several or (gaps_s == 0).any():
            of = f" of GPU {gpu}" if named else ""
            raise InputError(
                f"{path}: several samples{of} at one time: of several GPUs, or two logs in one? log what tells GPUs "
                f"apart (index, uuid, pci.bus_id or serial): {_HOW}"
            )
    names = {text: gpu for column in named for text, gpu in zip(raw.texts(column), gpus, strict=True)}
    return PowerLog(str(path), samples, is_unix, names or {ONLY_GPU: ONLY_GPU}, raw.notices)


def _moments(raw: RawTable) -> tuple[list[float], bool]:
    """Return (seconds, whether they are Unix time; else local time as if it were UTC)."""
    cells = raw.texts("timestamp")
    if to_number(cells[0]) is not None:
        moments = [nan if value is None else value for value in raw.numbers("timestamp")]
        if (unit := unit_of_epoch(min(moments), max(moments))) or not all(map(isfinite, moments)):
            likely = f"; write s, it is likely in {unit}" if unit else ""
            raise raw.fault(f"{quote(cells[0])} is no Unix time in s{likely}", "timestamp", 0)
        return moments, True
    moments = []
    for row, cell in enumerate(cells):
        try:
            moments.append(datetime.strptime(cell, "%Y/%m/%d %H:%M:%S.%f").replace(tzinfo=UTC).timestamp())
        except ValueError:
            what = f"{quote(cell)}; expected a time such as 2026/01/31 23:59:59.000"
            raise raw.fault(what, "timestamp", row) from None
    return moments, False
