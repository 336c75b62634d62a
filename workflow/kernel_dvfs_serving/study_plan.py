"""From a checked configuration to the serving study: its folders, its profile, its experiments, tables and figures.

Pure: looks whether given files are there, writes nothing, starts nothing. Two folders: what is said of one instance
lies in that of the instance, what comes of replaying a trace in one of its own below.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernel_dvfs.gpu import spec as gpu_spec
from kernel_dvfs.outputs import Output
from kernel_dvfs.table_file import read_rows
from kernel_dvfs_clocks.errors import InputError, Missing
from kernel_dvfs_serving.models import check_degree, served
from kernel_dvfs_serving.resharding import check_degrees
from kernel_dvfs_serving.system import (
    ABLE,
    DEFAULTS,
    NO_SPARE,
    SETTINGS,
    SYNTHETIC_HOUR,
    TUNED,
    check_spare,
    check_step,
)

# keys that say what is simulated, and what grid of it, with their options
_INSTANCE = {
    "gpu": "--gpu",
    "model": "--model",
    "requests": "--requests",
    "max_batch": "--max-batch",
    "chunk_tokens": "--chunk-tokens",
    "host_s": "--host-s",
}
_GRID = {"degrees": "--tp", "core_mhz": "--core-mhz"}
# of the instance and its grid, and of the replay, what their folder's name does not say in words
_INSTANCE_TOLD = ("requests", "max_batch", "chunk_tokens", "degrees", "core_mhz", "seed", "trace")
_REPLAY_TOLD = ("trace", "usd_per_server_hour", "usd_per_kwh", "co2_g_per_kwh")
# of a replay with a given profile, whose folder says nothing of them
_GIVEN_TOLD = ("gpu", "model", "host_s")
# keys of the replay that are no settings of a cluster
_REPLAY = (
    "gpu",
    "model",
    "host_s",
    "trace",
    "trace_sha256",
    "slo_scale",
    "usd_per_server_hour",
    "usd_per_kwh",
    "co2_g_per_kwh",
)
# {experiment that replays the trace: cores that it may use}; one that looks for plans shares that with a second process
REPLAYED = {"systems": 2, "sensitivity": 1, "loads": 1, "misprediction": 1}
# of the shipped hour: so many that the tuned plan needs more than one server
SHIPPED_TIMES = 5


@dataclass(frozen=True, slots=True)
class ServingPlan:
    """What a serving study is made of."""

    folder: str  # of the instance
    profile: str  # path of the serving profile
    made_here: bool  # whether the profile is simulated here; else it is given
    instance: str  # options of `kernel-dvfs serving profile` and `serving table1`, as one text; "" for a given profile
    grid: str  # options of `serving profile` alone, likewise
    replay: str  # folder of the replay
    trace: str | None  # path of a given trace; None: the shipped one
    options: dict[str, Any]  # of `kernel-dvfs serving study`
    experiments: dict[str, str]  # name: path, those of the instance and those of the replay
    costs: dict[str, float]  # of a job of each rule that takes long, CPU s, about

    def has(self, *names: str) -> bool:
        """Return whether these experiments are all made."""
        return set(names) <= set(self.experiments)

    def path(self, experiment: str) -> str:
        """Return the path of what an experiment found."""
        return self.experiments[experiment]

    def setups(self) -> list[Any]:
        """Return the files of setups that it needs: none, since it measures nothing."""
        return []

    def sealed(self) -> tuple[list[str], dict[str, str]]:
        """Return the folders of what it derives, and {name: path} of what that is made of and lies elsewhere."""
        return [self.folder, self.replay], {"profile": self.profile, "trace": self.trace or ""}

    def answer_line(self) -> str:
        """Return what a run ends with. Raises InputError as line_of_serving does."""
        return line_of_serving(self.replay)

    @property
    def page(self) -> str:
        """Return the path of its page."""
        return f"{self.replay}/report.html"

    def folder_of(self, output: Output) -> str:
        """Return where a table or figure belongs: the folder of the experiments that it reads first."""
        return str(Path(self.path(output.reads[0])).parent.parent)

    def inputs_of(self, output: Output) -> list[str]:
        """Return what it is made from: its experiments, and of the replay study.json."""
        experiments = output.made_from(self)
        return [*experiments, f"{self.replay}/study.json"] if self.folder_of(output) == self.replay else experiments


def plan_serving(config: dict, results: str = "results") -> ServingPlan:
    """Return the study of `config` (checked by config.check). Raises InputError for what the schema cannot say."""
    asked = config["serving"]
    try:
        if asked["profile"]:
            folder, profile, instance, grid = _given(asked, results)
        else:
            folder, profile, instance, grid = _simulated(asked, config["seed"], results)
        _check_replay(asked)
    except InputError as error:
        raise InputError(f"config: serving: {str(error).removeprefix('serving: ')}") from None
    settings = {key: asked[key] for key in SETTINGS if key in asked} | {"seed": config["seed"]}
    replay = f"{folder}/{_replay_name(asked, settings)}"
    of_instance = ["anchors", "table1"] if instance else ["anchors"]
    return ServingPlan(
        folder=folder,
        profile=profile,
        made_here=bool(instance),
        instance=instance,
        grid=grid,
        replay=replay,
        trace=asked["trace"],
        options={key: asked[key] for key in _REPLAY}
        | {"trace_times": _trace_times(asked), "profile": profile, "settings": settings},
        experiments={name: f"{folder}/experiments/{name}.json" for name in of_instance}
        | {name: f"{replay}/experiments/{name}.json" for name in REPLAYED},
        costs=_costs(asked),
    )


def _costs(asked: dict) -> dict[str, float]:
    """Return ServingPlan's costs. Of the shipped grid: a profile takes 5 ms for each request, degree and clock, the
    experiments of a trace 20 ms for each of its requests, in the mean."""
    kinds = len(asked["degrees"]) * len(asked["core_mhz"])
    with open(asked["trace"] or SYNTHETIC_HOUR, "rb") as file:
        requests = sum(1 for _ in file) * _trace_times(asked)
    return {
        "serving_profile": 0.005 * kinds * asked["requests"],
        "serving_table1": 0.02 * asked["requests"],
        "serving_anchors": 20.0,
        "serving_experiment": 0.02 * requests,
    }


def _given(asked: dict, results: str) -> tuple[str, str, str, str]:
    """Return (folder, profile, no options of an instance, none of a grid)."""
    path = Path(asked["profile"])
    if not os.path.isfile(path):  # also for a name that no file can have
        raise InputError(f"profile = '{path}': no such file; allowed: a serving profile (.csv), or null")
    return f"{results}/serving/table-{path.stem}{_digest({'profile': str(path)})}", str(path), "", ""


def _simulated(asked: dict, seed: int, results: str) -> tuple[str, str, str, str]:
    """Return (folder, profile, options of the instance, options of the grid)."""
    spec = gpu_spec.resolve(asked["gpu"])
    clocks = spec["clocks"]["core_mhz"]
    outside = [mhz for mhz in asked["core_mhz"] if not clocks["lowest"] <= mhz <= clocks["highest"]]
    if outside:
        raise InputError(f"core_mhz = {outside[0]} is not possible; allowed: {clocks['lowest']} to {clocks['highest']}")
    for degree in asked["degrees"]:
        check_degree(served(asked["model"]), degree)
    check_degrees(asked["degrees"])
    check_step(asked["max_batch"], asked["chunk_tokens"])
    folder = f"{results}/serving/sim-{spec['id']}-{asked['model']}"
    if asked["host_s"] != DEFAULTS["host_s"]:
        folder += f"-host{asked['host_s']:g}"
    grid = _text(asked, _GRID)
    if asked["trace"]:
        # the classes' lengths are those of the trace: another trace, another profile
        folder += f"-{Path(asked['trace']).stem}"
        grid += f" --lengths-of {shlex.quote(asked['trace'])}"
    folder += _digest(_differing(asked | {"seed": seed}, _INSTANCE_TOLD))
    return folder, f"{folder}/profile.csv", f"{_text(asked, _INSTANCE)} --seed {seed}", grid


def _differing(asked: dict, keys: tuple[str, ...]) -> dict[str, Any]:
    """Return those of the keys that are not as shipped: a folder's name says what differs."""
    return {key: asked[key] for key in keys if asked[key] != DEFAULTS[key]}


