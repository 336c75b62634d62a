"""Whether the kernels of a step add up to it: known sums, kernels that were not measured, a board held by its cap."""

import math
from types import SimpleNamespace

import pandas as pd
import pytest

from kernel_dvfs.gpu import spec as gpu_spec
from kernel_dvfs.gpu.governor import settle
from kernel_dvfs.gpu.kernel import LaunchWork, parameters
from kernel_dvfs_step.report import costs as step_costs
from kernel_dvfs_step.report.tables import step_check
from kernel_dvfs_step.report.view import step_view

SECTION = "backward"


def results_of(kernels, parts, tail=(), limit_w=None, paced=()):
    """Results of a study. kernels: {id: (launches, s, J of a launch, us within the step)}; parts: {section or step:
    (s, J)}; paced: {id: (s, J)} at its clock of the step."""
    rows = [
        {"study": "kernel", "target": name, "time_s": time_s, "energy_j": energy_j, "launches_per_iteration": launches}
        for name, (launches, time_s, energy_j, _) in kernels.items()
    ]
    parts = parts | {f"paced_{name}": each for name, each in dict(paced).items()}
    rows += [{"study": "step", "target": name, "time_s": s, "energy_j": j} for name, (s, j) in parts.items()]
    more = {"is_baseline": True, "core_mhz": math.nan, "mem_mhz": math.nan, "reached_core_mhz": 1500.0, "verdict": "ok"}
    own = [(name, launches) for name, (launches, *_) in kernels.items()]
    about = dict.fromkeys(("name", "module", "operation"), "x") | {"section": SECTION}
    return SimpleNamespace(
        gpu={"name": "NVIDIA H200"} | ({"power_limit_mw": 1000 * limit_w} if limit_w else {}),
        folder=None,
        profile=pd.DataFrame([row | more for row in rows]),
        setup=lambda digest: SimpleNamespace(
            targets={"pass": dict.fromkeys(parts, own), "kernel": {name: {} for name in kernels}},
            gpu={"power_limit_mw": 1000 * limit_w} if limit_w else {},
        ),
        workload={
            "setup": "0",
            "passes": [],
            "kernels": {name: about | {"step_time_s": 1e-6 * us} for name, (*_, us) in kernels.items()},
            "tail": [["other", "other", SECTION, ms] for ms in tail],
        },
    )


@pytest.fixture
def checked(monkeypatch):
    """The row of the whole step, for results_of's arguments."""

    def row(*given, **more):
        results = results_of(*given, **more)
        # a paced kernel has rested
        monkeypatch.setattr(step_costs, "auto_records", lambda *_: [{"kernel": {"rest_us": 7.0}, "windows": []}])
        monkeypatch.setattr(step_costs, "cap_share", lambda _: 0.0)
        table = step_check(results)
        assert not any(name.startswith("paced_") for name in table.section)
        return table[table.section == "step"].iloc[0]

    return row


# 20.5 ms, 11.73 J; 300 to 600 W
KERNELS = {"mm": (31, 5e-4, 0.3, 470.0), "add": (50, 1e-4, 0.0486, 101.0)}


def test_a_sum_that_is_all_of_it_is_compared_with_the_step(checked):
    row = checked(KERNELS, {"step": (0.0209, 12.2)})
    assert row.time_difference_percent == pytest.approx(100 * (20.9 / 20.5 - 1))
    assert row.energy_difference_percent == pytest.approx(100 * (12.2 / 11.73 - 1))
    assert row.adds_up
    assert "with_others_time_difference_percent" not in row
    assert not checked(KERNELS, {"step": (0.0212, 12.2)}).adds_up, "3.4 % of time"
    assert not checked(KERNELS, {"step": (0.0209, 12.35)}).adds_up, "5.3 % of energy"


@pytest.mark.parametrize(
    ("whole", "tail", "verdict", "time_percent", "energy_percent"),
    [
        # 0.6 ms more draw 0.29 J (486 W) to 0.36 J (600 W): 2.3 J are missing
        ((0.0212, 14.36), (0.4, 0.2), False, 100 * (21.2 / 21.1 - 1), 100 * (14.36 / 12.09 - 1)),
        # within what they may draw nothing is missing, and that is narrow: it adds up
        ((0.0212, 12.05), (0.4, 0.2), True, 100 * (21.2 / 21.1 - 1), 0.0),
        # above it, by less than is allowed
        ((0.0212, 12.5), (0.4, 0.2), True, 100 * (21.2 / 21.1 - 1), 100 * (12.5 / 12.09 - 1)),
        # too little energy, though nothing can draw less than they did
        ((0.0212, 11.2), (0.4, 0.2), False, 100 * (21.2 / 21.1 - 1), 100 * (11.2 / (11.73 + 0.6 * 0.486) - 1)),
        # 9 ms of others: 4.4 to 5.4 J, anything in between would do
        ((0.0296, 16.6), (9.0,), "not told: 1 kernels were not measured", 100 * (29.6 / 29.5 - 1), 0.0),
        # but their time is known, and so is an energy beyond all that
        ((0.0310, 16.6), (9.0,), False, 100 * (31.0 / 29.5 - 1), 0.0),
        ((0.0296, 18.4), (9.0,), False, 100 * (29.6 / 29.5 - 1), 100 * (18.4 / (11.73 + 5.4) - 1)),
    ],
)
def test_a_verdict_is_given_wherever_the_gap_is_more_than_what_was_not_measured_can_be(
    checked, whole, tail, verdict, time_percent, energy_percent
):
    row = checked(KERNELS, {"step": whole}, tail=tail)
    assert row.adds_up == verdict
    assert row.with_others_time_difference_percent == pytest.approx(time_percent, abs=1e-6)
    assert row.with_others_energy_difference_percent == pytest.approx(energy_percent, abs=1e-6)
    assert row.not_measured_ms == pytest.approx(sum(tail))


