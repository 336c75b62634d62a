"""Tables and figure of `results/comparison`: every GPU and workload side by side, and specimens of one GPU model."""

from __future__ import annotations

import sys
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernel_dvfs.layout import EDP, PASS_STRICT, STRICT
from kernel_dvfs.outputs import Outputs
from kernel_dvfs.report.headings import headings
from kernel_dvfs.report.words import against
from kernel_dvfs.report.write import write_figure
from kernel_dvfs.table_file import read_rows, write_rows
from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_clocks.files import write_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pandas as pd
    import plotnine as p9

    from kernel_dvfs.report.results import Results

OUTPUTS = Outputs()
# of several studies, which a column of `gpus` names
BASELINE = "the baseline"


def write(results_root: str | Path) -> None:
    """Write all of them to `<results_root>/comparison`: tables as json, which is what is read, csv and md; the
    figure."""
    folder = Path(results_root) / "comparison"
    for name, output in OUTPUTS.of("table").items():
        frame = output.make(results_root)
        write_rows(folder / f"{name}.json", frame.astype(object).to_dict("records"))
        write_text(folder / f"{name}.csv", frame.to_csv(index=False, lineterminator="\n"))
        write_text(folder / f"{name}.md", f"**{output.caption}**\n\n{_MARKDOWN[name](frame)}\n")
    for name, output in OUTPUTS.of("figure").items():
        write_figure(output.make(read_rows(folder / "gpus.json")), folder, name, output.caption, "all studies")


@OUTPUTS.table(
    "GPUs and workloads side by side: changes of an iteration's time and energy against each baseline",
    title="GPUs and workloads side by side",
    text="Changes of an iteration against the GPU's own auto clocks, or a table's reference. Claimed: by the data that "
    "chose; measured again: with the 95 % interval. EDP trades time away, so compare its energy with its time.",
)
def gpus(results_root: str | Path) -> pd.DataFrame:
    """Return one row a folder `<gpu>/<workload>` with a profile and a strict schedule; others are left out.

    baseline, baseline_*: auto or the reference of a table, and an iteration there (of a table: the sum over its
    kernels), s and J. pass_*, kernel_claimed_*: strict
    global choices; kernel_fresh_*: the latter measured again, with its 95 % interval; edp_*: global EDP, kernel level;
    changes in percent, empty where not made. pairs: clock pairs measured of the kernels. Raises InputError where no
    folder qualifies.
    """
    import pandas as pd

    from kernel_dvfs.report.results import Results

    root = Path(results_root)
    rows = []
    for path in sorted(root.glob(f"*/*/schedules/{STRICT}.json")):
        folder = path.parents[1]
        if not (folder / "profile.parquet").is_file():
            continue
        try:
            rows.append(_gpu(Results(folder)))
        except InputError as error:
            # another study's broken folder does not stop this one
            print(f"note: left out: {error}", file=sys.stderr)
    if not rows:
        raise InputError(
            f"{root}: no <gpu>/<workload> with a profile and schedules/{STRICT}.json; run snakemake choose"
        )
    return pd.DataFrame(rows)


def _gpus_markdown(frame: pd.DataFrame) -> str:
    """Return the table in Markdown, a column for each GPU: they are few, their figures many."""
    words = frame.map(_cell).set_index("gpu").rename(columns=headings(frame.columns, BASELINE)).T
    return words.to_markdown(disable_numparse=True)


def _cell(value: Any) -> str:
    import pandas as pd

    if pd.isna(value):
        return "-"
    # + 0.0: no sign on what rounds to zero
    return f"{round(value, 2) + 0.0:.2f}" if isinstance(value, float) else str(value)


def _gpu(results: Results) -> dict:
    strict = results.schedule(STRICT)
    kernels = results.profile.query("study == 'kernel'")
    row = {
        "gpu": results.subject,
        # two specimens of one model have one name
        "slug": results.folder.parent.name,
        "workload": results.workload["name"],
        "kind": results.gpu["kind"],
        "baseline": against(results.workload),
        "baseline_time_s": strict["baseline_time"],
        "baseline_energy_j": strict["baseline_energy"],
    }
    row |= _changes("pass", results, PASS_STRICT)
    row |= _changes("kernel_claimed", results, STRICT)
    row |= _validated(results)
    row |= _changes("edp", results, EDP)
    return row | {"kernels": kernels.target.nunique(), "pairs": int(kernels.groupby("target").size().max())}


