"""The map of the headline is the strict saving of studies that differ in what nobody has measured, and nothing else."""

import csv
import json
from collections import Counter

import pytest

from kernel_dvfs.choice.problem import Problem
from kernel_dvfs.choice.scopes import solve
from kernel_dvfs.cli.main import main
from kernel_dvfs.errors import InputError
from kernel_dvfs.gpu.clocks import BASELINE, Pair
from kernel_dvfs.gpu.governor import Running
from kernel_dvfs.gpu.spec import resolve
from kernel_dvfs.layout import HEADLINE_AXES as AXES
from kernel_dvfs.measurement.campaign import Bench
from kernel_dvfs.measurement.setup import Setup
from kernel_dvfs.measurement.simulated import SimulatedGpu
from kernel_dvfs.measurement.simulated_iteration import iteration_of
from kernel_dvfs.measurement.target import Target
from kernel_dvfs.plan.config import check
from kernel_dvfs.plan.study import plan
from kernel_dvfs.registry import outputs
from kernel_dvfs.search.headline_map import headline_map

CLOCKS = (1470, 1680, 1890, 2100)
SERVED = ("linear", "decode_attention")  # with exponents of their own
PAIRS = [BASELINE, *(Pair(core, mem) for core in CLOCKS for mem in (5001, 9251)), Pair("auto", 5001)]
SMALL = {"tensor_energy_pj": [0.5, 2.2], "gemm_traffic": [1, 4], "auto_core_mhz": [1905]}


@pytest.fixture(scope="module")
def setup(setup_of) -> Setup:
    return setup_of(batch=2, headline_map=None)


@pytest.fixture(scope="module")
def found(setup):
    return {tuple(row[axis] for axis in AXES): row for row in headline_map(setup, PAIRS, SMALL, "tied")}


def by_benches(setup, pairs):
    """Change of energy of the strict choice, percent, on the truth of the simulated GPU as measurements find it."""
    times, energies = [], []
    kernels = setup.targets["kernel"]
    board, iteration = SimulatedGpu(setup.gpu["spec"], 1, exact=True), iteration_of(setup)
    board.condition(list(iteration.values()))
    running = Running(board.spec, list(iteration.values()), BASELINE)
    state = running.settled(board.temperature_c)
    own = zip(iteration, running.launch_s(state), running.launch_j(state, board.temperature_c))
    in_iteration = {name: {"time_us": 1e6 * time_s, "energy_mj": 1e3 * energy_j} for name, time_s, energy_j in own}
    for name, about in kernels.items():
        bench = Bench(setup, Target("kernel", name), exact=True)
        points = [bench.point(pair)["summary"] for pair in pairs]
        # at auto the iteration is the baseline, and a kernel its part of it
        points[0] = points[0] | in_iteration[name]
        times.append([about["launches_per_iteration"] * point["time_us"] for point in points])
        energies.append([about["launches_per_iteration"] * point["energy_mj"] for point in points])
    problem = Problem.of(times, energies, [0] * len(times))
    answer = solve(problem, "global", "waste", 0.0, effort=0)
    return 100 * (answer.energy / problem.baseline_energy - 1)


@pytest.mark.slow
def test_the_box_holds_the_setups_own_values(setup, found):
    own = setup.gpu["spec"]["energy_pj"]["tensor_bf16_flop"]
    assert {energy for energy, _, _ in found} == {0.5, own, 2.2}
    assert {mhz for _, _, mhz in found} == {1905, setup.gpu["spec"]["clocks"]["auto_core_mhz"]}
    default = [key for key, row in found.items() if row["is_default"]]
    assert len(default) == 1 and default[0][0] == own
    assert len(found) == 3 * 3 * 2


# all clocks that may be found between those of the grid
EVERY = [*PAIRS, *(Pair(core, mem) for core in range(1485, 1996, 15) for mem in (5001, 9251) if core not in CLOCKS)]


def test_the_default_is_the_strict_saving_of_the_setup_on_its_truth_also_between_the_grids_clocks(setup, found):
    row = next(row for row in found.values() if row["is_default"])
    least = by_benches(setup, EVERY)
    # temperature drifts a little within the windows that are taken together here; and halving looks at few clocks
    assert least - 0.05 < row["kernel_energy_change_percent"] < least + 0.2
    assert least < by_benches(setup, PAIRS) - 0.5


def test_another_point_is_what_a_study_with_those_figures_would_find(setup_of, setup, found):
    over = {
        "energy_pj": {"tensor_bf16_flop": 2.2},
        "memory": {"gemm_traffic": 4},
        "clocks": {"auto_core_mhz": 1905},
    }
    other = setup_of(batch=2, headline_map=None, gpu_overrides=over)
    row = found[2.2, 4, 1905]
    least = by_benches(other, EVERY)
    assert least - 0.05 < row["kernel_energy_change_percent"] < least + 0.2


def test_strict_choices_lose_no_time_and_spend_no_energy(found):
    for row in found.values():
        for level in ("kernel", "pass"):
            assert row[f"{level}_time_change_percent"] <= 0 and row[f"{level}_energy_change_percent"] <= 0


def test_each_axis_matters(found):
    default = next(key for key, row in found.items() if row["is_default"])
    for place, axis in enumerate(AXES):
        line = {
            key[place]: row["kernel_energy_change_percent"]
            for key, row in found.items()
            if key[:place] + key[place + 1 :] == default[:place] + default[place + 1 :]
        }
        assert len(line) >= 2
        if axis != "auto_core_mhz":
            assert len(set(line.values())) > 1, axis


