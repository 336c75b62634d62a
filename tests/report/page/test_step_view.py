"""The cards of a captured step's page, from its tables as text."""

from kernel_dvfs.report.page.step_view import step_view

WORKLOAD = {
    "step": {"checksum": "0badb24fa668"},
    "launches": [0, 1],
    "left_at_auto": [["sort", 1, "hung when repeated alone"]],
    "measured_share": 0.991,
    "overlapped": ["gemm"],
}
TOTALS = [
    {"step": "as a whole", "time_ms": "20.48", "energy_j": "14.1", "power_w": "688.4", "power_cap_share": "0.93"}
    | {"kernels": "31", "launches": "161", "kernels_of_80_percent": "4"}
]
SAVING = [{"saving_so_far_percent": share} for share in ("45.0", "79.9", "80.5", "100.0")]


def cards(**tables):
    view = step_view(WORKLOAD, {"step_totals": TOTALS, **tables}, False)
    return {card.title: (card.value, card.text) for card in view.cards}


def test_joules_watts_and_time_of_a_step_come_first():
    found = cards()
    assert next(iter(found)) == "Energy of one step" and found["Energy of one step"][0] == "14.10 J"
    assert found["Time of one step"] == ("20.48 ms", "161 launches of 31 kernels")
    assert found["Mean power"] == ("688.4 W", "93 % of the time under the power cap")
    assert found["80 % of the energy"][0] == "4 of 31" and "80 % of the saving" not in found


def test_how_many_kernels_make_most_of_the_saving():
    assert cards(step_saving=SAVING)["80 % of the saving"] == ("3 of 31", "kernels make it")
    nothing = [{"saving_so_far_percent": "-0.0"}] * 3
    assert "80 % of the saving" not in cards(step_saving=nothing)


def test_what_is_not_in_the_numbers_is_named():
    left, beside = step_view(WORKLOAD, {"step_totals": TOTALS}, False).notes
    assert "0.9 % of the step's traced time: sort ×1 (hung when repeated alone)" in left and "gemm" in beside


def test_a_section_that_was_not_measured_is_named_with_the_reason():
    workload = WORKLOAD | {"not_repeated": {"backward": "it overwrites what it reads"}}
    notes = step_view(workload, {"step_totals": TOTALS}, False).notes
    difference = step_view(
        WORKLOAD | {"by_difference": {"backward": "it overwrites"}}, {"step_totals": TOTALS}, False
    ).notes[-1]
    assert "Section backward is the difference of two measurements" in difference and "It overwrites." in difference
    left = WORKLOAD | {"state_left_out": "no memory was left for 1 of 3 blocks"}
    assert step_view(left, {"step_totals": TOTALS}, False).notes[-1].endswith("no memory was left for 1 of 3 blocks.")
    assert notes[-1] == "Section backward was not measured as a whole: it overwrites what it reads."


def test_a_forecast_says_so_on_its_first_card_and_a_model_has_none():
    assert "forecast" in step_view(WORKLOAD, {"step_totals": TOTALS}, True).cards[0].text
    bounds = {"energy_least_j": "2.5", "energy_most_j": "14.2"}
    text = step_view(WORKLOAD, {"step_totals": [TOTALS[0] | bounds]}, True).cards[0].text
    assert "its power is the model's, and anything from 2.500 to 14.20 J is possible" in text
    assert step_view({"name": "gpt3-xl"}, {"step_totals": TOTALS}, False) is None
    assert step_view(WORKLOAD, {}, False) is None
