"""Commands on measurements as data: tables in, clocks chosen, what of them can be deployed."""

from __future__ import annotations

import json
import sys
import time
from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING, Any

from kernel_dvfs.cli import answer, json_object, tell
from kernel_dvfs.cli.arguments import PERCENT, SECONDS, SHARE, WATTS, one_of, whole
from kernel_dvfs.errors import InputError, one_line
from kernel_dvfs.files import write_json, write_text
from kernel_dvfs.gpu.clocks import parse

if TYPE_CHECKING:
    from argparse import _ArgumentGroup
    from pathlib import Path

    from kernel_dvfs.choice.schedule_file import Walked
    from kernel_dvfs.measurement.latency_file import Latency
    from kernel_dvfs.sequence.costs import Stalls


# --- change costs ---------------------------------------------------------------------------------------------------

STALL_OPTIONS = ("core_stall", "mem_stall", "stall_w")


def add_stall_arguments(parser: ArgumentParser | _ArgumentGroup) -> None:
    """--core-stall, --mem-stall, --stall-w."""
    from kernel_dvfs.sequence.costs import ASSUMED_STALL_S

    for domain in ("core", "mem"):
        parser.add_argument(
            f"--{domain}-stall",
            type=SECONDS,
            metavar="S",
            help=f"standstill as the {domain} clock changes, s (as measured, else {ASSUMED_STALL_S:g}, assumed)",
        )
    parser.add_argument(
        "--stall-w",
        type=WATTS,
        metavar="W",
        help="power meanwhile (default: the least of any kernel at its pair)",
    )


def stalls_of(options: Namespace, measured: Latency | None) -> Stalls:
    """The stalls that the options, a file of `kernel-dvfs latency`, or nobody tells."""
    from kernel_dvfs.sequence.costs import stalls

    return stalls(options.core_stall, options.mem_stall, measured)


# --- demo -----------------------------------------------------------------------------------------------------------


def add_demo(parser: ArgumentParser) -> None:
    """The arguments of the command."""
    parser.epilog = "example: kernel-dvfs demo --gpu h200_sxm"
    parser.add_argument("--gpu", default="rtx_3080_ti", metavar="NAME", help="a simulated GPU (default: rtx_3080_ti)")
    parser.add_argument(
        "--repeats",
        type=whole(1, 100),
        default=5,
        metavar="N",
        help="times that the choice is measured again (default: 5)",
    )
    parser.add_argument("--step", action="store_true", help="instead, a PyTorch step measured on a real H200")
    parser.add_argument("-o", "--output", metavar="FOLDER", help="default: demo, demo-step")
    parser.add_argument("--open", action="store_true", help="open the page")


def run_demo(options: Namespace) -> None:
    """Say each step and its answer; leave profile.parquet, schedule.json and report.html."""
    from pathlib import Path

    page = (_demo_of_step if options.step else _demo_of_study)(
        options, Path(options.output or ("demo-step" if options.step else "demo"))
    )
    if options.open:
        import webbrowser

        webbrowser.open(page.resolve().as_uri())


def _demo_of_study(options: Namespace, folder: Path) -> Path:
    from kernel_dvfs import api

    began = time.monotonic()
    sweep = api.simulate(options.gpu, folder)
    print(f"measured (simulated): {sweep.kernels} kernels at {sweep.pairs} clock pairs -> {sweep.profile}")
    schedule = api.by_clock(sweep, say=_in_one_line)[0]
    _in_one_line("")
    print(f"chosen: {api.summary(schedule)}")
    checked = api.validate(sweep, schedule, options.repeats)
    print(checked.words())
    write_json(folder / "schedule.json", schedule)
    page = api.write_page(folder / "report.html", folder / api.BY_CLOCK, schedule, checked)
    print(f"written: {folder / 'schedule.json'} and the page {page} ({time.monotonic() - began:.0f} s in all)")
    print("next: `kernel-dvfs devices` says what your own GPU could do")
    return page


