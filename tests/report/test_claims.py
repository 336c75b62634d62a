"""Each verdict follows from the data: it turns when the data turn, and says what is missing when data are."""

import json

import pandas as pd
import pytest
from whole_schedule import whole_schedule

from kernel_dvfs.errors import InputError
from kernel_dvfs.gpu.spec import resolve
from kernel_dvfs.layout import SCHEDULE, STRICT
from kernel_dvfs.measurement import record, setup
from kernel_dvfs.profile.store import COLUMNS, write_profile
from kernel_dvfs.report.claims import pass_level
from kernel_dvfs.report.claims.claim import DIFFERS, HOLDS, NOT_TESTABLE, UNMEASURED, change, percent
from kernel_dvfs.report.results import Results
from kernel_dvfs.report.tables import claims
from kernel_dvfs.report.write import write_table

WORKLOAD = "gpt3-xl-b40-tp1"
AUTO = ("auto", "auto")
AT_AUTO = (1650, 9251)  # what auto runs at in these tests
PASS_STRICT = "pass-global-waste-slack0"


class Study:
    """A results folder made up in a test. Points: {(core, mem): (time, energy[, core that ran, mem that ran])}."""

    def __init__(self, root, gpu="RTX 3080 Ti", kind="simulated", spec=None):
        self.gpu = {"kind": kind, "name": gpu, "slug": gpu.lower().replace(" ", "-")}
        self.folder = root / self.gpu["slug"] / (WORKLOAD if kind == "simulated" else "as-measured")
        self.spec = spec
        self.targets = {"kernel": {}, "pass": {}}
        self.points = {}
        self.validated = False

    def kernel(self, name, points, launches=1, kind="gemm"):
        row = len(self.targets["kernel"]) + 1
        about = {"row": row, "section": "Forward", "name": name, "kind": kind}
        self.targets["kernel"][name] = about | {
            "launches_per_iteration": launches,
            "replicate_group": None,
            "work": ["gemm", 1, 0, 0, 1],
        }
        self.points["kernel", name] = points
        return self

    def a_pass(self, name, points, runs=()):
        self.targets["pass"][name] = list(runs)
        self.points["pass", name] = points
        return self

    def profile(self):
        """Write setup and profile; itself."""
        rows = []
        for (study, target), points in self.points.items():
            for (core, mem), (time_s, energy_j, *ran) in points.items():
                core_ran, mem_ran = ran or (c if c != "auto" else a for c, a in zip((core, mem), AT_AUTO))
                known = self.gpu["kind"] == "simulated"
                rows.append(
                    dict.fromkeys(COLUMNS)
                    | {"study": study, "target": target, "launches_per_iteration": 1, "n": 1, "verdict": "ok"}
                    | {"core_mhz": _mhz(core), "mem_mhz": _mhz(mem), "is_baseline": (core, mem) == AUTO}
                    | {"reached_core_mhz": core_ran if known else None, "reached_mem_mhz": mem_ran if known else None}
                    | {"time_s": time_s, "energy_j": energy_j}
                )
                if study == "kernel":
                    rows[-1]["launches_per_iteration"] = self.targets["kernel"][target]["launches_per_iteration"]
        workload = {"name": WORKLOAD, "batch": 40, "tensor_parallel": 1}
        if self.gpu["kind"] == "simulated":
            spec = self.spec or resolve("rtx_3080_ti")
            gpu = self.gpu | {"spec": spec}
            path = setup.store(str(self.folder / "setup"), gpu, workload, self.targets, {"seed": 1})
            self.setup = setup.read(path)
            workload |= {"setup": self.setup.digest, "kernels": self.targets["kernel"]}
        columns = {name: [row[name] for row in rows] for name in COLUMNS}
        self.folder.mkdir(parents=True, exist_ok=True)
        write_profile(self.folder / "profile.parquet", columns, self.gpu, workload, ["core_mhz", "mem_mhz"])
        return self

    def schedule(self, name, time=0.0, energy=-5.0, targets=None, **more):
        granularity, scope, objective, *slack = name.split("-")
        chosen = {
            target: {"core_mhz": core, "mem_mhz": mem}
            for target, (core, mem) in (targets or dict.fromkeys(self.targets[granularity], AUTO)).items()
        }
        content = {
            "schema": SCHEDULE,
            "granularity": granularity,
            "scope": scope,
            "objective": objective,
            "slack_percent": 0 if slack else None,
            "weights": "counts",
            "ties": "tied",
            "status": "optimal",
            "time_change_percent": time,
            "energy_change_percent": energy,
            "edp_change_percent": 100 * ((1 + time / 100) * (1 + energy / 100) - 1),
            "baseline_time": 1.0,
            "baseline_energy": 1.0,
            "targets": chosen,
            "workload": {"setup": self.setup.digest} if getattr(self, "setup", None) else {},
        }
        columns = ("granularity", "scope", "objective", "slack_percent", "status", "weights")
        self.strategies = getattr(self, "strategies", {})
        self.strategies[name] = {column: (content | more)[column] for column in columns} | {"schedule": name}
        self.table("strategies", *self.strategies.values())
        return self.file(f"schedules/{name}.json", json.dumps(whole_schedule() | content | more))

    def table(self, name, *rows):
        return self.file(f"tables/{name}.csv", pd.DataFrame(rows).to_csv(index=False))

    def validation(self, time, energy, optimism=0.5, repeats=3):
        self.validated = True
        common = {"claimed_change_percent": 0.0, "optimism_pp": optimism, "repeats": repeats}
        return self.table(
            "validation",
            *(
                {"quantity": name, "fresh_change_percent": value, "fresh_low_percent": value - 0.1}
                | {"fresh_high_percent": value + 0.1}
                | common
                for name, value in (("time", time), ("energy", energy))
            ),
        )

    def repeats(self, folder, chosen, repeats=3):
        """Repeats: `chosen(target, repeat)` = (auto time, chosen time, auto energy, chosen energy), s and J."""
        files = {}
        for target in self.targets["kernel"]:
            for repeat in range(repeats):
                t0, t1, e0, e1 = chosen(target, repeat)
                auto, best = (_point(t, e) for t, e in ((t0, e0), (t1, e1)))
                comparison = {
                    "target": target,
                    "repeat": repeat,
                    "session": f"fresh-{repeat}",
                    "points": [auto, best, best, auto],
                }
                files.setdefault(f"repeat-{repeat}" if folder == "validation" else target, []).append(comparison)
        for name, comparisons in files.items():
            path = self.folder / "measurements" / folder / f"{name}.json"
            path.parent.mkdir(parents=True, exist_ok=True)
            record.write_comparison(str(path), self.setup, DEVICE, STRICT, comparisons)
        return self if folder != "validation" or self.validated else self.validation(0.1, -5.0, repeats=repeats)

    def file(self, name, text):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return self

    def row(self, number):
        """The claim's row of the table."""
        judged = next(each for each in claims.claims() if each.number == number)
        return claims._row(judged, Results(self.folder))

    def verdict(self, number):
        return self.row(number)["verdict"]


