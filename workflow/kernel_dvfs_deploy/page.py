"""How chosen clocks are put to work: what can be set where changes take time, and commands that can be copied."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from kernel_dvfs.layout import ITERATION_SCHEDULE, LAUNCH, PASS, PASS_STRICT, RUN, STRICT, iteration_name
from kernel_dvfs.measurement.latency_file import latencies
from kernel_dvfs.profile.store import read_profile
from kernel_dvfs.report.page.frontier import ShownChange, Stop, apply_at, setting_in_words
from kernel_dvfs.report.page.parts import Deployable, Deployment, PageStep
from kernel_dvfs.report.results import Results
from kernel_dvfs.report.words import costs_in_words, how_known, in_words, set_today
from kernel_dvfs_clocks.clocks import AUTO, parse
from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_clocks.files import read_json
from kernel_dvfs_deploy.sequence import costs
from kernel_dvfs_deploy.sequence.baselines import per_pass
from kernel_dvfs_deploy.sequence.chains import chain_of
from kernel_dvfs_deploy.sequence.changes import Timing
from kernel_dvfs_deploy.sequence.deployable import again_of, by_pass, offered_pairs
from kernel_dvfs_deploy.sequence.launches import read_sequence
from kernel_dvfs_deploy.sequence.schedule import read_timing

_CLOCKS = ("core_mhz", "mem_mhz")
_MARKED = "passes are marked with kernel_dvfs_deploy.mark"
_ASKED_AHEAD = "asked for ahead, by kernel_dvfs_deploy.player"


# --- what can be set today --------------------------------------------------------------------------------------------


def deployable(
    path: str, gpu: Mapping[str, Any], limits_percent: Sequence[float], results: Results | None = None
) -> Deployable | None:
    """Return what can be set within each limit where a change takes time: as a study has chosen it, else a pair a pass.

    gpu: as a setup has it, with the spec where it is simulated. results: of the study, None where there is none. None
    where the order of launches is not known, or the settings are not clocks alone.
    """
    rows = _today(results) if results else []
    profile = read_profile(path)
    try:
        read = read_sequence(profile, shared_pairs=True)
    except InputError:
        return None
    if not read.sequence.passes:
        return None
    single = {row["slack_percent"]: _stop(row, gpu) for row in rows if row["way"] == RUN}
    stops: dict[float, Stop] = {}
    for row in rows:
        if row["way"] != RUN and row["changes"]:  # without a change it is one pair for the run
            stop, limit = _stop(row, gpu, results), row["slack_percent"]
            stops[limit] = min(stop, stops.get(limit, stop), key=lambda option: option.energy.best)
    chosen = {row["slack_percent"] for row in rows}
    sequence, alone = offered_pairs(read.sequence, profile)
    mixed = sequence.only(np.arange(len(sequence.pairs) - alone))
    timing, cost_words = _timing(results, gpu)
    if mixed.pairs and len(mixed.passes) == 2:
        chain = chain_of(mixed, timing)
        for limit in limits_percent:
            changes = per_pass(mixed, timing, limit / 100, chain) if limit not in chosen else None
            if changes is not None and changes.at:  # without a change it is one pair for the run
                pairs = [(name, dict(zip(_CLOCKS, pair))) for name, pair in by_pass(mixed, changes)]
                base = (mixed.baseline_time_s, mixed.baseline_energy_j)
                time, energy = (ShownChange(100 * (new / old - 1)) for new, old in zip(chain.totals(changes), base))
                how = how_known(gpu, False)
                stops[limit] = Stop(limit, energy, time, how, _in_words(pairs), apply_at(pairs), _MARKED)
    return Deployable(single, stops, costs_in_words(rows[-1]) if rows else cost_words)


def _today(results: Results) -> list[dict[str, Any]]:
    """Return what can be set today, of what a study has chosen."""
    try:
        return set_today(results.deployable)
    except InputError:
        return []


def _stop(row: Mapping[str, Any], gpu: Mapping[str, Any], results: Results | None = None) -> Stop:
    """Return a row of what can be set today. results: where its schedule lies, of one that is played launch by
    launch."""
    again = again_of(row)
    time, energy = (
        ShownChange(row[f"{name}_change_percent"], *((change.mean, change.low, change.high) if change else ()))
        for name, change in zip(("time", "energy"), again or (None, None))
    )
    of = row["slack_percent"], energy, time, how_known(gpu, again is not None)
    if row["clocks"] == AUTO:
        return Stop(*of, AUTO, "", "no pair is shown to save energy: nothing to set")
    if results and row["way"] == LAUNCH:
        path = f"{_place(results)}/{row['clocks'].removeprefix('schedules/')}"
        is_step = "step" in results.workload
        play = f"kernel_dvfs_deploy.play(step, {path!r})" if is_step else f"Player(read_iteration({path!r}), ...)"
        return Stop(*of, f"{row['changes']} changes of clocks", play, _ASKED_AHEAD)
    words = [part.rpartition(" ") for part in row["clocks"].split("; ")]
    pairs = [(name, dict(zip(_CLOCKS, parse(pair)))) for name, _, pair in words]
    return Stop(*of, _in_words(pairs), apply_at(pairs), _MARKED if row["way"] == PASS else "")


def _in_words(pairs: Sequence[tuple[str, Mapping[str, Any]]]) -> str:
    return "; ".join(f"{name} {setting_in_words(setting)}".strip() for name, setting in pairs)


def _timing(results: Results | None, gpu: Mapping[str, Any]) -> tuple[Timing, str]:
    """Return (what a change takes, the same in words): as the study's schedules have it, else of the spec, else
    assumed."""
    if results and (paths := _iterations(results)):
        return read_timing(paths[len(paths) // 2]), ""
    (core, mem), source = latencies(None, gpu.get("spec", {}).get("switching"))
    stalls = costs.stalls(None, None, None)
    row = {"latency_ms": 1e3 * core.median_s, "mem_latency_ms": 1e3 * mem.median_s}
    row |= {"core_stall_ms": 1e3 * stalls.core_s, "mem_stall_ms": 1e3 * stalls.mem_s}
    cost_words = costs_in_words(row | {"costs": costs.in_words(latency=source, stalls=stalls.source)})
    return Timing.spread(core, mem, *stalls.both_s), cost_words


# --- how to --------------------------------------------------------------------------------------------------------


def deployment(results: Results, workload: Mapping[str, Any]) -> Deployment:
    """Steps and notes for a results folder, besides the commands beside the slider; the steps name only schedules that
    are there. workload: of its setup."""
    place = _place(results)
    steps = _of_step(results, place, workload) if "step" in workload and not results.gpu.get("forecast") else []
    today = _today(results)
    launches = [(path, facts) for path in _iterations(results) if (facts := _iteration(path))]
    if launches:
        text = (
            "The program that launches the kernels plays one of these with kernel_dvfs_deploy.player, and asks for "
            "each change ahead of time. Take the one for the time that a change of clocks takes on your GPU."
        )
        again = {row["clocks"]: _again(results, row) for row in today if row["again"]}
        lines = [
            f"{place}/{path.name}\n    changes take {takes} ({from_}); {again.get(f'schedules/{path.name}', change)}"
            for path, (takes, from_, change) in launches
        ]
        steps.append(PageStep("Launch by launch", text, "\n".join(lines)))
    steps.append(
        PageStep(
            "Give the clocks back",
            "Done by apply itself, whatever ends it; by hand where a machine was killed:",
            "kernel-dvfs reset --all",
        )
    )
    return Deployment(steps, _notes(results, workload, next((row for row in today if row["way"] == LAUNCH), None)))


def _place(results: Results) -> str:
    """Return where its schedules lie, as the contract has it: a page that is mailed should not tell where its maker
    keeps files."""
    return "/".join(("results", *Path(results.folder).resolve().parts[-2:], "schedules"))


def _of_step(results: Results, place: str, workload: Mapping[str, Any]) -> list[PageStep]:
    """Return how a captured step is played, with clocks launch by launch where they were chosen (for the middle
    latency, as on the first screen), else a pair a section."""
    names = [path.stem for path in _iterations(results)]
    schedule = f"{place}/{names[len(names) // 2] if names else PASS_STRICT}.json"
    text = (
        f"step is what kernel_dvfs.capture gives of {workload.get('source') or 'it'}. It is cut where clocks change, "
        "and the schedule is used only if repeats on the step itself show that it saves and keeps its limit. Take the "
        "schedule whose ms are the time that a clock change takes on your GPU (switch_s of a record's request)."
    )
    play = (
        f"with kernel_dvfs_deploy.play(step, {schedule!r}) as run:\n    for batch in batches:\n"
        "        inputs.copy_(batch)\n        run()"
    )
    return [PageStep("Your own step at its clocks", text, play)]


def _again(results: Results, row: Mapping[str, Any]) -> str:
    """Return what a choice gave when it was measured again."""
    changes = again_of(row)
    assert changes, "of one that was"
    time, energy = changes
    return f"{how_known(results.gpu, True)}: {in_words(energy.mean, 'energy')}, {in_words(time.mean, 'time')}"


def _iterations(results: Results) -> list[Path]:
    """Return the schedules launch by launch that this study has chosen, by latency. Others in the folder are left over
    from another configuration."""
    try:
        latencies_ms = sorted({row["latency_ms"] for row in results.deployable if row["way"] == LAUNCH})
    except InputError:
        return []
    paths = [Path(results.folder) / "schedules" / f"{iteration_name(ms / 1e3)}.json" for ms in latencies_ms]
    return [path for path in paths if path.is_file()]


def _iteration(path: Path) -> tuple[str, str, str] | None:
    """Return (what changes take, where that and the stalls are from, what it claims, in words) of an iteration schedule
    that changes clocks; None of another file."""
    try:
        content = read_json(path)
        switching = content["switching"]
        from_ = costs.in_words(**switching.get("sources", {"latency": costs.ASSUMED}))
        takes = f"{1e3 * switching['latency_s']:g} ms"
        if "core" in switching:
            core, mem = (f"{1e3 * switching[domain]['median_s']:.3g} ms" for domain in ("core", "mem"))
            takes = f"{core} (core) or {mem} (memory), medians"
        energy, time = (in_words(content[f"{quantity}_change_percent"], quantity) for quantity in ("energy", "time"))
        facts = takes, from_, f"claimed: {energy}, {time}"
        return facts if content["schema"] == ITERATION_SCHEDULE and content["change_count"] else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _notes(results: Results, workload: Mapping[str, Any], row: Mapping[str, Any] | None) -> list[str]:
    """Return what to know before these clocks are used, a line each. row: what clocks launch by launch keep of the
    saving today."""
    notes = []
    if results.gpu.get("forecast"):
        source = workload.get("source") or "FILE.py:FUNCTION"
        notes.append(
            "These clocks are a forecast. apply refuses its schedules on a real GPU, and cannot tell where a pair "
            f"comes from. Measure the step where clocks can be set: kernel-dvfs study {source}"
        )
    elif results.gpu["kind"] == "simulated":
        notes.append(
            "These clocks are of a simulated GPU. apply refuses its schedules on a real one, and cannot tell where a "
            "pair comes from. Measure yours first: kernel-dvfs study nvml"
        )
    takes = "milliseconds"
    if row is not None:
        takes = (
            f"{row['latency_ms']:.3g} ms (core) or {row['mem_latency_ms']:.3g} ms (memory), medians ({row['costs']})"
        )
    profile = results.profile
    kernels = profile[(profile.study == "kernel") & profile.is_baseline]
    notes.append(
        f"Clocks per kernel ({STRICT}) assume that a change of clocks costs nothing. It takes {takes}, and the kernels "
        f"take {1e3 * kernels.time_s.min():.3g} to {1e3 * kernels.time_s.max():.3g} ms a launch. The table of what "
        "can be deployed has what is left of the saving at known latencies."
    )
    return notes
