"""Stages made from this project's own kernels: every launch counted once, the Minkowski curve at or below one clock."""

import numpy as np
import pytest

from kernel_dvfs.profile.store import read_profile
from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_pipeline.graph import pipeline_graph
from kernel_dvfs_pipeline.planner import Planner
from kernel_dvfs_pipeline.stages_from_kernels import kernel_level, launches, layers_per_stage, pass_level, read_kernels

STAGES, BLOCKING_W = 4, 160.0


@pytest.fixture(scope="module")
def kernels(kernels_path):
    return read_kernels(kernels_path)


def test_the_stages_launch_together_what_an_iteration_launches(kernels_path, kernels):
    rows = read_profile(kernels_path).table.to_pylist()
    expected = {row["target"]: row["launches_per_iteration"] for row in rows}
    made = launches(kernels, STAGES)
    for parts in (("forward", "backward"), ("forward", "backward_input", "backward_weight")):
        counted = {}
        for (_, instruction), own in made.items():
            for name, count in own if instruction in parts else ():
                counted[name] = counted.get(name, 0) + count
        assert counted == expected


def test_gradients_of_weights_are_the_part_of_a_backward_pass_that_nobody_waits_for(kernels):
    made = launches(kernels, STAGES)
    of_weights = {name for name, _ in made[0, "backward_weight"]}
    assert {"backward_fcproj_dweight_gemm", "backward_qkv_bias", "embedding_backward_wte"} <= of_weights
    assert not any("dinp" in name or "layernorm" in name or "attention" in name for name in of_weights)
    assert {name for name, _ in made[3, "backward_weight"]} - of_weights == {"loss_dwte_gemm"}


def test_embedding_belongs_to_the_first_stage_and_the_loss_to_the_last(kernels):
    made = launches(kernels, STAGES)
    names = {key: [name for name, _ in own] for key, own in made.items()}
    assert names[0, "forward"][0].startswith("embedding") and names[0, "backward"][-1].startswith("embedding")
    assert names[3, "forward"][-1] == "loss_logits_gemm" and names[3, "backward"][0].startswith("loss")
    for stage in (1, 2):
        assert all(name.startswith("forward") for name in names[stage, "forward"])
    assert names[0, "recompute"] == [name for name in names[0, "forward"] if name.startswith("forward")]


def test_a_pass_is_the_sum_of_its_kernels_with_the_energy_of_all_ranks(kernels_path, kernels):
    made = pass_level(kernels, STAGES)
    own = made.of(1, "forward")
    row = int(np.flatnonzero(own.core_mhz == 1410)[0])
    time_s = energy_j = 0.0
    for each in read_profile(kernels_path).table.to_pylist():
        count = dict(launches(kernels, STAGES)[1, "forward"]).get(each["target"], 0)
        if each["core_mhz"] == 1410:
            time_s += count * each["time_s"]
            energy_j += 2 * count * each["energy_j"]
    assert own.time_s[row] == pytest.approx(time_s) and own.energy_j[row] == pytest.approx(energy_j)


def test_the_kernel_level_curve_lies_at_or_below_the_pass_level(kernels):
    passes, finer = pass_level(kernels, STAGES), kernel_level(kernels, STAGES, BLOCKING_W)
    for key in launches(kernels, STAGES):
        own, other = passes.of(*key), finer.of(*key)
        cost = own.energy_j - BLOCKING_W * own.time_s
        best = np.interp(own.time_s, other.time_s, other.energy_j - BLOCKING_W * other.time_s)
        within = own.time_s >= other.time_s[0]
        # corners at nearly the same price are one
        assert (best[within] <= cost[within] + 2e-3 * abs(cost).max()).all()
        assert (best[within] < cost[within] - 1e-6).any()


