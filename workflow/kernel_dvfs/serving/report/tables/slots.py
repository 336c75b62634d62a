"""On what the saving depends: the length of the slots that loads are averaged over."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernel_dvfs.outputs import Output
from kernel_dvfs.serving.report.share import by_system, promise_kept, token_change_percent
from kernel_dvfs.serving.system import BASELINE, SIZED

if TYPE_CHECKING:
    import pandas as pd

    from kernel_dvfs.serving.study import ServingStudy

OUTPUT = Output(
    "DynamoLLM by the length of a load slot, against SinglePool on the servers that such slots ask for, on the fewest "
    "that keep the promise, and on all; energy of a token served in time, negative = saved",
    inputs=lambda plan: plan.reads("systems", "slots"),
)


def make(study: ServingStudy) -> pd.DataFrame:
    """One row a length. baseline_*: SinglePool on the servers that the highest slot asks for."""
    import pandas as pd

    runs, found = by_system(study.experiment("systems")), study.experiment("slots")
    rows = []
    for slot_s in dict.fromkeys(each["load_slot_s"] for each in found):
        own = by_system([each for each in found if each["load_slot_s"] == slot_s])
        base, ours = own[BASELINE], own["DynamoLLM"]
        rows.append(
            {
                "load_slot_s": slot_s,
                "baseline_servers": base["servers"],
                "baseline_kept_percent": base["kept_percent"],
                "baseline_j_per_token_in_time": base["j_per_token_in_time"],
                "j_per_token_in_time": ours["j_per_token_in_time"],
                "kept_percent": ours["kept_percent"],
                "promise_kept": promise_kept(study, ours),
                "late": ours["late"],
                "rejected": ours["rejected"],
                "server_hours": ours["server_hours"],
                "change_of_slot_baseline_percent": token_change_percent(study, ours, base),
                "change_percent": token_change_percent(study, ours, runs[SIZED]),
                "change_of_all_servers_percent": token_change_percent(study, ours, runs[BASELINE]),
            }
        )
    return pd.DataFrame(rows)