DEVICE = {
    **{"kind": "simulated", "name": "X", "uuid": "x", "driver": "x", "energy_scope": "board"},
    **{"power_limit_mw": None, "counter_period_ms": 100.0, "counter_read_ms": 4.0},
}


def _point(time_s, energy_j):
    """A point of a comparison."""
    energy_mj = 1e5 * energy_j  # a hundred times as much: 1 J in 1 s is no power of a GPU
    summary = {"n": 3, "time_us": time_s * 1e6, "time_sd_us": 0.0, "energy_mj": energy_mj, "energy_sd_mj": 0.0}
    summary["power_mw"] = energy_mj / time_s
    return {
        "request": {"policy": "auto", "core_mhz": "auto", "mem_mhz": "auto", "switch_s": 0.0},
        "reached": {"core_mhz": AT_AUTO[0], "mem_mhz": AT_AUTO[1], "alias_of": None},
        "summary": summary,
        "verdict": "ok",
        "reasons": [],
    }


def _mhz(clock):
    return None if clock == "auto" else float(clock)


@pytest.fixture
def study(tmp_path):
    """A study without anything in it; `study(gpu=..., kind=...)`."""
    return lambda **more: Study(tmp_path, **more)


def two_passes(study, forward=None, backward=None, **more):
    auto = {AUTO: (1.0, 100.0)}
    made = study(**more).a_pass("forward", auto | (forward or {})).a_pass("backward", auto | (backward or {}))
    return made.kernel("gemm", auto).profile().schedule(PASS_STRICT).schedule(STRICT)


# --- the table itself ---


def test_there_are_29_claims_in_order():
    assert [each.number for each in claims.claims()] == list(range(1, 30))