def _in_one_line(said: str) -> None:
    """How far it is, over what was said before; nothing where nobody watches."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{said.partition(';')[0]}", end="", file=sys.stderr, flush=True)


def _demo_of_step(options: Namespace, folder: Path) -> Path:
    """A step that was captured and measured once, as the study of a real one shows it."""
    from kernel_dvfs.profile.step import write_shipped_step
    from kernel_dvfs.report.page.study_page import make

    kernels = write_shipped_step(folder)
    # drawn, or made of records: nothing of a demo
    html, missing = make(folder, left_out=("baseline", "locking", "fig5_kernels", "step_plane"))
    if missing:
        raise InputError(f"{folder}: {'; '.join(missing)}; delete the folder and run again")
    page = folder / "report.html"
    write_text(page, html)
    print("measured on a real NVIDIA H200 at its own clocks, 2026-11-22: two Llama-style layers, forward and backward")
    for row in kernels[:3]:
        share = f"{float(row['energy_share_percent']):.1f} % of the energy"
        print(f"  {row['name']}: {row['launches']} x {float(row['energy_mj']):.0f} mJ, {share}")
    print(f"written: the page {page}")
    print(
        "next, with a GPU, no root: snakemake --cores 1 all --config gpu=nvml clocks=auto-only "
        "workload=step:train.py:make_step"
    )
    return page


# --- import table ---------------------------------------------------------------------------------------------------


def add_import_table(parser: ArgumentParser) -> None:
    parser.epilog = "example: kernel-dvfs import measurements.csv -o profile.parquet"
    parser.add_argument("table", help="CSV, Parquet, Kernel Tuner cache, or a contribution (docs/tables.md)")
    parser.add_argument("--name", help="name of the GPU's results (default: the file's stem)")
    parser.add_argument("--settings", nargs="*", default=(), metavar="COLUMN", help="further setting columns")
    parser.add_argument("--reference", help="the baseline if no row is marked: CORE,MEM or highest")
    parser.add_argument(
        "--units",
        nargs="*",
        default=(),
        metavar="COLUMN=UNIT",
        help="where a name says another, such as core_mhz=khz",
    )
    parser.add_argument("-o", "--output", required=True, metavar="P.parquet")


def run_import_table(options: Namespace) -> None:
    from kernel_dvfs.profile.contribution import import_contribution, is_contribution
    from kernel_dvfs.profile.table import import_to_profile

    if is_contribution(options.table):
        if options.settings or options.reference or options.units:
            raise InputError(f"{options.table}: a contribution says its settings, baseline and units itself")
        _, lines = import_contribution(options.table, options.output, options.name)
        tell(*lines)
        return
    columns_in = {}
    for word in options.units:
        column, found, unit = word.partition("=")
        if not found or not column or not unit:
            raise InputError(f"--units {word}: expected COLUMN=UNIT, such as core_mhz=khz")
        columns_in[column] = unit
    imported = import_to_profile(
        options.table, options.output, options.name, options.settings, options.reference, columns_in
    )
    tell(*imported.read, *(f"note: {notice}" for notice in imported.notices))


# --- choose ---------------------------------------------------------------------------------------------------------

# options that say how an iteration is played
_OF_SEQUENCE = (
    "switch_latency",
    "switch_jitter",
    "switch_behaviour",
    *STALL_OPTIONS,
    "shared_pairs",
)


def add_choose(parser: ArgumentParser) -> None:
    parser.epilog = "example: kernel-dvfs choose profile.parquet --slack 1 -o schedule.json"
    parser.add_argument("profile", metavar="P.parquet")
    parser.add_argument("--granularity", **one_of(("kernel", "pass")), help="default: kernel")
    parser.add_argument(
        "--scope",
        **one_of(("single", "local", "global")),
        help="one pair for all, each alone, all together (default: global)",
    )
    parser.add_argument("--objective", **one_of(("waste", "edp", "energy")), help="default: waste")
    parser.add_argument(
        "--slack", type=PERCENT, metavar="PERCENT", help="tolerated slowdown, of waste only (default: 0)"
    )
    parser.add_argument(
        "--frontier",
        action="store_true",
        help="instead: least energy at every slowdown",
    )
    parser.add_argument(
        "--weights",
        **one_of(("counts", "raw", "equal-time")),
        help="default: counts for a workload, raw for a table",
    )
    parser.add_argument(
        "--ties",
        **one_of(("tied", "untied")),
        default="tied",
        help="one choice for identical launches, or each its own (default: tied)",
    )
    parser.add_argument(
        "--walk",
        metavar="BY_CLOCK.json",
        help="the schedule that this walk has shown (default: the profile's optimum)",
    )
    sequence = parser.add_argument_group(
        "an iteration, launch by launch (global waste)", "where a change of clocks takes time; docs/deploy.md"
    )
    sequence.add_argument(
        "--sequence",
        metavar="ORDER",
        help="launch by launch: `profile`, or a JSON list of kernel ids",
    )
    sequence.add_argument(
        "--switch-latency",
        type=_seconds_or_file,
        metavar="S",
        help="from a request to its effect; or a file of kernel-dvfs latency",
    )
    sequence.add_argument(
        "--switch-jitter",
        type=SHARE,
        metavar="SHARE",
        help="of the latency, early or late (default: 0)",
    )
    sequence.add_argument(
        "--switch-behaviour", **one_of(("lag", "ahead")), help="what launches do meanwhile (default: ahead)"
    )
    add_stall_arguments(sequence)
    sequence.add_argument(
        "--shared-pairs", action="store_true", default=None, help="leave out pairs that not every kernel has"
    )
    parser.add_argument("--json", action="store_true", help="print the answer as JSON")
    parser.add_argument("-o", "--output", metavar="S.json", help="default: print the answer only")


def run_choose(options: Namespace) -> None:
    if options.json and (options.frontier or options.sequence is not None):
        raise InputError("--json is the answer of a schedule; leave it out with --frontier and --sequence")
    if options.output is None and (options.frontier or options.sequence is not None):
        raise InputError("choose: -o is missing: --frontier and --sequence write a file; add -o S.json")
    if options.frontier:
        _run_frontier(options)
        return
    slack = options.slack or 0
    if options.slack is not None and options.objective not in (None, "waste"):
        raise InputError(
            f"--slack {slack:g}: slack belongs to waste; leave it out with --objective {options.objective}"
        )
    if options.sequence is not None:
        _run_sequence(options, slack)
        return
    for name in _OF_SEQUENCE:
        if getattr(options, name) is not None:
            raise InputError(f"{_flag(name)} belongs to --sequence; add --sequence profile")
    _run_schedule(options, slack)


def _run_schedule(options: Namespace, slack: float) -> None:
    import warnings

    from kernel_dvfs.choice.schedule import choose
    from kernel_dvfs.report.words import answer_line, answer_of

    granularity = options.granularity or "kernel"
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", UserWarning)
        schedule = choose(
            options.profile,
            granularity=granularity,
            scope=options.scope or "global",
            objective=options.objective or "waste",
            slack_percent=slack,
            weights=options.weights,
            ties=options.ties,
            walked=_walked(options.walk, granularity, slack) if options.walk else None,
        )
    tell(*(f"note: {each.message}" for each in said))
    if schedule["status"] != "optimal":
        raise InputError(
            f"{options.profile}: no choice keeps the limit of {slack:g} % slowdown ({schedule['proof']}); raise --slack"
        )
    if options.output is not None:
        write_json(options.output, schedule)
    answer(json.dumps(answer_of(schedule)) if options.json else one_line(answer_line(schedule)))
    if options.output is None:
        tell("note: nothing is written; add -o schedule.json for the clocks of each kernel")


def _walked(path: str, granularity: str, slack: float) -> Walked:
    """Return what the walk of a study by clock has shown for a limit. Raises InputError."""
    from kernel_dvfs.search import study_file

    walks = study_file.read(path).walks
    name = study_file.name_of(granularity, slack)
    if name not in walks:
        raise InputError(f"study by clock {path}: it walked no {name}; it walked {', '.join(walks) or 'nothing'}")
    return walks[name]


def _run_frontier(options: Namespace) -> None:
    from kernel_dvfs.choice.frontier import relaxed_frontier
    from kernel_dvfs.choice.schedule import default_weights
    from kernel_dvfs.profile.store import read_profile
    from kernel_dvfs.report.words import frontier_line

    for name in ("granularity", "scope", "objective", "slack", "walk", "sequence", *_OF_SEQUENCE):
        if getattr(options, name) is not None:
            raise InputError(
                f"{_flag(name)} does not go with --frontier, which has kernels, waste, and every scope and slack"
            )
    found = relaxed_frontier(options.profile, options.ties, options.weights)
    write_json(options.output, found)
    metadata = read_profile(options.profile).metadata
    about = {**metadata, "weights": options.weights or default_weights(metadata)}
    answer(one_line(frontier_line(about, found["points"], options.output)))


def _run_sequence(options: Namespace, slack: float) -> None:
    from kernel_dvfs.report.words import iteration_line
    from kernel_dvfs.sequence.changes import Timing
    from kernel_dvfs.sequence.launches import read_sequence
    from kernel_dvfs.sequence.programme import choose_changes
    from kernel_dvfs.sequence.schedule import iteration_schedule

    asked = (options.granularity or "kernel", options.scope or "global", options.objective or "waste")
    if asked != ("kernel", "global", "waste"):
        raise InputError(f"--sequence is for --scope global --objective waste of kernels, not {' '.join(asked)}")
    for name in ("weights", "walk"):
        if getattr(options, name) is not None:
            raise InputError(
                f"{_flag(name)} does not go with --sequence, where each launch counts once; lower --slack instead"
            )
    if options.switch_latency is None:
        raise InputError(
            "--sequence needs --switch-latency, seconds from a request to its effect (0: at once), or a file of "
            "kernel-dvfs latency"
        )
    read = read_sequence(options.profile, options.sequence, options.stall_w, bool(options.shared_pairs), options.ties)
    latency_s, jitter, source, measured = _latency(options, read.gpu)
    stalls = stalls_of(options, measured)
    timing = Timing(options.switch_behaviour or "ahead", latency_s, jitter, *stalls.both_s)
    tell(*(f"note: {notice}" for notice in read.notices))
    try:
        choice = choose_changes(read.sequence, timing, slack / 100)
    except InputError as error:
        raise InputError(f"{options.profile}: {error}") from None
    stall = "least power of any kernel at the pair" if options.stall_w is None else f"{options.stall_w:g} W"
    sources = {"latency": source, "stalls": stalls.source}
    made = iteration_schedule(read, timing, choice, slack, stall, sources)
    write_json(options.output, made)
    answer(iteration_line(made))


def _latency(options: Namespace, gpu: dict[str, Any]) -> tuple[float, float, str, Latency | None]:
    """(latency s, jitter, where they are from in words, the file of `kernel-dvfs latency` that was named or None)."""
    from kernel_dvfs.sequence.costs import ASSUMED, read_latency

    if isinstance(options.switch_latency, float):
        return options.switch_latency, options.switch_jitter or 0.0, ASSUMED, None
    measured = read_latency(options.switch_latency, gpu)
    jitter = measured.jitter if options.switch_jitter is None else options.switch_jitter
    return measured.latency_s, jitter, measured.about, measured


def _seconds_or_file(text: str) -> float | str:
    try:
        float(text)
    except ValueError:
        return text
    return SECONDS(text)


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


# --- deployable -----------------------------------------------------------------------------------------------------


def add_deployable(parser: ArgumentParser) -> None:
    """The command's options."""
    parser.epilog = "example: kernel-dvfs study deployable profile.parquet --latencies 0.001 0.01 0.05 -o schedules"
    parser.add_argument("profile", metavar="P.parquet")
    parser.add_argument(
        "--latencies",
        nargs="+",
        type=SECONDS,
        metavar="S",
        help="latencies of a change, seconds (default: as measured, median and 95 %%)",
    )
    parser.add_argument("--measured", metavar="L.json", help="a file of kernel-dvfs latency, for values not given here")
    add_stall_arguments(parser)
    parser.add_argument(
        "--stalls",
        nargs="*",
        type=SECONDS,
        default=[],
        metavar="S",
        help="further stalls of both clocks, s, for the table",
    )
    parser.add_argument("--slack", type=PERCENT, default=0.0, metavar="PERCENT", help="tolerated slowdown (default: 0)")
    parser.add_argument(
        "--reserve-of", metavar="S.json", help="keep as much time in reserve as this schedule, which a walk has shown"
    )
    parser.add_argument("-o", "--output", required=True, metavar="DIR", help="where deployable.json and iterations go")


