"""Tables of the serving study."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernel_dvfs.outputs import Outputs
from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_serving.report import reported
from kernel_dvfs_serving.report.share import (
    by_system,
    change_percent,
    plan_in_words,
    promise_kept,
    token_change_percent,
)
from kernel_dvfs_serving.system import ALONE, BASELINE, LOADS_TPS, STATIC, TUNED
from kernel_dvfs_serving.table1 import KINDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    import pandas as pd

    from kernel_dvfs_serving.study import ServingStudy

OUTPUTS = Outputs()


def _of(experiment: str) -> Callable[[ServingStudy], str]:
    """Return whose numbers those of an instance are, as its experiment says."""
    return lambda study: study.experiment(experiment)["subject"]


def framed(rows: Iterable[Any], columns: list[str] | None = None) -> pd.DataFrame:
    """Return rows as a frame; columns: of no rows."""
    import pandas as pd

    return pd.DataFrame(list(rows), columns=columns)


LATENCIES = ("ttft_p50_s", "ttft_p99_s", "tbt_p50_s", "tbt_p99_s")
KEPT = ("kept_percent", "ttft_kept_percent", "tbt_kept_percent")
STATES = ("busy_kwh", "idle_kwh", "starting_kwh", "switching_kwh")


@OUTPUTS.table(
    "Energy of a token served in time by each serving system, changes against the tuned static plan "
    "(negative = saved; empty where these break it too); requests in time, late and rejected, and "
    "latencies",
    reads=["systems"],
)
def savings(study: ServingStudy) -> pd.DataFrame:
    """Return one row a system. In time: TTFT and mean TBT within the promise of the request's own class."""
    runs = by_system(study.experiment("systems"))
    return framed([savings_row(study, run, runs) for run in runs.values()])


def savings_row(study: ServingStudy, run: dict, runs: dict) -> dict:
    """Return a system's row; runs: those it is compared with, by system. promise_kept: else its change is no saving."""
    cells = {
        "system": run["system"],
        "servers": run["servers"],
        "energy_kwh": run["energy_kwh"],
        "j_per_token_in_time": run["j_per_token_in_time"],
        "change_percent": token_change_percent(study, run, runs[TUNED]),
        "promise_kept": promise_kept(study, run),
        "plan": plan_in_words(run),
    }
    cells |= {f"halves_{name}": value for name, value in tried_cells(run["tried"]).items()}
    cells |= {name: run[name] for name in (*KEPT, "requests", "in_time", "late", "rejected")}
    cells |= {name.removesuffix("_s") + "_ms": 1000 * run[name] for name in LATENCIES if run[name] is not None}
    return cells | {name: run[name] for name in ("mean_power_w", "server_hours", *STATES)}


def tried_cells(tried: dict) -> dict:
    """Return what was tried on both halves of a trace (tuned.Trials): J a token, and percent kept, trial by trial."""
    kept_cells = {
        f"kept_{name.replace(', ', ' ').replace(' ', '_')}": value for name, value in tried["kept_percent"].items()
    }
    return {"j_per_token_in_time": tried["j_per_token_in_time"]} | kept_cells


@OUTPUTS.table(
    "Percent of requests whose promises (TTFT and mean TBT) are kept, by class",
    reads=["systems"],
)
def classes(study: ServingStudy) -> pd.DataFrame:
    """Return one row a system, one column a class that occurs."""
    return framed([{"system": run["system"]} | run["kept_percent_by_class"] for run in study.experiment("systems")])


@OUTPUTS.table(
    "Cost and carbon per hour of the trace, at the prices and the carbon intensity of study.json; GPU energy only",
    reads=["systems"],
)
def cost(study: ServingStudy) -> pd.DataFrame:
    """Return one row a system; changes against the tuned static plan. Servers are charged from start to release."""
    runs = by_system(study.experiment("systems"))
    rows = {name: costs(study, run) for name, run in runs.items()}
    # a baseline that breaks the promise costs nothing that could be compared
    base = rows[TUNED] if promise_kept(study, runs[TUNED]) else dict.fromkeys(rows[TUNED])
    for name, row in rows.items():
        against = base if promise_kept(study, runs[name]) else dict.fromkeys(base)
        row |= {
            "servers_change_percent": change_percent(row["servers"], against["servers"]),
            "cost_change_percent": change_percent(row["usd_per_hour"], against["usd_per_hour"]),
            "carbon_change_percent": change_percent(row["co2_kg_per_hour"], against["co2_kg_per_hour"]),
            "kept_percent": runs[name]["kept_percent"],
        }
    return framed(rows.values())


