"""Stage profiles: two layouts, scales that are asked for and no others, one line for every bad value."""

import pytest
from made_up import profile

from kernel_dvfs.errors import InputError
from kernel_dvfs_pipeline.graph import pipeline_graph
from kernel_dvfs_pipeline.planner import Planner
from kernel_dvfs_pipeline.stage_profile import read_stage_profile, write_stage_profile

OURS = "stage,instruction,core_mhz,mem_mhz,time_s,energy_j\n"
ROWS = "0,forward,1400,,0.5,100\n0,forward,700,,0.8,70\n0,backward,1400,,1.0,200\n"


def read(tmp_path, text, **scales):
    path = tmp_path / "stages.csv"
    path.write_text(text)
    return read_stage_profile(path, **scales)


def test_the_artifacts_layout_is_read_too(tmp_path):
    ours = read(tmp_path, OURS + ROWS)
    theirs = read(tmp_path, "stage,instruction,frequency,time,energy\n" + ROWS.replace(",,", ","))
    for key, own in ours.settings.items():
        other = theirs.settings[key]
        assert own.core_mhz.tolist() == other.core_mhz.tolist() and own.time_s.tolist() == other.time_s.tolist()


def test_nothing_is_scaled_unasked_and_both_scales_are_explicit(tmp_path):
    plain = read(tmp_path, OURS + ROWS).of(0, "forward")
    scaled = read(tmp_path, OURS + ROWS, scale_time=10, scale_energy=80).of(0, "forward")
    assert plain.time_s.tolist() == [0.5, 0.8] and plain.energy_j.tolist() == [100, 70]
    assert scaled.time_s.tolist() == [5, 8] and scaled.energy_j.tolist() == [8000, 5600]


def test_a_profile_is_read_back_as_it_was_written(tmp_path):
    made = profile(3)
    write_stage_profile(tmp_path / "made.csv", made)
    copy = read_stage_profile(tmp_path / "made.csv")
    assert set(copy.settings) == set(made.settings) and copy.stages == 3
    for key, own in made.settings.items():
        assert copy.settings[key].time_s.tolist() == own.time_s.tolist()
        assert copy.settings[key].energy_j.tolist() == own.energy_j.tolist()


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (OURS + ROWS.replace("0.8", "nan"), "line 3, column time_s: nan is not possible"),
        (OURS + ROWS.replace("0.8", "-0.8"), "line 3, column time_s: -0.8 is not possible"),
        (OURS + ROWS.replace("0.8", "0"), "line 3, column time_s: 0 is not possible"),
        (OURS + ROWS.replace(",200", ",inf"), "line 4, column energy_j: inf is not possible"),
        (OURS + ROWS.replace("0.8", "soon"), "line 3, column time_s: 'soon' is not a number"),
        (OURS + ROWS.replace("0,backward", "last,backward"), "line 4, column stage: 'last'"),
        (OURS + ROWS.replace("backward", ""), "line 4, column instruction: empty"),
        (OURS + ROWS + "0,forward,700,,0.8,70\n", "line 5: stage 0 forward at these clocks occurs twice"),
        (OURS + ROWS.replace(",100\n", "\n"), "line 2: 5 cells under 6 columns"),
        (OURS + ROWS.replace("0,backward", "999999999,backward"), "stage 1 is missing, there is a stage 999999999"),
        (OURS + ROWS.replace("0,", "1,"), "stage 0 is missing"),
        (OURS, "no rows under the header"),
        ("", "column stage, instruction, core_mhz, time_s, energy_j missing"),
        (OURS.replace("energy_j", "joule") + ROWS, "column energy_j missing"),
        (OURS.replace("mem_mhz", "core_mhz") + ROWS, "a column occurs twice"),
    ],
)
def test_a_bad_row_is_named_with_line_and_column(tmp_path, text, named):
    with pytest.raises(InputError, match=named) as error:
        read(tmp_path, text)
    assert "stages.csv" in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize("scale", [0, -1, float("nan")])
def test_an_impossible_scale_is_refused(tmp_path, scale):
    with pytest.raises(InputError, match="scale_time"):
        read(tmp_path, OURS + ROWS, scale_time=scale)


def test_a_missing_file_is_one_line(tmp_path):
    with pytest.raises(InputError, match=r"nowhere\.csv"):
        read_stage_profile(tmp_path / "nowhere.csv")


def test_a_missing_stage_or_instruction_is_named():
    with pytest.raises(InputError, match="stage 2 is missing"):
        Planner(profile(2), pipeline_graph("1f1b", 3, 4), 80)
    with pytest.raises(InputError, match="stage 0 lacks instruction 'recompute'"):
        Planner(profile(2), pipeline_graph("1f1b", 2, 4, early_recompute=True), 80)


def test_one_clock_only_and_no_trade_off_are_constant_time_and_said_so(tmp_path):
    rows = ROWS + "0,backward,700,,1.5,400\n1,forward,1400,,0.5,100\n1,forward,700,,0.8,70\n1,backward,1400,,1,200\n"
    planner = Planner(read(tmp_path, OURS + rows), pipeline_graph("1f1b", 2, 3), 80)
    first, second = planner.notes
    assert "stage 0 backward: energy only rises with time" in first
    assert "stage 1 backward: one clock only" in second
    assert planner.plan(planner.frontier.time_s[0]).time_ticks == planner.frontier.slowest_ticks


ZEUS = "rank,dp_rank,pp_rank,tp_rank,stage,instruction,frequency,time,energy\n"


def zeus_rows(ranks):
    """A stage's rows as Zeus writes them, of which every GPU takes a little longer and more than the one before."""
    return [
        f"{rank},{rank // 2},0,{rank % 2},0,{instruction},{mhz},{(1 + rank / 10) * 1000 / mhz},{(2 + rank) * mhz}\n"
        for rank in range(ranks)
        for instruction in ("forward", "backward")
        for mhz in (1400, 700)
    ]


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_a_stage_of_several_gpus_takes_their_longest_time_and_all_their_energy(tmp_path, ranks):
    own = read(tmp_path, ZEUS + "".join(zeus_rows(ranks))).of(0, "forward")
    assert own.core_mhz.tolist() == [1400, 700]
    assert own.time_s == pytest.approx([(1 + (ranks - 1) / 10) * 1000 / mhz for mhz in (1400, 700)])
    assert own.energy_j == pytest.approx([sum(2 + rank for rank in range(ranks)) * mhz for mhz in (1400, 700)])


def test_a_gpu_that_is_missing_or_comes_twice_is_named(tmp_path):
    rows = zeus_rows(2)
    with pytest.raises(InputError, match="stage 0 backward at 700 MHz has rows of 1 of 2 ranks"):
        read(tmp_path, ZEUS + "".join(rows[:-1]))
    with pytest.raises(InputError, match=r"line 10: stage 0 forward at these clocks on rank 0 .* occurs twice"):
        read(tmp_path, ZEUS + "".join([*rows, rows[0]]))