def _digest(options: dict[str, Any]) -> str:
    """Return the end of a folder's name, which is the same for the same options alone; "" for none."""
    if not options:
        return ""
    return "-" + hashlib.sha256(json.dumps(options, sort_keys=True).encode()).hexdigest()[:8]


def _text(asked: dict, options: dict[str, str]) -> str:
    values = {key: asked[key] if isinstance(asked[key], list) else [asked[key]] for key in options}
    return " ".join(f"{option} {','.join(map(str, values[key]))}" for key, option in options.items())


def _trace_times(asked: dict) -> int:
    """Return how often each request comes."""
    if asked["trace_times"] is not None:
        return asked["trace_times"]
    return 1 if asked["trace"] else SHIPPED_TIMES


def _check_replay(asked: dict) -> None:
    trace = asked["trace"]
    if trace is not None and not os.path.isfile(trace):  # also for a name that no file can have
        raise InputError(
            f"trace = '{trace}': no such file; allowed: a trace (.csv; docs/serving.md says where to get the Azure "
            "2023 ones), or null for the shipped synthetic hour"
        )
    if asked["servers"] < asked["pools"]:
        raise InputError(
            f"servers = {asked['servers']} is not possible; allowed: at least one for each of the "
            f"{asked['pools']} pools"
        )
    check_spare(asked["servers"], asked["spare"])