def run_deployable(options: Namespace) -> None:
    """Run the command. Raises InputError."""
    from kernel_dvfs.choice.schedule_file import read_schedule
    from kernel_dvfs.layout import DEPLOYABLE, iteration_name
    from kernel_dvfs.sequence.changes import Timing
    from kernel_dvfs.sequence.costs import ASSUMED, in_words, read_latency
    from kernel_dvfs.sequence.deployable import deployables
    from kernel_dvfs.sequence.launches import read_sequence
    from kernel_dvfs.sequence.schedule import iteration_schedule

    reserve = 0.0
    if options.reserve_of:
        walk = read_schedule(options.reserve_of)["walk"]
        reserve = walk["reserve_percent"] if walk else 0.0
    read = read_sequence(options.profile, "profile", options.stall_w, shared_pairs=True)
    tell(*(f"note: {notice}" for notice in read.notices))
    measured = read_latency(options.measured, read.gpu) if options.measured else None
    if options.latencies is None and measured is None:
        raise InputError("study deployable: --latencies or --measured is missing")
    stalls = stalls_of(options, measured)
    stalls_s, swept_s = stalls.both_s, sorted(set(options.stalls))
    latencies_s = measured.latencies_s if measured and options.latencies is None else sorted(set(options.latencies))
    source = measured.about if measured and options.latencies is None else ASSUMED
    sources = {"latency": source, "stalls": stalls.source}
    told = in_words(**sources)
    try:
        try:
            rows, choices = deployables(read.sequence, latencies_s, stalls_s, swept_s, (options.slack - reserve) / 100)
        except InputError:
            if not reserve:
                raise
            # stalls can cost more time than any clocks gain; auto always keeps a limit without reserve
            print(
                f"note: no choice keeps {reserve:.3g} % of time in reserve at each stall; none is kept", file=sys.stderr
            )
            reserve = 0.0
            rows, choices = deployables(read.sequence, latencies_s, stalls_s, swept_s, options.slack / 100)
    except InputError as error:
        raise InputError(f"{options.profile}: {error}") from None
    stall = "least power of any kernel at the pair" if options.stall_w is None else f"{options.stall_w:g} W"
    for latency_s, choice in choices.items():
        timing = Timing("ahead", latency_s, 0.0, *stalls_s)
        # the limit that a player judges by; the reserve was kept free of it when choosing
        content = iteration_schedule(read, timing, choice, options.slack, stall, sources) | {"reserve_percent": reserve}
        write_json(f"{options.output}/{iteration_name(latency_s)}.json", content)
    about = {"schema": DEPLOYABLE, "gpu": read.gpu, "workload": {"setup": read.workload.get("setup")}}
    for row in rows:
        # stalls that are swept are a question, not a measurement
        row["costs"] = None if row["latency_ms"] in (None, 0) else told if row["is_default"] else ASSUMED
    write_json(
        f"{options.output}/deployable.json", about | {"reserve_percent": reserve, "sources": sources, "rows": rows}
    )