def test_an_almost_empty_study_tests_almost_nothing_and_leaves_no_cell_empty(study, tmp_path):
    made = study(kind="table").kernel("a", {AUTO: (1.0, 1.0), (2100, 9251): (1.0, 1.0)}).profile().schedule(STRICT)
    results = Results(made.folder)
    frame = claims.make(results)
    assert list(frame.number) == list(range(1, 30))
    assert list(frame.columns) == ["number", "claim", "source", "paper", "ours", "verdict", "why"]
    assert not frame.isna().any(axis=None)
    assert (frame.map(lambda cell: str(cell).strip() != "")).all(axis=None)
    assert set(frame.verdict) <= {HOLDS, DIFFERS, NOT_TESTABLE}
    assert (frame.verdict == NOT_TESTABLE).sum() >= 20
    write_table(frame, tmp_path, "claims", claims.OUTPUT.caption, "nothing", ("csv", "md"))
    again = pd.read_csv(tmp_path / "tables/claims.csv")
    assert again[frame.columns].equals(frame)


def test_what_is_missing_is_said_with_a_remedy(study):
    made = study(kind="table").kernel("a", {AUTO: (1.0, 1.0)}).profile().schedule(STRICT)
    for number in (1, 2, 8, 20, 22, 24, 26, 27, 28):
        row = made.row(number)
        assert row["verdict"] == NOT_TESTABLE
        assert any(word in row["why"] for word in ("run ", "use ", "measure ", "configure "))


def test_a_broken_file_is_an_error_and_not_a_verdict(study):
    made = two_passes(study).file(f"schedules/{PASS_STRICT}.json", '{"granularity": "pass"')
    with pytest.raises(InputError, match="pass-global-waste"):
        made.verdict(1)


def test_a_verdict_on_a_measured_table_says_that_its_kernels_are_others(study):
    auto = {AUTO: (1.0, 1.0), (1470, 9251): (1.2, 0.8)}
    made = study(kind="table").kernel("a", auto).profile().schedule(STRICT, targets={"a": (1470, 9251)})
    assert "not the paper's" in made.row(12)["why"]


def test_changes_carry_their_sign_and_no_minus_zero():
    assert change(0.21, -7.39) == "energy -7.4 % at time +0.2 %"
    assert percent(-0.04) == "0.0 %"


# --- headlines: 1, 8, 9 ---


@pytest.mark.parametrize(
    ("time", "energy", "verdict"),
    [(-0.1, -2.1, HOLDS), (-0.1, -1.0, DIFFERS), (-0.1, -4.0, DIFFERS), (0.4, -2.1, DIFFERS)],
)
def test_passes_save_about_two_percent_or_not(study, time, energy, verdict):
    lower = {(1470, 9251): (0.999, 97.9)}
    made = two_passes(study, lower, lower)
    made.schedule(PASS_STRICT, time, energy, dict.fromkeys(("forward", "backward"), (1470, 9251)))
    assert made.verdict(1) == verdict


def test_a_saving_at_the_clocks_of_auto_is_called_scatter(study):
    twin = {("auto", 9251): (0.99, 99.0)}
    made = two_passes(study, twin, twin)
    made.schedule(PASS_STRICT, -1.0, -2.0, dict.fromkeys(("forward", "backward"), ("auto", 9251)))
    row = made.row(1)
    assert row["verdict"] == DIFFERS
    assert "scatter of 2 such pairs" in row["why"]


@pytest.mark.parametrize(
    ("time", "energy", "verdict"), [(0.4, -14.0, HOLDS), (0.4, -7.0, DIFFERS), (2.0, -14.0, DIFFERS)]
)
def test_the_validated_headline(study, time, energy, verdict):
    made = two_passes(study).validation(time, energy)
    assert made.verdict(8) == verdict


@pytest.mark.parametrize(("energy", "verdict"), [(-15.0, HOLDS), (-8.0, DIFFERS)])
def test_the_claimed_headline(study, energy, verdict):
    made = two_passes(study).schedule(STRICT, 0.0, energy)
    assert made.verdict(9) == verdict


def banded(made, low, high):
    """A study whose headline may lie between two changes, percent, for kernels and for passes."""
    ends = {"low_energy_change_percent": low, "high_energy_change_percent": high}
    alone = {"low_energy_change_percent": -50.0, "high_energy_change_percent": 50.0}
    return made.table(
        "headline_band",
        *({"level": level, "varied": "tensor-core energy"} | alone for level in ("kernel", "pass")),
        *({"level": level, "varied": "all together"} | ends for level in ("kernel", "pass")),
    )


