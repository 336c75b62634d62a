"""The cards of a captured step's page, from its tables."""

from kernel_dvfs_step.report.view import step_view

WORKLOAD = {
    "step": {"checksum": "0badb24fa668"},
    "launches": [0, 1],
    "left_at_auto": [["sort", 1, "hung when repeated alone"]],
    "measured_share": 0.991,
    "overlapped": ["gemm"],
}
TOTALS = [
    {"step": "as a whole", "time_ms": 20.48, "energy_j": 14.1, "power_w": 688.4, "power_cap_share": 0.93}
    | {"kernels": 31, "launches": 161, "kernels_of_80_percent": 4}
]
SAVING = [{"saving_so_far_percent": share} for share in (45.0, 79.9, 80.5, 100.0)]


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
    nothing = [{"saving_so_far_percent": -0.0}] * 3
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
    bounds = {"energy_least_j": 2.5, "energy_most_j": 14.2}
    text = step_view(WORKLOAD, {"step_totals": [TOTALS[0] | bounds]}, True).cards[0].text
    assert "its power is the model's, and anything from 2.500 to 14.20 J is possible" in text
    assert step_view({"name": "gpt3-xl"}, {"step_totals": TOTALS}, False) is None
    assert step_view(WORKLOAD, {}, False) is None


def test_loop_graph_and_schedule_stand_side_by_side_each_against_the_loop():
    ways = {"loop_us": 66970.0, "loop_j": 25.0, "graph_us": 34650.0, "graph_j": 21.4}
    workload = WORKLOAD | {"whole": ways, "items": {"token": 4096}}
    headline = [{"fresh_energy_change_percent": -10.0, "fresh_time_change_percent": 1.0}]
    tables = {"step_totals": TOTALS, "headline": headline}
    loop, graph, chosen = step_view(workload, tables, False).cards[:3]
    assert (loop.title, loop.value) == ("As a loop", "25.00 J")
    assert loop.text.startswith("66.97 ms, 6.104 mJ a token, 61,162 tokens a second; calls of the step")
    assert graph.value == "21.40 J" and graph.text.startswith("34.65 ms, 5.225 mJ a token, 118,211 tokens a second; ")
    assert graph.text.endswith("-48 % time, -14 % energy against the loop")
    # 34.65 x 1.01 and 21.4 x 0.9
    assert chosen.value == "19.26 J" and chosen.text.startswith("35.00 ms, 4.702 mJ a token, 117,040 tokens a second; ")
    assert chosen.text.endswith("-48 % time, -23 % energy against the loop")
    without = step_view(workload, {"step_totals": TOTALS}, False).cards
    assert [card.title for card in without[:3]] == ["As a loop", "As a graph", "Energy of one step"]


def test_what_of_the_loop_is_not_the_gpu_stands_beside_it():
    ways = {"loop_us": 66970.0, "loop_j": 25.0, "graph_us": 34650.0, "graph_j": 21.4, "call_us": 34100.0}
    cards = step_view(WORKLOAD | {"whole": ways}, {"step_totals": TOTALS}, False).cards
    waits = next(card for card in cards if card.title == "Not the GPU")
    # 66.97 - 34.10 ms, 49.08 % of the loop's
    assert waits.value == "32.87 ms" and waits.text.startswith("49 % of the loop's time")
    assert waits.text.endswith("a replay saves 3.600 J of it")
    # a graph that runs other kernels saves nothing of it, and a loop that waits for nobody waits for no time
    dearer = step_view(
        WORKLOAD | {"whole": ways | {"graph_j": 26.0, "call_us": 70000.0}}, {"step_totals": TOTALS}, False
    )
    waits = next(card for card in dearer.cards if card.title == "Not the GPU")
    assert waits.value == "0 ms" and "saves" not in waits.text


def limit(what, energy, time, least, most):
    row = {"what": what, "energy_change_percent": energy, "time_change_percent": time, "known": "forecast"}
    return row | {"energy_change_least_percent": least, "energy_change_most_percent": most}


