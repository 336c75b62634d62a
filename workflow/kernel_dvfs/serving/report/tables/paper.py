"""What is reported about DynamoLLM in both versions, ours, the distance between them and its reasons."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernel_dvfs.outputs import Output
from kernel_dvfs.serving.report import reported
from kernel_dvfs.serving.report.share import by_system, change_percent, promise_kept, token_change_percent
from kernel_dvfs.serving.report.tables import cost, loads, split
from kernel_dvfs.serving.system import BASELINE, SIZED, STATIC, SUBSETS

if TYPE_CHECKING:
    import pandas as pd

    from kernel_dvfs.serving.study import ServingStudy

OUTPUT = Output(
    "Distance to the figures reported about DynamoLLM (changes, negative = saved); ours are simulated, on another "
    "trace and cluster size",
    when=lambda plan: plan.has("systems", "loads"),
    inputs=lambda plan: plan.reads("systems", "loads"),
)
_SIZE = "servers are given, not sized to the load: what the trace does not need of them is saved by switching it off"
_UNIT = "what their load counts, and per what, is not known; ours is prompt and answer tokens/s per server"
_ENGINE = (
    "no server too many in the baseline, so this is degrees, clocks and the load's slack over time; depends on the "
    "engine's speed and on the load slots (tables/slots)"
)
_KNOB = "their reference is not stated; ours is MultiPool on the same servers"
_DAY_S = 72_000  # a trace at least this long stands beside the paper's day


def make(study: ServingStudy) -> pd.DataFrame:
    """One row a claim, changes in percent, negative = saved. distance: ours minus theirs, percentage points.

    Ours is the energy of a token served in time; where fewer promises than must be are kept, `why` says so first.
    """
    import pandas as pd

    runs = by_system(study.experiment("systems"))
    bill = cost.make(study).set_index("system").loc["DynamoLLM"]
    ours, sized, everything = (runs[name] for name in ("DynamoLLM", SIZED, BASELINE))

    def changed(reference: dict) -> float | None:
        return token_change_percent(study, ours, reference)

    def row(claim: str, theirs: dict, percent: float | None, why: str, found: dict = ours) -> dict:
        first, second = theirs.get(reported.V1), theirs.get(reported.V2)
        broken = "" if promise_kept(study, found) else "promise broken, so no saving; "
        if percent is None:
            broken += "the baseline breaks its promise, so there is nothing to save against; "
        return {
            "claim": claim,
            "paper_arxiv_v1_percent": first,
            "paper_hpca_percent": second,
            "ours_percent": percent,
            "distance_v1_points": None if first is None or percent is None else percent - first,
            "distance_hpca_points": None if second is None or percent is None else percent - second,
            "kept_percent": found["kept_percent"],
            "why": broken + why,
        }

    rows = [
        row("energy, SinglePool sized for the promise", reported.ENERGY, changed(sized), _ENGINE),
        row("energy, SinglePool on all servers", reported.ENERGY, changed(everything), _SIZE),
        row("energy, MultiPool on all servers", {}, changed(runs[STATIC]), _SIZE),
        row("carbon", reported.CARBON, bill.carbon_change_percent, "ours has one intensity all day: it follows energy"),
        row("cost", reported.COST, bill.cost_change_percent, "servers rule it"),
        row("servers", {reported.V1: reported.SERVERS}, bill.servers_change_percent, "ours against the sized baseline"),
    ]
    if ours["end_s"] >= _DAY_S:
        day = {reported.V1: reported.DAY_CONVERSATION}
        rows.append(row("conversation, 24 h, energy", day, changed(sized), "ours is the study's trace"))
    parts = split.make(study).set_index("part")
    for knob, alone in reported.BY_KNOB.items():
        system = SUBSETS[(knob,)]
        percent = parts.loc[split.NAMES[knob]].alone_of_multipool_percent
        rows.append(row(f"{split.NAMES[knob]} alone", {reported.V1: alone}, percent, _KNOB, runs[system]))
    found = study.experiment("loads")
    for tps in dict.fromkeys(each["tps_per_server"] for each in found):
        name = loads.NAMES.get(tps)
        if name:
            own = by_system([each for each in found if each["tps_per_server"] == tps])
            theirs = {version: values[name] for version, values in reported.BY_LOAD.items()}
            claim = f"{name} load ({tps:g} tokens/s a server), SinglePool on all servers"
            rows.append(
                row(
                    claim, theirs, token_change_percent(study, own["DynamoLLM"], own[BASELINE]), _UNIT, own["DynamoLLM"]
                )
            )
    for name, change in reported.LATENCY.items():
        kind, share = name.lower().split(" ")
        key = f"{kind}_{share}_s"
        why = "ours slows down as far as the promises allow, on faster engines"
        rows.append(row(name, {reported.V1: change}, change_percent(ours[key], sized[key]), why))
    return pd.DataFrame(rows)