@pytest.mark.parametrize(
    ("low", "high", "verdicts"),
    [
        (-15.5, -14.0, (DIFFERS, HOLDS, HOLDS)),
        (-16.7, -14.0, (DIFFERS, UNMEASURED, HOLDS)),
        (-18.0, -4.0, (DIFFERS, UNMEASURED, UNMEASURED)),
        (-13.0, -4.0, (DIFFERS, UNMEASURED, DIFFERS)),
        (-12.5, -4.0, (DIFFERS, DIFFERS, DIFFERS)),
        (-30.0, -20.0, (DIFFERS, DIFFERS, DIFFERS)),
        (-3.0, 0.0, (UNMEASURED, DIFFERS, DIFFERS)),
        (-2.4, -1.6, (HOLDS, DIFFERS, DIFFERS)),
    ],
)
def test_a_headline_is_judged_by_its_band_whatever_the_study_itself_found(study, low, high, verdicts):
    made = banded(two_passes(study).schedule(STRICT, 0.0, -7.0).validation(0.3, -7.0), low, high)
    assert tuple(made.verdict(number) for number in (1, 8, 9)) == verdicts


def test_the_band_is_told_and_so_is_how_far_the_paper_is(study):
    made = banded(two_passes(study).schedule(STRICT, 0.0, -7.0).validation(0.0, -7.0), -12.0, -4.0)
    row = made.row(8)
    assert "over what nobody has measured -12.0 to -4.0 %" in row["ours"]
    assert "the band ends 2.6 points from the paper's value" in row["why"]
    assert "within 2 points of that band" in banded(made, -14.0, -4.0).row(8)["why"]


def test_a_band_does_not_excuse_more_lost_time_than_the_paper_has(study):
    made = banded(two_passes(study).validation(1.5, -14.6), -15.0, -14.0)
    row = made.row(8)
    assert row["verdict"] == DIFFERS and "more time is lost" in row["why"]


# --- pass level: 2 to 7 ---


@pytest.mark.parametrize(
    ("pairs", "gain", "verdict"),
    [(6, 1.0, HOLDS), (5, 1.0, HOLDS), (12, 1.0, DIFFERS), (0, 1.0, DIFFERS), (6, 6.0, DIFFERS)],
)
def test_pairs_in_the_square_of_the_forward_pass(study, pairs, gain, verdict):
    inside = {(2100 - 15 * k, 9251): (0.999, 100.0 - gain - 0.1 * k) for k in range(pairs)}
    assert two_passes(study, forward=inside).verdict(2) == verdict


@pytest.mark.parametrize(
    ("time", "taken", "verdict"), [(1.05, AUTO, HOLDS), (0.99, (1470, 9251), DIFFERS), (0.99, AUTO, DIFFERS)]
)
def test_strict_keeps_auto_in_the_backward_pass(study, time, taken, verdict):
    made = two_passes(study, backward={(1470, 9251): (time, 80.0)})
    made.schedule(PASS_STRICT, targets={"forward": AUTO, "backward": taken})
    assert made.verdict(3) == verdict


def test_auto_by_another_name_is_auto(study):
    made = two_passes(study, backward={(1470, 9251): (1.1, 80.0), (2100, 9251): (0.99, 99.0, *AT_AUTO)})
    made.schedule(PASS_STRICT, targets={"forward": AUTO, "backward": (2100, 9251)})
    row = made.row(3)
    assert row["verdict"] == HOLDS
    assert "auto by another name" in row["why"]


@pytest.mark.parametrize(
    ("time", "energy", "verdict"), [(1.03, 90.0, HOLDS), (1.12, 80.0, DIFFERS), (1.03, 99.8, DIFFERS)]
)
def test_a_small_delay_that_pays(study, time, energy, verdict):
    assert two_passes(study, backward={(1470, 9251): (time, energy)}).verdict(4) == verdict


def test_the_scatter_of_auto_by_another_name_does_not_pay(study):
    assert two_passes(study, backward={(2100, 9251): (1.01, 97.0, *AT_AUTO)}).verdict(4) == DIFFERS


def test_what_counts_as_a_small_delay_is_one_named_figure(study, monkeypatch):
    made = two_passes(study, backward={(1470, 9251): (1.12, 80.0)})
    monkeypatch.setattr(pass_level, "SMALL_DELAY_PERCENT", 15.0)
    assert made.verdict(4) == HOLDS


