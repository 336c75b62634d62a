"""A captured step answers what a model's rows answer: which kernels, how often, in which order, in which passes."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from kernel_dvfs.gpu import spec as gpu_spec
from kernel_dvfs.gpu.forecast import forecast_of_step, is_power_modelled
from kernel_dvfs.workload.step import read
from kernel_dvfs.workload.step_workload import of_step
from kernel_dvfs.workload.workload import launch_order, of_model, pass_begins, study_of
from kernel_dvfs_clocks.errors import InputError

STEPS = Path(__file__).parent / "steps"
RECORDS = sorted(STEPS.glob("*.json"))


@pytest.fixture
def step():
    return read(STEPS / "hand_made.json")


@pytest.fixture(scope="module")
def h200():
    return gpu_spec.resolve("h200_sxm")


def counts(workload):
    return {name: about["launches_per_iteration"] for name, about in workload.kernels.items()}


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.stem)
def test_launches_are_those_of_the_step_that_can_be_measured_in_its_order(path):
    step = read(path)
    workload = of_step(step, "step-x", str(path))
    names = launch_order(workload.about, counts(workload))
    measured = {target.id for target in step.measured}
    ids = [step.targets[place].id for place in step.order]
    assert names == [name for name in ids if name in measured]
    assert {name: names.count(name) for name in measured} == counts(workload)


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.stem)
def test_sections_begin_where_they_do_and_hold_all_launches(path):
    step = read(path)
    workload = of_step(step, "step-x", str(path))
    names = launch_order(workload.about, counts(workload))
    section = {target.id: target.section for target in step.targets}
    begins = [*pass_begins(workload.about | {"kernels": workload.kernels}, names), (None, len(names))]
    assert begins[0][1] == 0
    for (name, first), (_, end) in pairwise(begins):
        assert end > first and {section[own] for own in names[first:end]} == {name}
    for name in workload.about["passes"]:
        assert sum(count for _, count in workload.passes[name]) == sum(section[own] == name for own in names)


def test_a_setup_names_the_record_its_checksum_and_its_code(step):
    workload = of_step(step, "step-x", "some/step.json", "train.py:make")
    assert workload.about["step"] == {"file": "some/step.json", "checksum": step.checksum, "code": "train.py:make"}
    assert workload.about["left_at_auto"] == [["embedding_sort", 1, "hung when repeated alone"]]
    assert "embedding_sort" not in workload.kernels


def test_the_whole_step_is_measured_but_no_part_of_a_choice(step):
    about = of_step(step, "step-x", "step.json").about
    assert study_of(about, "pass", "step") == "step" and study_of(about, "pass", "forward") == "pass"
    assert study_of(about, "kernel", "gelu_forward") == "kernel"


def test_where_a_section_cannot_be_repeated_no_clocks_are_chosen_for_sections(step):
    workload = of_step(replace(step, not_repeated={"backward": "it overwrites what it reads"}), "step-x", "step.json")
    assert set(workload.passes) == {"forward", "optimiser", "step"} and not workload.has_passes
    assert workload.about["not_repeated"] == {"backward": "it overwrites what it reads"}
    assert study_of(workload.about, "pass", "forward") == "step"


def test_rows_of_a_model_answer_as_before():
    options = {"model": "gpt3-125m", "batch": 2, "tensor_parallel": 1, "bias_split": "table1"}
    options |= {"row_parallel_bias": "sequence", "pass_boundary": "llmc", "token_ids_zipf": None}
    workload = of_model(options, 132, 2048)
    names = launch_order(workload.about, counts(workload))
    assert len(names) == sum(counts(workload).values()) and names[0] == "embedding_wte_wpe"
    begins = pass_begins(workload.about | {"kernels": workload.kernels}, names)
    assert [name for name, _ in begins] == ["forward", "backward"] and workload.has_passes


def test_a_forecast_holds_each_kernel_to_what_is_known_of_it(step, h200):
    workload = forecast_of_step(step, "step-x", h200)
    by_name = {target.id: target for target in step.targets}
    for name, about in workload.kernels.items():
        _, tensor_flop, _, _, byte, share, time_factor, energy_factor = about["work"]
        assert (tensor_flop, byte) == (by_name[name].flop or 0, by_name[name].byte or 0)
        assert time_factor > 0 and share == 1
        # no study has measured a power: the model's own, or what the cap leaves
        assert energy_factor == pytest.approx(1) or (tensor_flop and energy_factor < 1)
    first = step.targets[0]
    measured = replace(first, auto_time_us=130.0, auto_energy_mj=85.0, auto_core_mhz=1700.0)
    held = forecast_of_step(replace(step, targets=(measured, *step.targets[1:])), "step-x", h200)
    assert held.kernels[first.id]["work"][7] != 1


@pytest.mark.parametrize(
    ("function", "operation", "family"),
    [
        ("flash_fwd_kernel", "aten::_flash_attention_forward", "flash_attention"),
        ("flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel", "", "flash_attention_backward"),
        ("cudnn_generated_fort_native_sdpa_sm90_flash_bprop_wgmma", "", "flash_attention_backward"),
        (
            "fmha_cutlassB_bf16_aligned_64x64_k64_sm80",
            "aten::_efficient_attention_backward",
            "flash_attention_backward",
        ),
        ("nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT", "MmBackward0", "gemm"),
    ],
)
def test_attention_of_the_backward_pass_has_its_own_efficiency(step, h200, function, operation, family):
    attention = replace(step.targets[0], function=function, operation=operation)
    captured = replace(step, targets=(attention, *step.targets[1:]))
    for workload in (of_step(captured, "x", "step.json"), forecast_of_step(captured, "x", h200)):
        assert workload.kernels[attention.id]["work"][0] == family


def test_a_forecast_says_of_which_kernels_nobody_has_measured_the_power(step, h200):
    known = [replace(each, auto_time_us=130.0, auto_energy_mj=85.0, auto_core_mhz=1700.0) for each in step.targets]
    bare, partly = forecast_of_step(step, "x", h200), replace(step, targets=(known[0], *step.targets[1:]))
    least_w, most_w = bare.about["modelled_power_w"]
    assert 0 < least_w < most_w == h200["governor"]["cap_w"]
    assert all(about["is_power_modelled"] for about in bare.kernels.values())
    partly_held = forecast_of_step(partly, "x", h200)
    assert "is_power_modelled" not in partly_held.kernels[step.targets[0].id] and is_power_modelled(partly)
    wholly = replace(step, targets=tuple(known))
    assert "modelled_power_w" not in forecast_of_step(wholly, "x", h200).about and not is_power_modelled(wholly)


def test_hot_kernels_are_passes_at_their_clock_of_the_step_where_that_is_asked_for(step):
    clocks = {"nvjet_linear_forward": 1500.0, "nvjet_linear_backward": 1400.0, "gelu_forward": 1790.0}
    known = [replace(each, core_mhz=clocks.get(each.id, 1800.0)) for each in step.targets]
    held = replace(step, targets=tuple(known))
    plain, checked = of_step(held, "x", "step.json"), of_step(held, "x", "step.json", paced=None)
    more = {name: own for name, own in checked.passes.items() if name not in plain.passes}
    # the longest first; gelu runs about as fast as the fastest of the step
    assert more == {f"paced_{name}": [(name, 1)] for name in ("nvjet_linear_backward", "nvjet_linear_forward")}
    # what is too short does not matter, what cannot be repeated alone is not
    for change in ({"time_us": 1e-6}, {"repeatable": "no", "reason": "it hung"}):
        less = [replace(each, **change) if each.id == "nvjet_linear_forward" else each for each in known]
        assert [each.id for each in replace(step, targets=tuple(less)).paced] == ["nvjet_linear_backward"]
    # where all of a step has one clock, products are hot all the same; additions, whose FLOP are counted, are not
    even = [replace(each, core_mhz=1600.0) for each in step.targets]
    adds = [replace(each, flop=0.5 * (each.byte or 0.0)) if each.id == "gelu_forward" else each for each in even]
    for targets in (even, adds):
        found = {each.id for each in replace(step, targets=tuple(targets)).paced}
        assert found == {"nvjet_linear_forward", "nvjet_linear_backward"}
    unread = [replace(each, core_mhz=None) for each in step.targets]
    assert replace(step, targets=tuple(unread)).paced == []
    # measured as the whole step is, and no part of a choice
    assert {study_of(checked.about, "pass", name) for name in more} == {"step"}
    assert checked.about == plain.about and checked.has_passes == plain.has_passes


def test_a_kernel_of_unknown_work_is_bound_by_the_core(step, h200):
    unknown = replace(step.targets[1], flop=None, byte=None)
    workload = forecast_of_step(replace(step, targets=(step.targets[0], unknown, *step.targets[2:])), "step-x", h200)
    work = workload.kernels[unknown.id]["work"]
    assert work[2] > 0 and work[1] == work[4] == 0


def test_a_kernel_of_which_nothing_is_known_is_refused(step, h200):
    nothing = replace(step.targets[1], flop=None, byte=None, time_us=None, alone_us=None)
    with pytest.raises(InputError, match="neither time nor work"):
        forecast_of_step(replace(step, targets=(step.targets[0], nothing, *step.targets[2:])), "step-x", h200)


def test_of_a_few_kernels_the_costliest_are_measured_and_the_others_keep_their_time(step):
    whole = of_step(step, "mine", "step.json")
    ms = {each.id: 1e-3 * each.launches * (each.time_us or each.alone_us or 0.0) for each in step.measured}
    count = len(ms) - 1
    first = of_step(step, "mine", "step.json", most=count)
    longest = {section: max((each for each in step.measured if each.section == section), key=lambda each: ms[each.id])
               for section in step.sections}  # fmt: skip
    costliest = [each.id for each in longest.values()]
    costliest += sorted(set(ms) - set(costliest), key=lambda name: -ms[name])[: count - len(costliest)]
    assert set(first.kernels) == set(costliest) and "tail" not in whole.about
    assert {row[0]: row[3] for row in first.about["tail"]} == {
        name: value for name, value in ms.items() if name not in costliest
    }
    assert set(first.passes) == set(whole.passes), "sections are measured as they are"