def costs(study: ServingStudy, run: dict) -> dict:
    """Return what one run costs, per hour."""
    hours = run["end_s"] / 3600
    servers, kwh = run["server_hours"] / hours, run["energy_kwh"] / hours
    vm, energy = servers * study["usd_per_server_hour"], kwh * study["usd_per_kwh"]
    return {
        "system": run["system"],
        "servers": servers,
        "server_usd_per_hour": vm,
        "energy_usd_per_hour": energy,
        "usd_per_hour": vm + energy,
        "co2_kg_per_hour": kwh * study["co2_g_per_kwh"] / 1000,
    }


@OUTPUTS.table(
    "What the margins of the promise cost: the cheapest static plan that keeps it on the trace's first half alone, on "
    "both halves, and also where all steps are slower than the profile says; energy of a token on both halves",
    reads=["systems"],
)
def margins(study: ServingStudy) -> pd.DataFrame:
    """Return one row a margin; one that is kept nowhere is missing."""
    margin_plans = by_system(study.experiment("systems"))[TUNED]["margins"]
    rows = [{"kept_on": plan["kept_on"], "plan": plan_in_words(plan)} | tried_cells(plan) for plan in margin_plans]
    return framed(rows, columns=None if rows else ["kept_on", "plan"])


@OUTPUTS.table(
    "What the answer hangs on: the plan's degree, clock, step and servers, each alone, and DynamoLLM's load slot",
    when=lambda plan: plan.has("sensitivity"),
    reads=["sensitivity"],
)
def sensitivity(study: ServingStudy) -> pd.DataFrame:
    """Return one row a value of what is varied."""
    names = ("varied", "value", "system", "servers", "j_per_token_in_time", "kept_percent")
    rows = [{name: run[name] for name in names} for run in study.experiment("sensitivity")]
    promise_percent = study["settings"]["promise_percent"]
    return framed([row | {"promise_kept": (row["kept_percent"] or 0.0) >= promise_percent} for row in rows])


_SIZE = "servers are given, not sized to the load: what the trace does not need of them is saved by switching it off"
_UNIT = "what their load counts, and per what, is not known; ours is prompt and answer tokens/s per server"
_ENGINE = (
    "no server too many in the baseline, so this is degrees, clocks and the load's slack over time; depends on the "
    "engine's speed and on the load slots"
)


_KNOB = "their reference is not stated; ours is MultiPool on the same servers"
_DAY_S, _WEEK_S = 72_000, 6 * 86_400  # a trace at least this long stands beside the paper's day, its weeks


@OUTPUTS.table(
    "Distance to the figures reported about DynamoLLM (changes, negative = saved); ours are simulated, on another "
    "trace and cluster size",
    when=lambda plan: plan.has("systems", "loads"),
    reads=["systems", "loads"],
)
def paper(study: ServingStudy) -> pd.DataFrame:
    """Return one row a claim, changes in percent, negative = saved. distance: ours minus theirs, percentage points.

    Ours is the energy of a token served in time; where fewer promises than must be are kept, `why` says so first.
    """
    runs = by_system(study.experiment("systems"))
    bill = cost(study).set_index("system").loc["DynamoLLM"]
    ours, sized, everything = (runs[name] for name in ("DynamoLLM", TUNED, BASELINE))

    def changed(reference: dict) -> float | None:
        return token_change_percent(study, ours, reference)

    def row(claim: str, reported_percent: dict, percent: float | None, why: str, run: dict = ours) -> dict:
        first, second = reported_percent.get(reported.V1), reported_percent.get(reported.V2)
        broken = "" if promise_kept(study, run) else "promise broken, so no saving; "
        if percent is None and not broken:
            broken += "the baseline breaks its promise, so there is nothing to save against; "
        return {
            "claim": claim,
            "paper_arxiv_v1_percent": first,
            "paper_hpca_percent": second,
            "ours_percent": percent,
            "distance_v1_points": None if first is None or percent is None else percent - first,
            "distance_hpca_points": None if second is None or percent is None else percent - second,
            "kept_percent": run["kept_percent"],
            "why": broken + why,
        }

    rows = [
        row("energy, tuned static plan", reported.ENERGY, changed(sized), _ENGINE),
        row("energy, SinglePool on all servers", reported.ENERGY, changed(everything), _SIZE),
        row("energy, MultiPool on all servers", {}, changed(runs[STATIC]), _SIZE),
        row("carbon", reported.CARBON, bill.carbon_change_percent, "ours has one intensity all day: it follows energy"),
        row("cost", reported.COST, bill.cost_change_percent, "servers rule it"),
        row("servers", {reported.V1: reported.SERVERS}, bill.servers_change_percent, "against the tuned plan's"),
    ]
    if ours["end_s"] >= _DAY_S:
        day = {reported.V1: reported.DAY_CONVERSATION}
        rows.append(row("conversation, 24 h, energy", day, changed(everything), "ours is the study's trace"))
    for service, change in reported.WEEK.items() if ours["end_s"] >= _WEEK_S else ():
        week = {reported.V1: change}
        rows.append(row(f"{service}, a week, energy", week, changed(everything), "ours is the study's trace"))
    for knob, alone in reported.BY_KNOB.items():
        run = runs[ALONE[knob]]
        percent = token_change_percent(study, run, runs[STATIC])
        rows.append(row(f"{knob} alone", {reported.V1: alone}, percent, _KNOB, run))
    by_load = {(run["tps_per_server"], run["system"]): run for run in study.experiment("loads")}
    for name, tps in LOADS_TPS.items():
        if missing := [system for system in ("DynamoLLM", BASELINE) if (tps, system) not in by_load]:
            raise InputError(
                f"{study.folder}/experiments/loads.json: no {missing[0]} at {tps} tokens/s a server: it was made with "
                "other loads; delete it and run snakemake --cores 1 serving_paper"
            )
        run, base = by_load[tps, "DynamoLLM"], by_load[tps, BASELINE]
        reported_percent = {version: values[name] for version, values in reported.BY_LOAD.items()}
        claim = f"{name} load ({tps} tokens/s a server), SinglePool on all servers"
        rows.append(row(claim, reported_percent, token_change_percent(study, run, base), _UNIT, run))
    for name, change in reported.LATENCY.items():
        kind, share = name.lower().split(" ")
        key = f"{kind}_{share}_s"
        why = "ours slows down as far as the promises allow, on faster engines"
        rows.append(row(name, {reported.V1: change}, change_percent(ours[key], sized[key]), why))
    return framed(rows)