# --- headline map ---------------------------------------------------------------------------------------------------

_EXAMPLE = '{"tensor_energy_pj": [0.5, 2.2], "gemm_traffic": [1, 4], "auto_core_mhz": [1950]}'


def add_headline_map(parser: ArgumentParser) -> None:
    """The arguments of the command."""
    parser.epilog = (
        "example: kernel-dvfs study headline-map --gpu SETUP.json --pairs auto-auto,1470-auto "
        f"--axes '{_EXAMPLE}' -o headline_map.csv"
    )
    parser.add_argument("--gpu", required=True, metavar="SETUP", help="a setup file of a simulated GPU")
    parser.add_argument("--pairs", required=True, help="clock pairs CORE-MEM of the grid, separated by commas")
    parser.add_argument("--axes", required=True, metavar="JSON", help=f"the values on each axis, e.g. {_EXAMPLE}")
    parser.add_argument(
        "--ties", **one_of(("tied", "untied")), default="tied", help="copies of a launch (default: tied)"
    )
    parser.add_argument("-o", "--output", required=True, metavar="CSV")


def run_headline_map(options: Namespace) -> None:
    """Run the command. Raises InputError."""
    import pandas as pd

    from kernel_dvfs.files import write_text
    from kernel_dvfs.measurement.setup import read
    from kernel_dvfs.search.headline_map import headline_map

    pairs = [parse(text, "-") for text in options.pairs.split(",")]
    rows = headline_map(read(options.gpu), pairs, _axes(options.axes), options.ties)
    write_text(options.output, pd.DataFrame(rows).to_csv(index=False, lineterminator="\n"))


def _axes(text: str) -> dict[str, list[float]]:
    given = json_object("--axes", text, _EXAMPLE)
    good = all(
        isinstance(each, list) and all(isinstance(one, (int, float)) and one >= 0 for one in each)
        for each in given.values()
    )
    if not good:
        raise InputError(f"--axes {text}: not lists of numbers from 0 on; expected {_EXAMPLE}")
    return given