def test_the_lock_and_the_limit_that_save_most_within_each_time_are_offered_with_their_commands():
    rows = [
        limit("nothing: how well the forecast is held to auto", -2.2, -2.1, -2.3, -0.4),
        limit("core locked at 1380 MHz", -10.5, 4.0, -18.3, -9.8),
        limit("power limit of 660 W", -2.1, 1.4, -2.4, -1.8),
        limit("power limit of 630 W", -5.92, 4.53, -6.04, -5.13),
        limit("power limit of 560 W", 0.4, 0.7, 0.1, 0.6),
    ]
    settings = step_view(WORKLOAD, {"step_totals": TOTALS, "step_limits": rows}, False).settings
    names = [column.name for column in settings.stops.columns]
    found = {
        (row[0].value, row[1].value): dict(zip(names, (cell.value for cell in row))) for row in settings.stops.rows
    }
    assert settings.cards[0][1]["clocks"] == "auto" and settings.cards[0][1]["command"] == ""
    lock, cap = (found[way, "5 % longer"] for way in ("Core clock locked", "Power limit set"))
    assert (lock["energy"], lock["time"], lock["how"]) == ("−10.5 %", "+4.0 %", "forecast")
    # 14.1 J and 20.48 ms
    assert lock["takes"] == "12.62 J, 21.30 ms" and lock["note"] == "energy −18.3 to −9.8 %"
    assert lock["command"] == "kernel-dvfs apply --pair 1380,auto --baseline -- python train.py"
    assert cap["command"] == "kernel-dvfs apply --pair auto,auto --power-limit 630 --baseline -- python train.py"
    assert found["Power limit set", "4 % longer"]["clocks"] == "power limit of 660 W"
    assert found["Power limit set", "1 % longer"]["energy"] == "0.0 %", "what costs is not offered"
    assert step_view(WORKLOAD, {"step_totals": TOTALS, "step_limits": rows[:1]}, False).settings is None


def test_a_graph_that_costs_more_than_its_loop_is_no_advice():
    # as an H100's BERT
    ways = {"loop_us": 9175.2, "loop_j": 3.8562, "graph_us": 11835.0, "graph_j": 6.6317}
    notes = step_view(WORKLOAD | {"whole": ways}, {"step_totals": TOTALS}, False).notes
    assert any(note.startswith("Its graph takes 72 % more energy than the loop: do not replay it") for note in notes)
    within = step_view(WORKLOAD | {"whole": ways | {"graph_j": 3.96}}, {"step_totals": TOTALS}, False).notes
    assert not any("more energy" in note for note in within)


def test_kernels_that_were_scaled_to_their_sections_are_said():
    row = {"step": "sum of its kernels", "energy_j": 9.0, "kernels": 31}
    row |= {"residual_time_percent": 6.52, "residual_energy_percent": -6.36}
    notes = step_view(WORKLOAD, {"step_totals": [*TOTALS, row]}, False).notes
    assert any("+6.5 % time, -6.4 % energy" in note for note in notes)


def test_what_was_not_measured_for_want_of_time_is_told_with_its_share():
    rows = [
        *TOTALS,
        {"step": "sum of its kernels", "energy_j": 9.0, "kernels": 31},
        {"step": "the others, not measured", "energy_j": 1.0, "kernels": 369},
    ]
    notes = step_view(WORKLOAD | {"said": ["lr changes"]}, {"step_totals": rows}, False).notes
    assert "Lr changes." in notes
    assert any(
        note.startswith("369 kernels were not measured for want of time: 10.0 % of the energy") for note in notes
    )


def test_kernels_that_do_not_add_up_are_said_first():
    check = {"section": "step", "time_difference_percent": 4.6, "energy_difference_percent": -5.7}
    tables = {"step_totals": TOTALS, "step_check": [check | {"adds_up": False}]}
    view = step_view(WORKLOAD, tables, False)
    assert "takes +4.6 % time and -5.7 %" in view.notes[0]
    assert view.sentence[-1][0].endswith("Its kernels do not add up to it."), "in the answer"
    paced = {"paced_time_difference_percent": -3.9, "paced_energy_difference_percent": 1.3}
    tables["step_check"] = [check | paced | {"adds_up": False}]
    assert "takes -3.9 % time and +1.3 %" in step_view(WORKLOAD, tables, False).notes[0]
    tables["step_check"] = [check | {"adds_up": True}]
    view = step_view(WORKLOAD, tables, False)
    assert view.notes[0] == "Its kernels add up to it within 4.6 % of time, 5.7 % of energy."
    tables["step_check"] = [check | {"adds_up": "not told: 30 kernels were not measured"}]
    assert "add up" not in step_view(WORKLOAD, tables, False).sentence[-1][0]


def test_a_study_in_minutes_says_that_its_counts_are_of_the_kernels_measured():
    view = step_view(WORKLOAD | {"tail": [["c", "c", "backward", 0.9]]}, {"step_totals": TOTALS}, False)
    words = "".join(words for words, _ in view.sentence)
    assert "4 of the 31 kernels measured take 80 % of their energy" in words
    texts = {card.title: card.text for card in view.cards}
    assert texts["Time of one step"] == "161 launches of 31 kernels measured"
    assert texts["80 % of the energy"] == "kernels measured"