@pytest.mark.parametrize(("above", "ran", "verdict"), [(420, 405, HOLDS), (630, 405, DIFFERS), (420, 810, DIFFERS)])
def test_the_lowest_memory_clock_folds(study, above, ran, verdict):
    spec = resolve("rtx_3080_ti", {"clocks": {"fold": {"above_core_mhz": above}}})
    assert two_passes(study, {(210, 405): (9.0, 130.0, 243, ran)}, spec=spec).verdict(5) == verdict


@pytest.mark.parametrize(("energy", "verdict"), [(130.0, HOLDS), (60.0, DIFFERS)])
def test_the_lowest_memory_clocks_are_never_best(study, energy, verdict):
    low = {(1470, 810): (3.0, energy)}
    assert two_passes(study, low, low).verdict(6) == verdict


@pytest.mark.parametrize(("energy", "verdict"), [(90.0, HOLDS), (70.0, DIFFERS)])
def test_lower_memory_clocks_are_dominated(study, energy, verdict):
    pairs = {(1470, 9251): (1.1, 80.0), (1470, 5001): (1.2, energy)}
    assert two_passes(study, pairs, pairs).verdict(7) == verdict


# --- kernel level: 10 to 12 ---

LOW_CORE, LOW_MEM, BOTH = (1260, 9251), (2100, 5001), (1260, 5001)


def kernels(study, chosen, time=None, **more):
    """Kernels at LOW_CORE, LOW_MEM, BOTH or auto, as `chosen` says by name; `time`: of what is chosen."""
    made = study(**more)
    for name, pair in chosen.items():
        points = {AUTO: (1.0, 100.0), LOW_CORE: (1.1, 80.0), LOW_MEM: (1.0, 95.0, 1680, 5001), BOTH: (1.3, 70.0)}
        if time:
            points[pair] = (time.get(name, 1.0), *points[pair][1:])
        made.kernel(name, points)
    return made.profile().schedule(STRICT, targets=chosen)


def test_clocks_that_differ_and_a_kernel_that_gains_both(study):
    made = kernels(study, {"a": LOW_CORE, "b": LOW_MEM}, {"b": 0.97})
    assert made.verdict(10) == HOLDS


def test_no_kernel_that_gains_both(study):
    assert kernels(study, {"a": LOW_CORE, "b": LOW_MEM}).verdict(10) == DIFFERS


def test_clocks_that_do_not_differ(study):
    assert kernels(study, {"a": LOW_MEM, "b": LOW_MEM}, {"b": 0.97}).verdict(10) == DIFFERS


def test_fresh_repeats_decide_which_kernels_gain_both(study):
    made = kernels(study, {"a": LOW_CORE, "b": LOW_MEM}, {"b": 0.97})
    made.repeats("validation", lambda target, repeat: (1.0, 1.0 + 0.001 * repeat, 1.0, 0.9))
    assert made.verdict(10) == DIFFERS


@pytest.mark.parametrize(("third", "verdict"), [(LOW_CORE, HOLDS), (BOTH, DIFFERS)])
def test_one_clock_or_the_other(study, third, verdict):
    assert kernels(study, {"a": LOW_CORE, "b": LOW_MEM, "c": third}).verdict(11) == verdict


@pytest.mark.parametrize(("chosen", "verdict"), [(LOW_CORE, HOLDS), (AUTO, DIFFERS)])
def test_kernels_that_lose_time(study, chosen, verdict):
    assert kernels(study, {"a": chosen, "b": LOW_MEM}).verdict(12) == verdict


# --- ways of choosing: 13 to 19 ---


def strategies(study, **energy_at_time):
    """Schedules by name with "_" for "-": (time, energy)."""
    made = study().kernel("a", {AUTO: (1.0, 100.0)}).a_pass("forward", {AUTO: (1.0, 100.0)}).profile()
    for name, (time, energy) in energy_at_time.items():
        made.schedule(name.replace("_", "-"), time, energy)
    return made


WASTE_LOCAL, WASTE_GLOBAL, EDP_LOCAL, EDP_GLOBAL, ENERGY_GLOBAL, PASS_WASTE, PASS_EDP = (
    "kernel_local_waste_slack0",
    "kernel_global_waste_slack0",
    "kernel_local_edp",
    "kernel_global_edp",
    "kernel_global_energy",
    "pass_global_waste_slack0",
    "pass_global_edp",
)


