"""The table of what can be set today on every board."""

import pandas as pd

from experiments.searches.deployable import in_markdown
from kernel_dvfs.layout import FREE, LAUNCH, PASS, RUN


def test_a_board_has_a_row_for_each_median_that_makes_a_difference():
    def row(gpu, way, median_ms, changes, is_own=True, stall_ms=0.1, clocks="x"):
        named = [f"{each}_change_percent" for each in ("claimed_energy", "fresh_energy", "claimed_time", "fresh_time")]
        about = {"gpu": gpu, "way": way, "latency_ms": median_ms, "mem_latency_ms": median_ms and 3 * median_ms}
        return about | {"own_latency": is_own, "core_stall_ms": stall_ms, "clocks": clocks} | dict(zip(named, changes))

    saved, less, least = (-9.04, -8.96, -0.3, 0.04), (-5.0, -4.2, -0.6, -0.7), (-4.0, -3.3, -0.1, -0.2)
    nothing = (0.0, None, 0.0, None)
    rows = [row("A", FREE, 0.0, saved, False), row("A", RUN, None, least, False)]
    rows += [row("A", PASS, 7.0, least), row("A", LAUNCH, 7.0, less), row("A", LAUNCH, 7.0, saved, stall_ms=0.0)]
    rows += [row("A", PASS, 1.0, least, False), row("A", LAUNCH, 1.0, saved, False)]
    rows += [row("B", FREE, 0.0, (0.0, 0.0, 0.0, 0.0), False), row("B", RUN, None, nothing, False, clocks="auto")]
    for median_ms, is_own in ((4.0, True), (1.0, False)):
        rows += [row("B", way, median_ms, nothing, is_own, clocks="auto") for way in (PASS, LAUNCH)]
    free, run = "-9.0 / **-9.0 %** at -0.3 / 0.0 %", "-4.0 / **-3.3 %** at -0.1 / -0.2 %"
    assert in_markdown(pd.DataFrame(rows)).splitlines()[2:] == [
        f"| A | 7, 21 (its own) | {free} | {run} | {run} | -5.0 / **-4.2 %** at -0.6 / -0.7 % |",
        f"|  | 1, 3 | {free} | {run} | {run} | {free} |",
        "| B | 4, 12 (its own) | 0.0 / **0.0 %** at 0.0 / 0.0 % | nothing | nothing | nothing |",
    ]