def test_the_command_writes_the_map(setup_of, tmp_path, config):
    study = plan(config(batch=2), str(tmp_path))
    path, out = study.setup.write(), tmp_path / "map.csv"
    words = ["study", "headline-map", "--gpu", path, "--pairs", "auto-auto,1470-9251", "-o", str(out)]
    assert main([*words, "--axes", json.dumps({axis: [values[0]] for axis, values in SMALL.items()})]) == 0
    rows = list(csv.DictReader(out.open()))
    assert len(rows) == 8 and sum(row["is_default"] == "True" for row in rows) == 1


@pytest.mark.parametrize(
    "axes",
    ['{"gemm_traffic": [1]}', "[1]", "x", '{"tensor_energy_pj": [-1], "gemm_traffic": [1], "auto_core_mhz": [1]}'],
)
def test_bad_axes_are_one_line(setup, tmp_path, capsys, axes, config):
    path = plan(config(batch=2), str(tmp_path)).setup.write()
    words = ["study", "headline-map", "--gpu", path, "--pairs", "auto-auto", "-o", str(tmp_path / "map.csv")]
    assert main([*words, "--axes", axes]) == 2
    told = capsys.readouterr().err
    assert told.startswith("error: ") and told.count("\n") == 1


def test_a_real_gpu_has_no_known_truth(setup):
    with pytest.raises(InputError, match="no known truth"):
        headline_map(setup._replace(gpu={"kind": "nvml"}), PAIRS, SMALL, "tied")


ENDS = {"overlap": [3, 5], "auto_extra_power": [0, 0.03]}


@pytest.mark.slow
def test_what_is_less_in_doubt_varies_alone_and_at_the_corners_of_the_box(setup):
    lines = {axis: [values[0]] for axis, values in SMALL.items()}
    rows = headline_map(setup, PAIRS, lines | {"overlap": [2, 5], "auto_extra_power": [0.0]}, "tied")
    spec = setup.gpu["spec"]
    own = spec["families"]["gemm"]["overlap"], spec["governor"]["auto_extra_power"]
    # a box of two values an axis; each end alone; two exponents and one power at each of eight corners
    assert len(rows) == 8 + 3 + 2 * 8
    ends = Counter((row["overlap"], row["auto_extra_power"]) for row in rows)
    assert ends == {own: 8, (2, own[1]): 1, (5, own[1]): 1, (own[0], 0): 1, (2, 0): 8, (5, 0): 8}
    (default,) = (row for row in rows if row["is_default"])
    alone = next(row for row in rows if (row["overlap"], row["auto_extra_power"]) == (own[0], 0))
    assert all(alone[axis] == default[axis] for axis in AXES)
    assert alone["kernel_energy_change_percent"] > default["kernel_energy_change_percent"] + 0.3, "auto draws less"


@pytest.mark.slow
def test_a_point_with_another_exponent_is_what_a_study_with_it_would_find(setup_of, setup):
    lines = {axis: [values[0]] for axis, values in SMALL.items()}
    rows = headline_map(setup, PAIRS, lines | {"overlap": [5]}, "tied")
    row = next(row for row in rows if row["overlap"] == 5)
    least = by_benches(setup_of(batch=2, headline_map=None, gpu_overrides=exponent(setup, 5)), EVERY)
    assert least - 0.05 < row["kernel_energy_change_percent"] < least + 0.2


def exponent(setup, value):
    return {"families": {name: {"overlap": value} for name in setup.gpu["spec"]["families"] if name not in SERVED}}


def test_the_configuration_sets_the_axes(config, tmp_path):
    def axes(**given):
        asked = config()["headline_map"] | given
        return plan(config(headline_map=asked), str(tmp_path)).headline_axes

    assert (
        axes(points=[3, 3])
        == {
            "tensor_energy_pj": [0.6, 0.8, 1.0],
            "gemm_traffic": [1, 2.5, 4],
            "auto_core_mhz": [1900, resolve("rtx_3080_ti")["clocks"]["auto_core_mhz"], 1960],
        }
        | ENDS
    )
    own = axes(tensor_energy_pj=[0.8, 1.0], gemm_traffic=[1, 2], auto_core_mhz=[1900], points=[2, 2])
    assert own == {"tensor_energy_pj": [0.8, 1.0], "gemm_traffic": [1, 2], "auto_core_mhz": [1900]} | ENDS


def test_without_a_map_there_is_no_band(config, tmp_path):
    study = plan(config(headline_map=None), str(tmp_path))
    assert not study.is_mapped
    made = {*outputs("gpu").of("table", study), *outputs("gpu").of("figure", study)}
    assert "headline" in made and not made & {"headline_band", "headline_map"}


def test_a_gpu_without_a_range_keeps_its_own_clock(config, tmp_path):
    assert plan(config(gpu="a100_sxm"), str(tmp_path)).headline_axes["auto_core_mhz"] == [1410]


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"points": [1, 5]}, "points"),
        ({"gemm_traffic": [0.5, 4]}, "gemm_traffic"),
        ({"tensor_energy_pj": [0, 1]}, "tensor_energy_pj"),
        ({"auto_core_mhz": []}, "auto_core_mhz"),
        ({"colour": 1}, "colour"),
    ],
)
def test_axes_that_are_none_are_refused_in_one_line(config, root, asked, said):
    given = config(headline_map=config()["headline_map"] | asked)
    with pytest.raises(InputError, match=said):
        check(given, root / "workflow/schemas/config.schema.yaml")
