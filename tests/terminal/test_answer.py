"""The line that a run ends with says what was found, where it is, and how sure it is."""

import json

import pytest
from whole_schedule import whole_schedule, whole_walk

from kernel_dvfs.report.words import line_of_study
from kernel_dvfs.table_file import write_rows
from kernel_dvfs_clocks.errors import InputError

HEADER = "schedule,slack_percent,fresh_time_change_percent,fresh_energy_change_percent,verdict\n"


def _cell(text):
    """A cell as tables have it."""
    try:
        return float(text)
    except ValueError:
        return text or None


@pytest.fixture
def study(tmp_path):
    """`study(row)` is a folder with a headline of one row; `study(schedule={...})` one with a strict schedule."""

    def make(row=None, schedule=None):
        if row is not None:
            (tmp_path / "tables").mkdir()
            names = HEADER.strip().split(",")
            cells = [[_cell(each) for each in line.split(",")] for line in row.splitlines()]
            write_rows(tmp_path / "tables/headline.json", [dict(zip(names, each, strict=True)) for each in cells])
        if schedule is not None:
            (tmp_path / "schedules").mkdir()
            (tmp_path / "schedules/kernel-global-waste-slack0.json").write_text(json.dumps(schedule))
        return str(tmp_path)

    return make


def claimed(kind):
    gpu = {"kind": kind, "name": "G", "slug": "g"}
    return whole_schedule(energy_change_percent=-6.754, time_change_percent=-0.119, gpu=gpu)


def test_a_study_measured_again_names_its_device_its_savings_and_its_page(study, tmp_path):
    folder = study(
        "kernel-global-waste-slack0,0,-0.126,-6.741,keeps its limit\npass-global-waste-slack0,0,9,9,contradicts\n"
    )
    (tmp_path / "report.html").touch()
    assert line_of_study(folder, "simulated RTX 3080 Ti") == (
        f"simulated RTX 3080 Ti: -6.7 % energy, -0.1 % time (measured again). "
        f"Measured again, it keeps its limit. Open {folder}/report.html"
    )


def test_what_can_be_set_today_is_told_with_medians_and_stalls_in_the_same_breath(study, tmp_path):
    folder = study("a,0,-0.1,-16.7,\n")
    path = tmp_path / "tables/deployable.json"

    def way(name, latencies_ms, stalls_ms, claimed, fresh, is_default=True, clocks="x"):
        names = ("latency_ms", "mem_latency_ms", "core_stall_ms", "mem_stall_ms")
        row = {"way": name, "claimed_energy_change_percent": claimed, "fresh_energy_change_percent": fresh}
        row |= {"is_default": is_default, "costs": latencies_ms and "assumed", "clocks": clocks}
        return row | dict(zip(names, (*(latencies_ms or (None, None)), *(stalls_ms or (None, None)))))

    one = way("one pair for the run", None, None, -5.0, -4.21)
    passes = way("a pair for each pass", (15, 30), (0.1, 0.2), -6.0, -5.04)
    launches = way("launch by launch, asked ahead", (15, 30), (0.1, 0.2), -9.0, -8.56)
    swept = way("launch by launch, asked ahead", (15, 30), (0, 0), -9.0, -9.9, is_default=False)
    write_rows(path, [one, passes, launches, swept])
    assert (
        "This counts changes of clocks as free. Energy with what can be set today: one pair -4.2 %, a pair a pass "
        "-5.0 %, launch by launch -8.6 % "
        "(measured again; a change takes 15 ms (core) or 30 ms (memory), medians, and stalls 0.1 ms "
        "(core) or 0.2 ms (memory): assumed). See"
    ) in line_of_study(folder, "G")
    write_rows(path, [one, passes, launches | {"fresh_energy_change_percent": None}, swept])
    assert "launch by launch -9.0 % (claimed; a change" in line_of_study(folder, "G"), "not all were measured again"
    auto = one | {"claimed_energy_change_percent": 0.0, "fresh_energy_change_percent": None, "clocks": "auto"}
    write_rows(path, [auto, passes, launches, swept])
    assert "can be set today: one pair no change, a pair a pass -5.0 %" in (said := line_of_study(folder, "G"))
    assert "(measured again; a change" in said, "what stays at auto was not to be measured again"
    alike = [passes | {"fresh_energy_change_percent": -4.23}, launches | {"fresh_energy_change_percent": -4.18}]
    write_rows(path, [one, *alike, swept])
    assert "can be set today: -4.2 % (measured again; a change" in line_of_study(folder, "G")
    path.write_text(path.read_text().replace("-4.23", "-7.23"))
    with pytest.raises(InputError, match=r"deployable\.json: was changed since it was written"):
        line_of_study(folder, "G")


def test_without_a_page_the_folder_is_named(study):
    folder = study("a,0,-0.1,-6.7,\n")
    assert line_of_study(folder, "H200").endswith(f"(measured again). See {folder}")


