"""Stage profiles: two layouts, scales that are asked for and no others, one line for every bad value."""

import pytest
from made_up import profile

from kernel_dvfs_clocks.errors import InputError
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
        (OURS + ROWS.replace("0.8", "nan"), "line 3, column time_s: 'nan' is not a finite number"),
        (OURS + ROWS.replace("0.8", "-0.8"), "line 3, column time_s: '-0.8' is not above zero"),
        (OURS + ROWS.replace("0.8", "0"), "line 3, column time_s: '0' is not above zero"),
        (OURS + ROWS.replace(",200", ",inf"), "line 4, column energy_j: 'inf' is not a finite number"),
        (OURS + ROWS.replace("0.8", "soon"), "line 3, column time_s: 'soon' is not a number"),
        (OURS + ROWS.replace("0,backward", "last,backward"), "line 4, column stage: 'last'"),
        (OURS + ROWS.replace("backward", ""), "line 4, column instruction: empty"),
        (
            OURS + ROWS + "0,forward,700,,1.3,70\n",
            "line 5, column time_s: '1.3' here but '0.8' in line 3, both",
        ),
        (OURS + ROWS.replace(",100\n", "\n"), "line 2: 5 cells where the header names 6 columns"),
        (OURS + ROWS.replace("0,backward", "999999999,backward"), "stage 1 is missing, there is a stage 999999999"),
        (OURS + ROWS.replace("0,", "1,"), "stage 0 is missing"),
        (OURS, "a header but no rows"),
        ("stage\n0\n", "column instruction, core_mhz, time_s, energy_j missing"),
        (OURS.replace("energy_j", "joule") + ROWS, "column energy_j missing"),
        (OURS.replace("mem_mhz", "core_mhz") + ROWS, "column core_mhz: the name appears twice"),
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
def test_the_gpus_of_a_stage_are_pooled_and_their_energies_never_summed(tmp_path, ranks):
    profile = read(tmp_path, ZEUS + "".join(zeus_rows(ranks)))
    own = profile.of(0, "forward")
    assert own.core_mhz.tolist() == [1400, 700]
    # ranks 0, 1 and 2, 3 are a replica each, in which the slower one counts
    slowest = {1: 0, 2: 1, 4: (1 + 3) / 2}[ranks]
    assert own.time_s == pytest.approx([(1 + slowest / 10) * 1000 / mhz for mhz in (1400, 700)])
    assert own.energy_j == pytest.approx([(2 + (ranks - 1) / 2) * mhz for mhz in (1400, 700)])
    assert ("--scale-energy 2" in " ".join(profile.notices)) == (ranks > 1)


def test_rows_of_waiting_say_what_a_waiting_stage_draws(tmp_path):
    rows = "0,forward,1400,,0.5,150\n0,waiting,,,2.5,205\n1,forward,1400,,0.5,150\n1,waiting,,,2,172\n"
    profile = read(tmp_path, OURS + rows, scale_energy=3)
    assert profile.blocking_w == pytest.approx(3 * (82 + 86) / 2)
    assert set(profile.settings) == {(0, "forward"), (1, "forward")}
    assert read(tmp_path, OURS + "0,forward,1400,,0.5,150\n").blocking_w is None
    with pytest.raises(InputError, match="no work in it"):
        read(tmp_path, OURS + "0,waiting,,,2.5,205\n")


def test_a_gpu_that_is_missing_or_comes_twice_is_named(tmp_path):
    rows = zeus_rows(2)
    with pytest.raises(InputError, match="stage 0 backward at 700 MHz has rows of 1 of 2 ranks"):
        read(tmp_path, ZEUS + "".join(rows[:-1]))
    with pytest.raises(
        InputError,
        match=r"line 10, column instruction: stage 0 forward at these clocks on rank 0 .* occurs twice",
    ):
        read(tmp_path, ZEUS + "".join([*rows, rows[0]]))


ONE = 0.063, 19.53  # s, J: 310 W


MHZ = ((1380, 1.0), (1095, 1.1))


def of_one_gpu(heads, time, energy):
    works = ((what, mhz, share) for what in ("forward", "backward") for mhz, share in MHZ)
    rows = (f"0,{what},{mhz},{share * time!r},{share * energy!r}\n" for what, mhz, share in works)
    return f"stage,instruction,{heads}\n" + "".join(rows)


@pytest.mark.parametrize(
    ("heads", "time", "energy"),
    [
        ("frequency,time,energy", 1, 1),
        ("Frequency [MHz],Time (ms),Energy (mJ)", 1e3, 1e3),
        ("core_mhz,time_us,energy_kj", 1e6, 1e-3),
        ("SM clock,duration_ms,gpu_energy_j", 1e3, 1),
    ],
)
def test_units_are_those_of_the_headings(tmp_path, heads, time, energy):
    own = read(tmp_path, of_one_gpu(heads, ONE[0] * time, ONE[1] * energy)).of(0, "forward")
    assert own.core_mhz.tolist() == [1380, 1095] and own.time_s == pytest.approx([0.063, 0.0693])
    assert own.energy_j == pytest.approx([19.53, 21.483])


@pytest.mark.parametrize(
    ("time", "energy", "said"),
    [
        (1e3, 1, r"column energy: 310 mW, which no GPU draws: likely the time is in ms or the energy is in kJ"),
        (1, 1e3, r"column energy: 310 kW, which no GPU draws: likely the energy is in mJ"),
        (1, 1e-3, r"310 mW, which no GPU draws: likely the time is in ms or the energy is in kJ"),
    ],
)
@pytest.mark.parametrize("gpus", [1, 8])
def test_a_unit_that_no_heading_says_is_refused_with_a_guess(tmp_path, time, energy, said, gpus):
    """As the artifact's headings have none: milliseconds would make a minute of an iteration, and most of it idle."""
    text = of_one_gpu("frequency,time,energy", ONE[0] * time, ONE[1] * energy)
    with pytest.raises(InputError, match=said):
        read(tmp_path, text, scale_energy=gpus)
    scales = {"scale_time": 1 / time, "scale_energy": gpus / energy}
    assert read(tmp_path, text, **scales).of(0, "forward").energy_j[0] == pytest.approx(19.53 * gpus)


def test_repeats_are_pooled_and_counted(tmp_path):
    text = OURS + ROWS + "0,forward,700,,0.9,80\n"
    found = read(tmp_path, text)
    assert found.of(0, "forward").time_s == pytest.approx([0.5, 0.85])
    assert found.of(0, "forward").energy_j == pytest.approx([100, 75])
    assert found.notices == [f"{tmp_path / 'stages.csv'}: 1 rows are repeats of others; their means count"]


def test_what_no_heading_says_is_named(tmp_path):
    text = OURS.replace("core_mhz", "speed") + ROWS
    with pytest.raises(InputError, match="column core_mhz missing"):
        read(tmp_path, text)
    assert read(tmp_path, text, columns={"core_mhz": "Speed"}).of(0, "forward").core_mhz.tolist() == [1400, 700]


def test_a_stage_cannot_wait_at_more_power_than_it_works(tmp_path):
    own = read(tmp_path, of_one_gpu("frequency,time,energy", *ONE))
    with pytest.raises(InputError, match=r"a stage that waits draws 640 W, more than any of its operations \(310 W"):
        Planner(own, pipeline_graph("1f1b", 1, 4), 640)
    assert Planner(own, pipeline_graph("1f1b", 1, 4), 80).blocking_w == 80