def test_an_options_clocks_give_its_time_and_energy(kernels):
    finer = kernel_level(kernels, STAGES, BLOCKING_W)
    row_of = {str(tuple(None if mhz != mhz else mhz for mhz in pair)): at for at, pair in enumerate(kernels.pairs)}
    for key in ((0, "forward"), (3, "backward")):
        own = finer.of(*key)
        for option in range(0, len(own.time_s), 7):
            clocks = finer.kernel_clocks[key].at(option)
            time_s = energy_j = 0.0
            for name, count in launches(kernels, STAGES)[key]:
                at = row_of[str(clocks[name])]
                time_s += count * kernels.time_s[name][at]
                energy_j += count * kernels.energy_j[name][at]
            assert own.time_s[option] == pytest.approx(time_s) and own.energy_j[option] == pytest.approx(energy_j)


def test_plans_at_kernel_level_name_the_clocks_of_every_kernel(kernels):
    planner = Planner(kernel_level(kernels, STAGES, BLOCKING_W), pipeline_graph("1f1b", STAGES, 4), BLOCKING_W)
    plan = planner.plan_ticks(int(1.1 * planner.frontier.fastest_ticks))
    document = plan.document()
    used = {
        part["kernel_setting"] for rank in document["ranks"] for each in rank["instructions"] for part in each["clocks"]
    }
    assert used == set(document["kernel_settings"])
    some = document["kernel_settings"][sorted(used)[0]]
    assert all(set(clocks) == {"core_mhz", "mem_mhz"} for clocks in some.values())


def test_choosing_per_kernel_never_costs_more_than_per_pass(kernels):
    graph = pipeline_graph("1f1b", STAGES, 4)
    passes = Planner(pass_level(kernels, STAGES), graph, BLOCKING_W)
    finer = Planner(kernel_level(kernels, STAGES, BLOCKING_W), graph, BLOCKING_W)
    times = np.linspace(passes.frontier.fastest_ticks, passes.frontier.slowest_ticks, 30)
    coarse, fine = passes.frontier.cost_at(times), finer.frontier.cost_at(times)
    assert (fine <= coarse + 2e-3 * abs(coarse).max()).all() and fine[0] < coarse[0]


def test_recomputation_can_be_scheduled_from_kernels(kernels):
    graph = pipeline_graph("1f1b", STAGES, 4, early_recompute=True)
    planner = Planner(pass_level(kernels, STAGES), graph, BLOCKING_W)
    assert planner.plan(planner.frontier.time_s[-1]).time_ticks == planner.frontier.fastest_ticks


@pytest.mark.parametrize(
    ("layers", "stages", "first_s", "last_s", "expected"),
    [
        (12, 4, 0.0, 0.0, [3, 3, 3, 3]),
        (12, 4, 0.0, 2.0, [4, 3, 3, 2]),
        (13, 4, 0.0, 0.0, [3, 3, 3, 4]),
        (4, 4, 9, 9, [1] * 4),
    ],
)
def test_layers_are_dealt_so_that_the_slowest_stage_is_fast(layers, stages, first_s, last_s, expected):
    made = layers_per_stage(layers, stages, 1.0, first_s, last_s)
    assert sum(made) == layers
    load = [count + first_s * (at == 0) + last_s * (at == stages - 1) for at, count in enumerate(made)]
    own = [count + first_s * (at == 0) + last_s * (at == stages - 1) for at, count in enumerate(expected)]
    assert max(load) == max(own)


def test_more_stages_than_layers_are_refused():
    with pytest.raises(InputError, match="13 stages for 12 layers"):
        layers_per_stage(12, 13, 1.0)


def test_a_table_of_any_kernels_is_refused(tmp_path):
    from kernel_dvfs.profile.table import import_to_profile

    (tmp_path / "t.csv").write_text(
        "gpu,kernel,core_mhz,mem_mhz,time_ms,energy_mj,is_auto\nG,k,,,1,1,1\nG,k,1000,5000,1,1,0\n"
    )
    import_to_profile(str(tmp_path / "t.csv"), str(tmp_path / "t.parquet"))
    with pytest.raises(InputError, match="not of a model's"):
        read_kernels(tmp_path / "t.parquet")