@OUTPUTS.table(
    "DynamoLLM with a share of answers' classes mispredicted, and with classes predicted from the prompt's length "
    f"alone; reported at 40 %: energy +{reported.MISPREDICTION['energy']:g} %, "
    f"TTFT +{reported.MISPREDICTION['ttft']:g} %",
    reads=["misprediction"],
)
def misprediction(study: ServingStudy) -> pd.DataFrame:
    """Return one row a share and seed; changes against none."""
    runs = study.experiment("misprediction")
    base = runs[0]
    return framed(
        [
            {
                "misprediction": str(run["misprediction"]),
                "seed": run["seed"],
                "j_per_token_in_time": run["j_per_token_in_time"],
                "change_percent": token_change_percent(study, run, base),
                "ttft_p50_change_percent": change_percent(run["ttft_p50_s"], base["ttft_p50_s"]),
                "ttft_p99_change_percent": change_percent(run["ttft_p99_s"], base["ttft_p99_s"]),
                "tbt_p99_ms": 1000 * run["tbt_p99_s"],
                "kept_percent": run["kept_percent"],
                "late": run["late"],
                "rejected": run["rejected"],
                "handed_on": run["events"].get("mispredicted", 0),
            }
            for run in runs
        ]
    )


@OUTPUTS.table(
    "Serving on the simulated GPU compared with published measurements; informed: a figure of the model rests on it",
    reads=["anchors"],
    subject=_of("anchors"),
)
def anchors(study: ServingStudy) -> pd.DataFrame:
    """Return one row an anchors.Anchor. error_percent: ours against the published one."""
    frame = framed(study.experiment("anchors")["anchors"])
    return frame.assign(error_percent=100 * (frame.ours / frame.published - 1))


@OUTPUTS.table(
    "DynamoLLM's Table I (Llama2-70B, 2K tokens/s; empty: promise broken) and a simulated instance: energy of a "
    "request's share of the power, and power times a request's lifetime",
    when=lambda plan: plan.has("table1"),  # with a given profile there is no simulated instance to compare
    reads=["table1"],
    subject=_of("table1"),
)
def table1(study: ServingStudy) -> pd.DataFrame:
    """Return one row a table1.ComparedCell."""
    return framed(study.experiment("table1")["cells"]).rename(columns={"class_": "class"})


@OUTPUTS.table(
    "The simulated instance against DynamoLLM's Table I: best cell, feasibility, order, ratios, and of the cells that "
    "keep their promises in ours alone, how many break them with what",
    when=lambda plan: plan.has("table1"),
    reads=["table1"],
    subject=_of("table1"),
)
def table1_agreement(study: ServingStudy) -> pd.DataFrame:
    """Return one row a table1.ClassAgreement; cells as text, `TP2@1.2`."""
    frame = framed(study.experiment("table1")["agreement"]).rename(columns={"class_": "class"})
    for name in ("paper_best", "ours_best_share", "ours_best_lifetime"):
        frame[name] = [_cell_name(column) for column in frame[name]]
    cells = study.experiment("table1")["cells"]
    for kind in KINDS:
        counts = [
            sum(cell["only_ours"] == kind and cell["class_"] == name for cell in cells) for name in frame["class"]
        ]
        frame[f"only_ours: {kind}"] = counts
    return frame


def _cell_name(column: list | None) -> str:
    """Return `TP2@1.2` of [2, 1.2]; a dash for none."""
    return f"TP{column[0]}@{column[1]}" if column is not None else "-"