def test_what_was_not_measured_draws_no_more_than_the_limit(checked):
    # at 550 W, not 600, 9 ms make 4.95 J at most
    row = checked(KERNELS, {"step": (0.0296, 17.6)}, tail=(9.0,), limit_w=550)
    assert row.with_others_energy_difference_percent == pytest.approx(100 * (17.6 / (11.73 + 4.95) - 1))
    assert not row.adds_up


@pytest.mark.parametrize(("cap_w", "streams"), [(620, 9), (700, 9), (700, 17)])
def test_products_that_the_cap_holds_alone_add_up_at_their_clock_of_the_step(checked, cap_w, streams):
    """On the simulated H200 under a made cap: beside cooler kernels a product runs faster than alone."""
    spec = gpu_spec.resolve("h200_sxm")

    def settled(load, limit_w, core_mhz="auto"):
        own = spec | {"governor": spec["governor"] | {"cap_w": limit_w}}
        return settle(own, [(parameters(own, work), count) for work, count in load], (core_mhz, "auto"), 60.0)

    launched = {
        "product": (LaunchWork("gemm", 4.1e11, 0.0, 0.0, 3.1e8), 9),
        "other_product": (LaunchWork("gemm", 2.3e11, 0.0, 0.0, 2.9e8), 5),
        "stream": (LaunchWork("residual", 0.0, 0.0, 0.0, 1.3e9), streams),
    }
    whole = settled(launched.values(), cap_w)
    kernels, paced = {}, {}
    for name, (work, count) in launched.items():
        alone, within = settled([(work, 1)], cap_w), settled([(work, 1)], 5000.0, whole.core_mhz)
        kernels[name] = (count, alone.time_s, alone.time_s * alone.power_w, 1e6 * within.time_s)
        if name != "stream":
            assert alone.capped and alone.core_mhz < 0.97 * whole.core_mhz
            paced[name] = (within.time_s, within.time_s * within.power_w)
    part = {"step": (whole.time_s, whole.time_s * whole.power_w)}
    # too long, and told so though 0.01 ms was not measured
    alone = checked(kernels, part, tail=(0.01,))
    assert not alone.adds_up and alone.with_others_time_difference_percent < -3
    row = checked(kernels, part, tail=(0.01,), paced=paced)
    assert row.adds_up and row.paced_share > 0.4 and abs(row.with_others_time_difference_percent) < 0.6


def view_of(rows):
    totals = [
        {"step": "as a whole", "energy_j": 26.29, "time_ms": 40.1, "power_w": 655.0, "power_cap_share": 0.9}
        | {"kernels": 31, "launches": 161, "kernels_of_80_percent": 4}
    ]
    return step_view(
        {"step": {}, "tail": [["c", "c", SECTION, 0.9]]}, {"step_totals": totals, "step_check": rows}, False
    )


def test_the_page_says_by_how_much_they_do_not_add_up_and_in_which_sections():
    def row(section, time, energy, verdict):
        differences = {
            f"with_others_{what}_difference_percent": each for what, each in (("time", time), ("energy", energy))
        }
        plain = {f"{what}_difference_percent": 77.0 for what in ("time", "energy")}
        return {"section": section, "adds_up": verdict} | differences | plain

    rows = [row("forward", 0.4, 1.2, True), row(SECTION, -1.3, 14.1, False), row("step", -0.9, 10.8, False)]
    view = view_of(rows)
    assert view.sentence[-1][0].endswith("Its kernels do not add up to it.")
    assert (
        "takes -0.9 % time and +10.8 % energy; the gap is in backward (-1.3 % time, +14.1 % energy)." in view.notes[0]
    )
    rows[-1] = row("step", 0.5, 0.0, "not told: 30 kernels were not measured")
    view = view_of(rows)
    assert "not told: 30 kernels were not measured" in view.notes[0] and "add up" not in view.sentence[-1][0]
