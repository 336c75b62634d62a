"""The library for notebooks and programs, by a few names: `import kernel_dvfs as kd`.

    sweep = kd.simulate("h200_sxm", folder="sweep")           # or: profile = kd.import_table("mine.csv", "p.parquet")
    schedule = kd.by_clock(sweep)[0]                          # least energy that is shown to be no slower than auto
    print(kd.summary(schedule))                               # kd.choose(sweep.profile, ...): any other objective
    checked = kd.validate(sweep, schedule, repeats=5)         # measured again, with fresh noise
    kd.write_page("page.html", "sweep/by_clock.parquet", schedule, checked)

A profile is a path to Parquet, a schedule a dict as its JSON has it; both are what the commands and the workflow read
and write (docs/reference/results.md). Numbers of a simulated GPU are simulated, and everything that shows one says so.
Everything raises kernel_dvfs.InputError, one line, for what a user can mend.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np

from kernel_dvfs import shipped
from kernel_dvfs.change import change_percent
from kernel_dvfs.choice.frontier import relaxed_frontier
from kernel_dvfs.choice.schedule import choose as choose
from kernel_dvfs.layout import subject
from kernel_dvfs.limit_verdict import limit_in_words, of_repeats
from kernel_dvfs.measurement.campaign import compare_iteration
from kernel_dvfs.measurement.point import QUANTITIES
from kernel_dvfs.measurement.setup import read as read_setup
from kernel_dvfs.measurement.target import MeasurementTarget
from kernel_dvfs.names import NAMES
from kernel_dvfs.report.remeasured import means
from kernel_dvfs.report.words import against, answer_line, asked, checked
from kernel_dvfs.search.board_pairs import pairs_of
from kernel_dvfs.search.study_file import name_of
from kernel_dvfs.student import of_sessions
from kernel_dvfs_clocks.clocks import Pair, clocks_argument
from kernel_dvfs_clocks.errors import InputError as InputError
from kernel_dvfs_clocks.files import write_text
from kernel_dvfs_clocks.package import remedy

if TYPE_CHECKING:
    import plotnine as p9

    from kernel_dvfs.choice.schedule_file import Schedule
    from kernel_dvfs_clocks.clocks import Pair

# what choosing needs is imported above; a call that measures, plots or writes a page imports what is heavy by itself
__all__ = list(NAMES)  # one home, which imports nothing

frontier = relaxed_frontier
summary = answer_line
# of a simulated sweep that is to be quick: every fourth core clock or so
CORE_MHZ, MEM_MHZ = {"step": 210}, "all"
# the profile of a study by clock, and where one ends: another minute is worth less than so many points of energy
BY_CLOCK, WORTH_PERCENT = "by_clock.parquet", 0.02


@dataclass(frozen=True, slots=True)
class Sweep:
    """A sweep of a simulated GPU."""

    profile: Path  # every kernel and pass at every pair of clocks
    setup: Path  # GPU, workload and protocol: what `validate` measures with
    kernels: int
    clocks: tuple[Pair, ...]  # of the sweep, auto the first
    auto_repeats: int  # how often it was measured at auto

    @property
    def pairs(self) -> int:
        """Return how many pairs of clocks there are, auto among them."""
        return len(self.clocks)


@dataclass(frozen=True, slots=True)
class Checked:
    """A schedule measured again: changes of an iteration against auto, percent, negative = less; one a repeat."""

    energy_percent: list[float]
    time_percent: list[float]
    verdict: str | None  # on the time limit, as limit_verdict says it; None of one repeat, or where there is no limit
    limit: str  # what is known of the time limit, in words; "": nothing

    @property
    def energy_mean(self) -> float:
        return fmean(self.energy_percent)

    @property
    def time_mean(self) -> float:
        return fmean(self.time_percent)

    def words(self) -> str:
        """Return `measured again 5 times: energy -1.54 % (-1.63 to -1.46 %), time -0.08 % (-0.10 to -0.07 %); ` and
        what is known of the limit: means with their 95 % intervals, as on the page."""
        ranges = [
            f"{what} {fmean(repeats):+.2f} %" + (f" ({change.low:+.2f} to {change.high:+.2f} %)" if change else "")
            for what, repeats in (("energy", self.energy_percent), ("time", self.time_percent))
            for change in [of_sessions(repeats) if len(repeats) > 1 else None]
        ]
        times = len(self.energy_percent)
        text = f"measured again {times} time{'s' * (times > 1)}: {', '.join(ranges)}"
        return f"{text}; {self.limit}" if self.limit else text


def simulate(
    gpu: str = "rtx_3080_ti",
    folder: str | Path = "sweep",
    model: str = "gpt3-xl",
    batch: int = 40,
    core_mhz: Any = None,
    mem_mhz: Any = None,
    auto_repeats: int = 4,
    seed: int = 0,
) -> Sweep:
    """Measure every kernel of one training iteration on a simulated GPU, in this process; written into `folder`.

    gpu: the name of a simulated GPU (`kernel-dvfs devices` lists them). core_mhz, mem_mhz: as in the configuration: a
    list of MHz, {"step": MHz} or "all" (default: every 210 MHz, all memory clocks). Raises InputError.
    """
    from kernel_dvfs.plan.config import check, load
    from kernel_dvfs.plan.study import ALONE, plan
    from kernel_dvfs.profile import aggregate

    grid = {"core_mhz": core_mhz or CORE_MHZ, "mem_mhz": mem_mhz or MEM_MHZ, "auto": True}
    asked = {"gpu": gpu, "model": model, "batch": batch, "grid": grid, "auto_repeats": auto_repeats, "seed": seed}
    config = load(str(shipped.CONFIG)) | ALONE | asked
    check(config, str(shipped.SCHEMA))
    if gpu.partition(":")[0] == "nvml":
        raise InputError(f"simulate: {gpu} is a real GPU; use the workflow, or name a simulated one")
    study = plan(config, str(folder))
    assert study.setup
    path, profile = study.setup.write(), Path(folder) / "profile.parquet"
    setup = read_setup(path)
    aggregate.from_bench(setup, study.pairs, auto_repeats, str(profile))
    return Sweep(profile, Path(path), len(setup.targets["kernel"]), study.pairs, auto_repeats)


def by_clock(
    sweep: Sweep,
    limits_percent: Sequence[float] = (0,),
    minutes: float = 30,
    over_percent: float = 10,
    say: Callable[[str], None] | None = None,
) -> dict[float, Schedule]:
    """Return {limit: the schedule of kernels that is shown to keep it}: a study by clock, as the workflow makes it.

    sweep: whose GPU and workload are studied. limits_percent: tolerated slowdowns. minutes: of the board, the most that
    it may take. over_percent: the chance, at most, that a schedule is over its limit. say: told a line a visit (None:
    stderr). Records, by_clock.json and its profile, by_clock.parquet, go beside the sweep's profile. Raises InputError.
    """
    from kernel_dvfs.profile import aggregate
    from kernel_dvfs.search import loop

    if not minutes > 0:
        raise InputError(f"by_clock: minutes = {minutes}: expected a number > 0; choose() needs none")
    if not 0.001 <= over_percent <= 50:
        raise InputError(f"by_clock: over_percent = {over_percent}: expected a number from 0.001 to 50")
    if not limits_percent or min(limits_percent) < 0:
        raise InputError(
            f"by_clock: limits_percent = {[*limits_percent]}: expected at least one number, each 0 or more"
        )
    setup, folder = read_setup(str(sweep.setup)), sweep.profile.parent
    options = {
        "pairs": clocks_argument(pairs_of(setup.gpu["spec"]["clocks"], sweep.clocks)),
        "limits_percent": sorted(set(limits_percent)),
        "minutes": minutes,
        "worth_percent": WORTH_PERCENT,
        "over_percent": over_percent,
        "ties": "tied",
        "seed": setup.measurement["seed"],
    }
    records, profile = str(folder / "measurements"), str(folder / BY_CLOCK)
    study = loop.run(str(sweep.setup), records, options, str(folder / "by_clock.json"), say=say or loop.to_stderr)
    aggregate.from_visits(setup, records, study.records, study.rows, profile)
    return {
        limit: choose(profile, slack_percent=limit, walked=study.walks[name_of("kernel", limit)])
        for limit in options["limits_percent"]
    }


def import_table(table: str | Path, output: str | Path, **options: Any) -> Path:
    """Write a measured table from anywhere as a profile to `output`; options as profile.table.import_table."""
    from kernel_dvfs.profile.table import import_to_profile

    import_to_profile(str(table), str(output), **options)
    return Path(output)


def load_profile(path: str | Path) -> dict[str, list]:
    """Return {column: values} of a profile: a row per target and pair of clocks; times in s, energies in J, clocks in
    MHz, None = auto. pandas.DataFrame(...) takes it as it is. Raises InputError."""
    from kernel_dvfs.profile.store import read_profile

    table = read_profile(path).table
    return {name: table[name].to_pylist() for name in table.column_names}


def validate(sweep: Sweep, schedule: Mapping[str, Any], repeats: int = 5) -> Checked:
    """Measure the whole iteration at auto and at the chosen clocks on the simulated GPU.

    The verdict says whether this contradicts the bound that a walk has shown; of other schedules, whether they keep
    their limit. repeats: blocks, each a session with noise of its own. Raises InputError. (A real GPU is validated by
    the workflow, which sees to its clocks.)
    """
    if type(repeats) is not int or not 1 <= repeats <= 1000:
        raise InputError(f"validate: repeats = {repeats!r}: expected a whole number from 1 to 1000")
    checked(schedule)
    setup = read_setup(str(sweep.setup))
    kind = schedule["granularity"]
    if schedule["weights"] != "counts":
        raise InputError(f"validate: weights {schedule['weights']} are of no iteration; choose with weights='counts'")
    if set(schedule["targets"]) != set(setup.targets[kind]):
        raise InputError(f"validate: the schedule is not of {setup.workload['name']}; choose from this sweep's profile")
    about = setup.targets[kind]
    launches = {name: target["launches_per_iteration"] if kind == "kernel" else 1 for name, target in about.items()}
    sums = [[0.0, 0.0, 0.0, 0.0] for _ in range(repeats)]
    pairs = {
        MeasurementTarget(kind, name): Pair(asked_for["core_mhz"], asked_for["mem_mhz"])
        for name in about
        for asked_for in [schedule["targets"][name]]
    }
    for repeat in range(repeats):
        for comparison in compare_iteration(setup, str(sweep.setup), [pairs], repeat)[1][0]:
            for place, field in enumerate(reversed(QUANTITIES)):  # energy first
                for clocks, mean in enumerate(means(comparison["points"], field)):
                    sums[repeat][2 * place + clocks] += launches[comparison["target"]] * mean
    energy, time = ([100 * (totals[at + 1] / totals[at] - 1) for totals in sums] for at in (0, 2))
    verdict = of_repeats(schedule, time)
    return Checked(energy, time, verdict, limit_in_words(schedule, verdict))


def write_page(
    path: str | Path,
    profile: str | Path,
    schedule: Mapping[str, Any],
    checked: Checked | None = None,
) -> Path:
    """Write one page for a profile and a schedule of it: the answer, where the saving comes from, clocks of each
    kernel."""
    from kernel_dvfs.report.page import schedule_page

    again = (checked.energy_percent, checked.time_percent) if checked else None
    write_text(path, schedule_page.make(profile, schedule, again))
    return Path(path)


def plot(profile: str | Path, target: str, schedules: Sequence[Mapping[str, Any]] = ()) -> p9.ggplot:
    """Draw energy over time of one kernel or pass at every pair of clocks, against the baseline; chosen pairs are
    marked.

    Needs plotnine: pip install 'kernel-dvfs[figures]'. Raises InputError where it is missing, and for a target that the
    profile lacks.
    """
    import textwrap

    try:
        import pandas as pd
        import plotnine as p9
    except ModuleNotFoundError as error:
        if not (lacking := remedy(error)):
            raise
        raise InputError(f"plot: {lacking}") from None

    from kernel_dvfs.profile.store import read_profile
    from kernel_dvfs.report import clock_plane, style
    from kernel_dvfs.report.results import is_chosen

    loaded = read_profile(profile)
    points = loaded.table.to_pandas()
    points = points[points.target == target]
    if points.empty:
        raise InputError(f"{profile}: no target '{target}'; load_profile lists them")
    auto = points[points.is_baseline].iloc[0]

    def in_words(mhz: float) -> str:
        return "auto" if mhz != mhz else f"{mhz:g} MHz"

    clocks = sorted(points.mem_mhz.dropna().unique())
    memories = [*map(in_words, clocks), *(["auto"] if points.mem_mhz.isna().any() else [])]
    marks = [
        (textwrap.fill(asked(schedule), 48), points[is_chosen(points, schedule["targets"])])
        for schedule in schedules
        if target in schedule["targets"]
    ]
    frame = pd.concat(
        [points.assign(chosen=""), *(rows.assign(chosen=name) for name, rows in marks)], ignore_index=True
    ).assign(
        log_time=lambda rows: np.log10(rows.time_s / auto.time_s),
        energy_change_percent=lambda rows: change_percent(rows.energy_j, auto.energy_j),
        memory=lambda rows: pd.Categorical(map(in_words, rows.mem_mhz), memories),
    )
    names = [name for name in frame.chosen.unique() if name]
    baseline = against(loaded.metadata["workload"])
    return (
        p9.ggplot(frame[frame.chosen == ""], p9.aes("log_time", "energy_change_percent"))
        + p9.geom_hline(yintercept=0, size=0.3, color=style.FRAME)
        + p9.geom_vline(xintercept=0, size=0.3, color=style.FRAME)
        + p9.geom_point(p9.aes(color="memory"), size=1.2)
        + p9.geom_point(p9.aes(shape="chosen"), frame[frame.chosen != ""], size=3, fill="none")
        + p9.scale_color_manual([*style.steps(len(clocks)), "black"][: len(memories)])
        + p9.scale_shape_manual(style.cycle(style.SHAPES, len(names)))
        + p9.labs(
            title=f"{target} at every pair of clocks",
            subtitle=f"{subject(loaded.metadata['gpu'])}, against {baseline}; better: down and to the left",
            x=f"time over {baseline} (logarithmic; below 1: faster)",
            y=style.ENERGY_CHANGE,
        )
        + p9.scale_x_continuous(breaks=clock_plane.breaks, labels=clock_plane.ratios)
        + p9.guides(
            color=p9.guide_legend(title="memory clock", ncol=3, order=1),
            shape=p9.guide_legend(title="chosen", ncol=1, order=2),
        )
        + style.theme(3.6)
        + p9.theme(legend_box="vertical", legend_title_position="top")
    )