def _changes(prefix: str, results: Results, name: str) -> dict:
    """Return changes by a schedule, None where it was not made or is not feasible."""
    is_made = (results.folder / "schedules" / f"{name}.json").is_file()
    schedule = results.schedule(name) if is_made else {}
    return {
        f"{prefix}_{quantity}_change_percent": schedule.get(f"{quantity}_change_percent")
        for quantity in ("time", "energy")
    }


def _validated(results: Results) -> dict:
    """Return the validation of the strict schedule, None where there is none."""
    row: dict[str, float | None] = {
        f"kernel_fresh_{quantity}_{bound}_percent": None
        for quantity in ("time", "energy")
        for bound in ("change", "low", "high")
    }
    if (results.folder / "tables" / "headline.json").is_file():
        headline = next((line for line in results.rows("headline") if line["schedule"] == STRICT), None)
        row |= {name: headline[name.removeprefix("kernel_")] for name in row} if headline else {}
    return row


@OUTPUTS.figure(
    "Each study's strict schedule against its own baseline: change of energy over change of time, measured again "
    "(filled, with 95 % intervals) or claimed (hollow)",
    title="Each study's strict schedule",
    text="Clocks of its own for every kernel, no time lost in total, against each study's own baseline. Filled: "
    "measured again, with the 95 % interval. Hollow: claimed.",
)
def strict(rows: Sequence[Mapping[str, Any]]) -> p9.ggplot:
    """Draw each study's strict schedule. rows: of the table `gpus`."""
    import pandas as pd
    import plotnine as p9

    from kernel_dvfs.report import style

    points = []
    for row in rows:
        again = row["kernel_fresh_energy_change_percent"] is not None
        how = "fresh" if again else "claimed"
        of = {name: row[f"kernel_{how}_{name}_change_percent"] for name in ("time", "energy")}
        if None in of.values():
            continue
        ends = {f"{name}_{end}": row[f"kernel_fresh_{name}_{end}_percent"] for name in of for end in ("low", "high")}
        points.append({"study": label(row, rows), "how": how, **of, **ends})
    columns = ["study", "how", "time", "energy", "time_low", "time_high", "energy_low", "energy_high"]
    frame = pd.DataFrame(points, columns=columns).astype(dict.fromkeys(columns[2:], float))
    frame["study"] = pd.Categorical(frame.study, list(dict.fromkeys(frame.study)))
    count = len(frame.study.cat.categories)
    again = frame[frame.how == "fresh"]
    plot = (
        p9.ggplot(frame, p9.aes("time", "energy", color="study", shape="study"))
        + p9.geom_hline(yintercept=0, size=0.3, color=style.FRAME)
        + p9.geom_vline(xintercept=0, size=0.3, color=style.FRAME)
        + p9.geom_point(size=2, fill="white")
    )
    if len(again):
        plot += p9.geom_segment(p9.aes(x="time_low", xend="time_high", yend="energy"), data=again, size=0.5)
        plot += p9.geom_segment(p9.aes(y="energy_low", yend="energy_high", xend="time"), data=again, size=0.5)
        plot += p9.geom_point(p9.aes(fill="study"), data=again, size=2, show_legend=False)
        plot += p9.scale_fill_manual(style.cycle(style.SERIES, count))
    return (
        plot
        + p9.scale_color_manual(style.cycle(style.SERIES, count))
        + p9.scale_shape_manual(style.cycle(style.SHAPES, count))
        + p9.labs(
            title="Each study's strict schedule",
            subtitle="filled: measured again, with its 95 % interval; hollow: claimed",
            x=style.TIME_CHANGE,
            y=style.ENERGY_CHANGE,
        )
        + p9.guides(color=p9.guide_legend(title="", ncol=1), shape=p9.guide_legend(title="", ncol=1))
        + style.theme(3 + 0.14 * count, style.WIDE)
    )