@pytest.mark.parametrize(
    ("all_in", "edp", "verdict"),
    [(-8, -20.1, HOLDS), (-4.2, -20.1, DIFFERS), (-8, -25, DIFFERS), (-3, -20.1, DIFFERS)],
)
def test_global_against_local(study, all_in, edp, verdict):
    found = {WASTE_LOCAL: (-1, -4), WASTE_GLOBAL: (0, all_in), EDP_LOCAL: (10, -20), EDP_GLOBAL: (10, edp)}
    assert strategies(study, **found).verdict(13) == verdict


def relaxed(study, points, least=(40, -40)):
    made = strategies(study, **{ENERGY_GLOBAL: least})
    rows = [
        {"slack_percent": slack, "scope": "global", "time_change_percent": time, "energy_change_percent": energy}
        for slack, time, energy in points
    ]
    return made.table("relaxed", *rows)


@pytest.mark.parametrize(("used", "verdict"), [(9.9, HOLDS), (7.0, DIFFERS)])
def test_the_budget_of_time_is_used(study, used, verdict):
    assert relaxed(study, [(0, -0.01, -5), (10, used, -20), (30, 29.9, -30)]).verdict(14) == verdict


def test_beyond_the_least_energy_no_budget_is_needed(study):
    assert relaxed(study, [(0, -0.01, -5), (30, 12.0, -30)], least=(12.0, -30)).verdict(14) == HOLDS


@pytest.mark.parametrize(
    ("late", "least", "verdict"), [(-30, (40, -31), HOLDS), (-60, (40, -61), DIFFERS), (-30, (4, -31), DIFFERS)]
)
def test_returns_diminish(study, late, least, verdict):
    assert relaxed(study, [(0, 0, -5), (10, 10, -25), (30, 30, late)], least).verdict(15) == verdict


@pytest.mark.parametrize(("time", "verdict"), [(0.99, HOLDS), (0.9, DIFFERS)])
def test_little_time_to_gain(study, time, verdict):
    made = study().kernel("a", {AUTO: (1.0, 100.0), (2100, 9251): (time, 100.0)}).profile().schedule(STRICT)
    assert made.verdict(16) == verdict


def test_plateaus_come_from_the_grid(study):
    made = study()
    core_bound = {(mhz, 9251): (1650 / mhz, 40 + 60 * mhz / 1650) for mhz in (1230, 1335, 1440, 1545, 1650)}
    for number in range(30):
        made.kernel(f"k{number}", {AUTO: (1.0, 100.0)} | core_bound)
    assert made.profile().schedule(STRICT).verdict(17) == HOLDS


def test_plateaus_that_a_coarser_grid_does_not_lengthen(study):
    made = study()
    for number in range(30):
        steps = {(mhz, 9251): (1.15, 60.0) for mhz in range(1260, 1680, 60)}
        made.kernel(f"k{number}", {AUTO: (1.0, 100.0)} | steps)
    assert made.profile().schedule(STRICT).verdict(17) == DIFFERS


@pytest.mark.parametrize(
    ("edp", "coarse", "verdict"),
    [((16, -33), (18, -27), HOLDS), ((-2, -33), (18, -27), DIFFERS), ((16, -33), (18, -0.5), DIFFERS)],
)
def test_edp_trades_time_for_energy(study, edp, coarse, verdict):
    found = {WASTE_GLOBAL: (0, -8), EDP_GLOBAL: edp, PASS_WASTE: (0, -1), PASS_EDP: coarse}
    assert strategies(study, **found).verdict(18) == verdict


@pytest.mark.parametrize(("coarse", "verdict"), [(-1, HOLDS), (-6, DIFFERS)])
def test_fine_saves_far_more_than_coarse(study, coarse, verdict):
    assert strategies(study, **{WASTE_GLOBAL: (0, -8), PASS_WASTE: (0, coarse)}).verdict(19) == verdict


# --- repeats: 20, 21 ---


@pytest.mark.parametrize(("worst", "verdict"), [(0.93, HOLDS), (0.85, DIFFERS)])
def test_whether_a_repeat_reaches_the_claim(study, worst, verdict):
    made = kernels(study, {"a": LOW_MEM}).schedule(STRICT, 0.0, -10.0, {"a": LOW_MEM}).validation(0.1, -7.0)
    made.repeats(
        "validation", lambda target, repeat: (1.0, 0.999 + 0.002 * (repeat > 0), 1.0, 0.93 if repeat else worst)
    )
    assert made.verdict(20) == verdict