def _replay_name(asked: dict, settings: dict) -> str:
    """Return the name of a replay's folder: trace, servers and pools; whatever else is not the default makes another
    study, settings and promise in words."""
    named = settings | {"slo_scale": asked["slo_scale"]}
    changed = [key for key, value in named.items() if key not in ("servers", "pools") and value != DEFAULTS[key]]
    name = Path(asked["trace"]).stem if asked["trace"] else "synthetic-hour"
    if asked["trace_times"] is not None:
        name += f"-x{asked['trace_times']}"
    name += f"-s{asked['servers']}-p{asked['pools']}"
    unsaid = _differing(asked, _REPLAY_TOLD)
    if asked["profile"]:
        unsaid |= {key: asked[key] for key in _GIVEN_TOLD}
    return name + "".join(f"-{key}-{named[key]}" for key in sorted(changed)) + _digest(unsaid)


def line_of_serving(folder: str) -> str:
    """Return what a run ends with: `serving: tuned static plan wins with 0.301 J a token served in time (99.8 % of the
    promises kept). Start 1 server of 8 GPUs, TP4 at 1200 MHz, boosted to 1600. How sure: ...`

    From tables/savings.json: who keeps the promise for the least energy, without hindsight. Where that table is
    not made, where the files are. Raises InputError where it was changed since it was written.
    """
    try:
        rows = {row["system"]: row for row in read_rows(Path(folder) / "tables/savings.json")}
        keeping = {
            name: row["j_per_token_in_time"] for name, row in rows.items() if row["promise_kept"] and name in ABLE
        }
        subject = rows[TUNED]["gpu"]
        if not keeping:
            return f"serving: no system keeps the promise; give more servers ({subject}). See {folder}"
        best = min(keeping, key=keeping.__getitem__)
        kept_percent = int(100 * rows[best]["kept_percent"]) / 100  # 98.999 % is not 99
        answer = (
            f"{best} wins with {keeping[best]:.3f} J a token served in time ({kept_percent:g} % of the promises kept)"
        )
        if TUNED not in keeping:
            answer += "; no static plan keeps the promise"
        elif best != TUNED:
            answer += f", {keeping[best] / keeping[TUNED]:.3f} of the {TUNED}'s {keeping[TUNED]:.3f}"
        plan = rows[best]["plan"] or ""
    except (Missing, LookupError, TypeError, ArithmeticError):
        return f"serving: tables and figures are in {folder}"
    if plan:
        answer += f". Start {plan}"
    if plan.startswith("1 server "):
        answer += f"; {NO_SPARE}"
    return f"serving: {answer}. How sure: {subject}; tuned on this trace. Open {folder}/report.html"