@pytest.mark.parametrize(
    ("verdict", "said"),
    [("breaks its limit", "it breaks its limit"), ("not shown to keep its limit", "it is not shown to keep its limit")],
)
def test_without_a_walk_the_answer_says_what_measuring_again_found_of_the_limit(study, verdict, said):
    folder = study(f"a,0,0.5,-6.7,{verdict}\n", whole_schedule())
    assert f"(measured again). Measured again, {said}. See" in line_of_study(folder, "H200")


@pytest.mark.parametrize("verdict", ["contradicts", "does not contradict"])
def test_the_answer_has_the_bound_that_was_shown_and_whether_it_is_contradicted(study, verdict):
    folder = study(f"a,0,0.5,-6.7,{verdict}\n", whole_schedule(walk=whole_walk()))
    assert line_of_study(folder, "H200") == (
        "H200: -6.7 % energy, +0.5 % time (measured again). It is at least 0.02 % faster, shown with 90 % "
        f"confidence by data that did not choose it; measuring again {verdict} this. See {folder}"
    )


def test_a_choice_that_is_not_measured_again_has_its_bound(study):
    line = line_of_study(study(schedule=claimed("nvml") | {"walk": whole_walk()}), "H200")
    bound = "It is at least 0.02 % faster, shown with 90 % confidence by data that did not choose it"
    assert f"(claimed, not measured again). {bound}. See" in line


def test_what_rounds_to_zero_has_no_sign_and_a_cost_has_a_plus(study):
    assert "H200: +1.2 % energy, 0.0 % time" in line_of_study(study("a,0,-0.04,1.23,keeps its limit\n"), "H200")


@pytest.mark.parametrize(
    ("kind", "how"), [("table", "(claimed, from the table's own rows)"), ("nvml", "(claimed, not measured again)")]
)
def test_without_a_validation_the_schedule_claims(study, kind, how):
    text = line_of_study(study(schedule=claimed(kind)), "mine")
    assert text.startswith(f"mine: -6.8 % energy, -0.1 % time {how}.")


def test_a_forecast_is_called_so_measured_again_or_not(study, tmp_path):
    schedule = claimed("simulated")
    schedule["gpu"]["forecast"] = True
    folder = study("a,0,-0.1,-6.7,keeps its limit\n", schedule)
    assert "(forecast). Measured again in simulation, it keeps its limit." in line_of_study(folder, "mine")
    (tmp_path / "tables/headline.json").unlink()
    assert "-0.1 % time (forecast)." in line_of_study(folder, "mine")


def test_a_headline_that_is_empty_or_damaged_is_passed_over(study):
    assert "claimed" in line_of_study(study("", schedule=claimed("simulated")), "mine")


def test_a_headline_without_numbers_is_passed_over(study):
    assert "claimed" in line_of_study(study("a,0,,,\n", schedule=claimed("simulated")), "mine")


def test_a_study_at_auto_alone_ends_with_its_page(tmp_path):
    (tmp_path / "report.html").touch()
    assert line_of_study(str(tmp_path), "mine") == f"mine: no clocks chosen. Open {tmp_path}/report.html"


def test_a_step_at_auto_alone_ends_with_what_it_takes_and_what_is_missing_of_its_kernels(tmp_path):
    def row(section, verdict, time, energy):
        differences = {"time_difference_percent": 9.0, "energy_difference_percent": 9.0}
        differences |= {"with_others_time_difference_percent": time, "with_others_energy_difference_percent": energy}
        return {"section": section, "adds_up": verdict} | differences

    def said(rows):
        write_rows(tmp_path / "tables/step_check.json", rows)
        return line_of_study(str(tmp_path), "mine").removesuffix(f". Open {tmp_path}/report.html")

    (tmp_path / "report.html").touch()
    (tmp_path / "tables").mkdir()
    write_rows(tmp_path / "tables/step_totals.json", [{"step": "as a whole", "energy_j": 25.3496, "time_ms": 39.0726}])
    takes = "mine: one step takes 25.35 J and 39.07 ms at auto clocks"
    assert said([]) == takes
    sections = [row("forward", True, -0.49, 3.29), row("backward", False, -0.83, 7.49)]
    assert said([*sections, row("step", False, -0.59, 5.03)]) == (
        f"{takes}; its kernels do not add up to it: against their sum, the step as a whole takes -0.6 % time and "
        "+5.0 % energy; the gap is in backward (-0.8 % time, +7.5 % energy)"
    )
    assert said([*sections, row("step", True, -0.59, 4.87)]) == (
        f"{takes}; its kernels add up to it within 0.6 % of time, 4.9 % of energy"
    )
    assert said([row("step", "not told: 12 kernels were not measured", 0.5, 0.0)]) == (
        f"{takes}; whether its kernels add up to it is not told: 12 kernels were not measured, and these may draw any "
        "power"
    )


def test_a_study_without_a_choice_has_no_answer(tmp_path):
    assert line_of_study(str(tmp_path), "mine") is None
    (tmp_path / "schedules").mkdir()
    (tmp_path / "schedules/kernel-global-waste-slack0.json").write_text("{")
    assert line_of_study(str(tmp_path), "mine") is None
