"""What is reported about DynamoLLM in both versions, ours, the distance between them and its reasons."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernel_dvfs.outputs import Output
from kernel_dvfs.serving.report import reported
from kernel_dvfs.serving.report.share import by_system, saved_percent
from kernel_dvfs.serving.report.tables import cost, loads, split
from kernel_dvfs.serving.system import BASELINE, SIZED, STATIC

if TYPE_CHECKING:
    import pandas as pd

    from kernel_dvfs.serving.study import ServingStudy

OUTPUT = Output(
    "Distance to the figures reported about DynamoLLM; ours are simulated, on another trace and cluster size",
    when=lambda plan: plan.has("systems", "loads"),
    inputs=lambda plan: plan.reads("systems", "loads"),
)
_SIZE = (
    "servers are given, not sized to the load: the more of them the trace does not need, the more switching them off "
    "saves"
)
_UNIT = "what their load counts, and per what, is not known; ours is prompt and answer tokens/s per server"
_ENGINE = "no server too many in the baseline: what is left comes from degrees and clocks, on a simulated engine"
_KNOB = "their reference is not stated; ours is MultiPool on the same servers"


def make(study: ServingStudy) -> pd.DataFrame:
    """One row a claim. distance: ours minus theirs, percentage points."""
    import pandas as pd

    runs = by_system(study.experiment("systems"))
    bill = cost.make(study).set_index("system").loc["DynamoLLM"]
    ours, base, pools = (runs[name] for name in ("DynamoLLM", BASELINE, STATIC))
    saved = saved_percent(ours["energy_kwh"], base["energy_kwh"])
    kept = ours["kept_percent"]
    rows = [
        _row("energy saved", reported.ENERGY, saved, kept, _SIZE),
        _row("energy saved against MultiPool", {}, saved_percent(ours["energy_kwh"], pools["energy_kwh"]), kept, "-"),
        _row(
            "energy saved against SinglePool sized to the peak",
            reported.ENERGY,
            saved_percent(ours["energy_kwh"], runs[SIZED]["energy_kwh"]),
            kept,
            _ENGINE,
        ),
        _row(
            "carbon saved",
            reported.CARBON,
            bill.carbon_saved_percent,
            kept,
            "ours has one intensity all day, so it follows energy",
        ),
        _row("cost saved", reported.COST, bill.cost_saved_percent, kept, f"servers rule it: {_SIZE}"),
        _row("servers saved", {reported.V1: -reported.SERVERS}, bill.servers_saved_percent, kept, _SIZE),
        _row(
            "conversation, 24 h, energy saved",
            {reported.V1: reported.DAY_CONVERSATION},
            saved,
            kept,
            "ours is the study's trace",
        ),
    ]
    parts = split.make(study).set_index("part")
    for knob, alone in reported.BY_KNOB.items():
        part = parts.loc[split.NAMES[knob]]
        rows.append(
            _row(
                f"{split.NAMES[knob]} alone",
                {reported.V1: alone},
                part.alone_of_multipool_percent,
                part.kept_percent,
                _KNOB,
            )
        )
    found = study.experiment("loads")
    for tps in dict.fromkeys(each["tps_per_server"] for each in found):
        name = loads.NAMES.get(tps)
        if name:
            own = by_system([each for each in found if each["tps_per_server"] == tps])
            percent = saved_percent(own["DynamoLLM"]["energy_kwh"], own[BASELINE]["energy_kwh"])
            theirs = {version: values[name] for version, values in reported.BY_LOAD.items()}
            rows.append(
                _row(
                    f"{name} load ({tps:g} tokens/s a server)",
                    theirs,
                    percent,
                    own["DynamoLLM"]["kept_percent"],
                    _UNIT,
                )
            )
    for name, change in reported.LATENCY.items():
        kind, share = name.lower().split(" ")
        percent = 100 * (ours[f"{kind}_{share}_s"] / base[f"{kind}_{share}_s"] - 1)
        why = "ours slows down as far as the promises allow, on faster engines"
        rows.append(_row(f"{name}, change", {reported.V1: change}, percent, kept, why))
    return pd.DataFrame(rows)


def _row(claim: str, theirs: dict, ours: float, kept: float, why: str) -> dict:
    first, second = theirs.get(reported.V1), theirs.get(reported.V2)
    return {
        "claim": claim,
        "paper_arxiv_v1_percent": first,
        "paper_hpca_percent": second,
        "ours_percent": ours,
        "distance_v1_points": None if first is None else ours - first,
        "distance_hpca_points": None if second is None else ours - second,
        "kept_percent": kept,
        "why": why,
    }