def test_a_claim_that_rests_on_a_check_says_nothing_of_one_that_does_not(study):
    made = kernels(study, {"a": LOW_MEM}).schedule(STRICT, 0.0, -10.0, {"a": LOW_MEM}, margin={"z": 2, "checked": True})
    row = made.validation(0.1, -7.0).repeats("validation", lambda target, repeat: (1.0, 1.0, 1.0, 0.9)).row(20)
    assert row["verdict"] == "not testable" and "rests on a check" in row["why"]


@pytest.mark.parametrize(("heavy", "verdict"), [(1, DIFFERS), (2000, HOLDS)])
def test_an_error_in_every_kernel_does_not_grow_with_their_number_but_one_in_the_heaviest_does(study, heavy, verdict):
    made, launches = study(), {"k0": heavy}
    for number in range(30):
        name = f"k{number}"
        made.kernel(name, {AUTO: (1.0, 100.0), LOW_MEM: (1.0, 90.0)}, launches.get(name, 1))
    made.profile().schedule(STRICT, targets=dict.fromkeys(made.targets["kernel"], LOW_MEM))

    def chosen(target, repeat):
        late = 0.01 if heavy == 1 or target == "k0" else 0.0
        return 1.0, 1.0 + late + 0.001 * repeat, 1.0, 0.9

    assert made.repeats("validation", chosen).verdict(21) == verdict


# --- other batches and degrees: 22 to 25 ---


def carried(study, column, points):
    """{batch or degree: (time, energy[, auto time, auto energy])}."""
    name = {"batch": "data_parallelism", "tensor_parallel": "tensor_parallelism"}[column]
    rows = [
        {column: value, "time_change_percent": time, "energy_change_percent": energy}
        | dict(zip(("auto_time_s", "auto_energy_j"), absolute or (1.0, 1.0)))
        for value, (time, energy, *absolute) in points.items()
    ]
    return study.table(name, *rows)


@pytest.mark.parametrize(
    ("small", "verdict"), [((0.8, -8), HOLDS), ((0.8, -6), DIFFERS), ((-0.8, -8), DIFFERS), ((9, -8), DIFFERS)]
)
def test_smaller_batches(study, small, verdict):
    made = carried(two_passes(study), "batch", {40: (0.2, -7), 20: (0.3, -7.1), 5: small})
    assert made.verdict(22) == verdict


@pytest.mark.parametrize(("times", "verdict"), [((0.1, 0.2, 0.3), HOLDS), ((0.1, 0.2, 3.0), DIFFERS)])
def test_which_is_steadier_over_batches(study, times, verdict):
    points = {batch: (time, energy) for batch, time, energy in zip((40, 20, 10), times, (-7, -8, -8.5))}
    assert carried(two_passes(study), "batch", points).verdict(23) == verdict


@pytest.mark.parametrize(
    ("times", "energy", "verdict"),
    [((0.1, 0.2, 0.3, 3.0), -6, HOLDS), ((0.1, 0.2, 0.3, 0.4), -6, DIFFERS), ((0.1, 0.2, 0.3, 3.0), -1, DIFFERS)],
)
def test_one_degree_out_of_line(study, times, energy, verdict):
    points = {degree: (time, -7 if degree < 8 else energy) for degree, time in zip((1, 2, 4, 8), times)}
    assert carried(two_passes(study), "tensor_parallel", points).verdict(24) == verdict


def test_the_kernel_behind_a_shift_is_named(study):
    made = kernels(study, {"a": LOW_MEM, "b": LOW_MEM})
    made.repeats("validation", lambda target, repeat: (1.0, 1.0, 1.0, 0.9))
    made.repeats("batch-20", lambda target, repeat: (1.0, 1.3 if target == "b" else 1.0, 1.0, 0.9))
    why = carried(made, "batch", {40: (0.0, -7), 20: (15.0, -7)}).row(22)["why"]
    assert "b (row 2) adds most, +15.0 of +15.0 points" in why


@pytest.mark.parametrize(
    ("shift", "factor", "verdict"), [(2, 1.8, HOLDS), (0, 1.8, DIFFERS), (2, 1.0, DIFFERS), (5, 1.8, DIFFERS)]
)
def test_degree_against_batch_of_equal_work(study, shift, factor, verdict):
    made = carried(two_passes(study), "batch", {40: (0, -7, 8, 8), 20: (0, -7, 4, 4)})
    carried(made, "tensor_parallel", {1: (0, -7, 8, 8), 2: (shift, shift - 7, 4 * factor, 4 * factor)})
    assert made.verdict(25) == verdict