def label(row: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> str:
    """Return a study's GPU and workload; of two specimens of one model the folder's name, which holds the UUID's
    start."""
    twins = [other for other in rows if (other["gpu"], other["workload"]) == (row["gpu"], row["workload"])]
    return f"{row['gpu'] if len(twins) == 1 else row.get('slug', row['gpu'])}, {row['workload']}"


COLUMNS = (
    "gpu", "workload", "first", "second", "kernels", "points",
    "auto_time_difference_percent", "auto_energy_difference_percent",
    "median_time_difference_percent", "median_energy_difference_percent",
    "largest_time_difference_percent", "largest_energy_difference_percent",
    "carried_time_change_percent", "carried_energy_change_percent",
    "own_time_change_percent", "own_energy_change_percent",
)  # fmt: skip


_KEY = ["target", "core_mhz", "mem_mhz"]


@OUTPUTS.table(
    "Boards of one type, same workload: the second against the first, and the first's schedule on the second",
    title="Specimens of one model",
    text="GPUs of the same name under different UUIDs: how far two boards that were sold as equal are apart.",
)
def specimens(results_root: str | Path) -> pd.DataFrame:
    """Return one row for every two real GPUs of one name with one workload; COLUMNS, no row where there are none.

    points: kernel x clock pair that both measured. auto_*: an iteration at auto. median_*, largest_* (by size): over
    the points. carried_*: the first's strict schedule by the second's measurements against its auto; own_*: the
    second's own schedule likewise. All in percent, empty where not made.
    """
    import pandas as pd

    from kernel_dvfs.report.results import Results

    specimens: dict[tuple[str, str], list[Results]] = {}
    for path in sorted(Path(results_root).glob("*/*/profile.parquet")):
        results = Results(path.parent)
        try:
            if results.gpu["kind"] == "nvml":
                specimens.setdefault((results.gpu["name"], results.workload["name"]), []).append(results)
        except InputError:
            continue  # the table of all GPUs says so
    rows = [
        {"gpu": name, "workload": workload} | _pair(first, second)
        for (name, workload), alike in specimens.items()
        for first, second in combinations(alike, 2)
    ]
    return pd.DataFrame(rows, columns=COLUMNS)


def _specimens_markdown(frame: pd.DataFrame) -> str:
    """Return the table in Markdown, a column for each pair."""
    if frame.empty:
        return "No two boards of one type have been measured with the same workload."
    table = frame.map(lambda value: f"{value:.2f}" if isinstance(value, float) else value).T
    return table.rename(index=headings(COLUMNS)).to_markdown(headers=[""] * (len(frame) + 1))


def _pair(first: Results, second: Results) -> dict:
    first_points, second_points = _points(first), _points(second)
    both = first_points.add_suffix("_first").join(second_points.add_suffix("_second"), how="inner")
    difference = {
        quantity: 100 * (both[f"{column}_second"] / both[f"{column}_first"] - 1)
        for quantity, column in (("time", "time_s"), ("energy", "energy_j"))
    }
    row: dict[str, object] = {
        "first": first.gpu["slug"],
        "second": second.gpu["slug"],
        "kernels": both.index.get_level_values("target").nunique(),
        "points": len(both),
    }
    auto = both[both.is_baseline_first]
    weight = auto.launches_per_iteration_first
    for quantity, column in (("time", "time_s"), ("energy", "energy_j")):
        here, there = ((weight * auto[f"{column}_{which}"]).sum() for which in ("first", "second"))
        row[f"auto_{quantity}_difference_percent"] = 100 * (there / here - 1) if here else None
        percent = difference[quantity]
        row[f"median_{quantity}_difference_percent"] = percent.median()
        row[f"largest_{quantity}_difference_percent"] = percent.loc[percent.abs().idxmax()] if len(percent) else None
    return row | _on(second_points, first, "carried") | _on(second_points, second, "own")


def _points(results: Results) -> pd.DataFrame:
    profile = results.profile.query("study == 'kernel'")
    # auto is empty, and empty equals nothing
    clocks = profile[["core_mhz", "mem_mhz"]].astype(object).where(profile[["core_mhz", "mem_mhz"]].notna(), "auto")
    return profile.assign(core_mhz=clocks.core_mhz, mem_mhz=clocks.mem_mhz).set_index(_KEY)


def _on(points: pd.DataFrame, chooser: Results, prefix: str) -> dict:
    """Return changes by the chooser's strict schedule, on the specimen of `points`."""
    names = [f"{prefix}_{quantity}_change_percent" for quantity in ("time", "energy")]
    if not (chooser.folder / "schedules" / f"{STRICT}.json").is_file():
        return dict.fromkeys(names)
    targets = chooser.schedule(STRICT)["targets"]
    keys = [(target, clocks["core_mhz"], clocks["mem_mhz"]) for target, clocks in targets.items()]
    auto = points[points.is_baseline].reset_index(["core_mhz", "mem_mhz"])
    if not keys or not all(key in points.index and key[0] in auto.index for key in keys):
        return dict.fromkeys(names)  # the other one's grid lacks a pair
    chosen, base = points.loc[keys], auto.loc[[key[0] for key in keys]]
    weight = chosen.launches_per_iteration.to_numpy()
    return {
        name: 100 * float((weight * chosen[column]).sum() / (weight * base[column].to_numpy()).sum() - 1)
        for name, column in zip(names, ("time_s", "energy_j"))
    }


# neither is read well as rows
_MARKDOWN = {"gpus": _gpus_markdown, "specimens": _specimens_markdown}