# --- other GPUs: 26, 27 ---


def test_another_gpu_is_needed_and_found_beside(study):
    here = kernels(study, {"a": LOW_CORE, "b": LOW_MEM})
    assert here.verdict(26) == here.verdict(27) == NOT_TESTABLE
    kernels(study, {"a": LOW_CORE}, gpu="RTX A4000")
    assert here.verdict(26) == here.verdict(27) == NOT_TESTABLE  # other kernels are another workload
    kernels(study, {"a": LOW_CORE, "b": LOW_MEM}, gpu="RTX A4000")
    assert NOT_TESTABLE not in (here.verdict(26), here.verdict(27))


MILDER = (1470, 9251)


@pytest.mark.parametrize(
    ("saves", "there", "verdict"),
    [(-4, MILDER, HOLDS), (-9, MILDER, DIFFERS), (-4, LOW_MEM, DIFFERS), (-4, (1050, 9251), DIFFERS)],
)
def test_the_second_gpu_saves_less_by_the_same_clocks_lowered_less(study, saves, there, verdict):
    here, other = study(), study(gpu="RTX A4000")
    for each, pair, energy in ((here, LOW_CORE, -6), (other, there, saves)):
        each.kernel("a", {AUTO: (1.0, 100.0), pair: (1.1, 80.0, min(pair[0], 1650), pair[1])}).profile()
        each.schedule(STRICT, 0, energy, {"a": pair})
    assert here.verdict(26) == other.verdict(26) == verdict


@pytest.mark.parametrize(("time", "energy", "verdict"), [(1.0, 91.0, DIFFERS), (1.2, 80.0, HOLDS), (1.0, 99.0, HOLDS)])
def test_clocks_taken_to_another_gpu(study, time, energy, verdict):
    here, other = study(), study(gpu="RTX A4000")
    here.kernel("a", {AUTO: (1.0, 100.0), (1470, 9251): (1.0, 90.0)}).profile()
    # the nearest that the other has is 1455/7001
    others = {AUTO: (1.0, 100.0), (1455, 7001): (time, energy), (1050, 7001): (1.5, 70.0), (1455, 810): (3.0, 60.0)}
    other.kernel("a", others).profile().schedule(STRICT, 0, -10.0)
    assert here.schedule(STRICT, 0, -10.0, {"a": (1470, 9251)}).verdict(27) == verdict


# --- the GPU itself: 28, 29 ---


@pytest.mark.parametrize(("latency_s", "verdict"), [(0.015, HOLDS), (0.00001, DIFFERS)])
def test_latency_of_a_clock_change(study, latency_s, verdict):
    each = {"median_s": latency_s, "p99_s": 2 * latency_s}
    made = study(spec=resolve("rtx_3080_ti", {"switching": {"core": each, "mem": each}}))
    short = {AUTO: (0.001, 0.3), LOW_CORE: (0.001, 0.2)}
    made.kernel("a", short).kernel("b", short).a_pass("forward", {AUTO: (1.0, 100.0)}, [["a", 24], ["b", 24]])
    made.profile().schedule(STRICT, targets={"a": AUTO, "b": LOW_CORE})
    row = made.row(28)
    assert row["verdict"] == verdict
    assert "48 clock changes (48 of core, 0 of memory) in 48 launches" in row["ours"]
    assert "assumption" in row["why"]


def test_layers_are_walked_whole():
    from kernel_dvfs.report.claims.kernel_level import launch_order

    passes = {"backward": [["d", 1]], "forward": [["a", 1], ["b", 2], ["c", 2]]}
    assert launch_order({"pass": passes}) == ["a", "b", "c", "b", "c", "d"]


@pytest.mark.parametrize(("power", "verdict"), [(3, HOLDS), (1, DIFFERS)])
def test_power_against_clock(study, power, verdict):
    clocks = (420, 840, 1260, 1650)
    curve = {(mhz, 9251): (1650 / mhz, (100 + 200 * (mhz / 1650) ** power) * 1650 / mhz) for mhz in clocks}
    made = study().kernel("a", {AUTO: (1.0, 300.0)} | curve).profile().schedule(STRICT)
    assert made.verdict(29) == verdict
