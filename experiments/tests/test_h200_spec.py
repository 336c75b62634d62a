"""The simulated H200 says what its energy probes give, the H100 what an H200 has, and the documentation what the result
files give."""

import csv
import json
import re

import pytest

from experiments.benchmarks import gpu_prediction
from experiments.calibration import calibrate_h200, count_instructions, products
from experiments.calibration.probes import PROBES
from kernel_dvfs.gpu import spec as specs
from kernel_dvfs.measurement.real import calibration


def leaves(tree, path=()):
    if isinstance(tree, dict):
        for key, value in tree.items():
            yield from leaves(value, (*path, key))
    else:
        yield path, tree


def test_the_spec_is_what_the_probes_give_to_rounding(root):
    given = calibrate_h200.figures()
    families = given.pop("families")
    shared = families.pop("default")
    spec = specs.resolve("h200_sxm")
    found = dict(leaves(given)) | {
        ("families", family, name): value
        for family in spec["families"]
        for name, value in (shared | families.get(family, {})).items()
        if ("families", family, name) not in products.FIGURES.values()
    }
    assert len(found) > 40
    for path, value in found.items():
        said = spec
        for key in path:
            said = said[key]
        assert said == value, path


def test_a_figure_that_the_probes_give_is_said_to_be_measured_and_names_them(root):
    specs_folder = root / "workflow/kernel_dvfs/gpu/specs"
    tree = specs._read("h200_sxm")
    assert "energy_probes_h200.csv" in (specs_folder / "h200_sxm.yaml").read_text()
    for path, _ in leaves(calibrate_h200.figures()):
        node = tree
        for key in path:
            if "value" in node:  # one figure by memory clock
                break
            node = node[key]
        assert node["source"] == "measured" and "probes" in node["note"], path


def test_the_report_of_the_calibration_is_the_one_committed():
    committed = (calibrate_h200.RESULTS / calibrate_h200.REPORT).read_text().splitlines()
    made = calibrate_h200.report().splitlines()
    # figures may differ in their last digit from machine to machine
    assert [line.split()[:1] for line in committed] == [line.split()[:1] for line in made]
    assert committed[committed.index("spec") : committed.index("spec") + 20] == made[made.index("spec") :][:20]


BOARDS = pytest.mark.parametrize("board", gpu_prediction.GOALS)


@BOARDS
def test_predictions_are_those_of_the_spec_and_meet_their_goals(board):
    predicted = gpu_prediction.predictions(board)
    for made, committed in zip(predicted, gpu_prediction.read(gpu_prediction.result(board)), strict=True):
        assert made["kernel"] == committed["kernel"]
        for name in gpu_prediction.QUANTITIES:
            assert float(made[f"predicted_{name}"]) == pytest.approx(float(committed[f"predicted_{name}"]), rel=1e-4)
            assert made[f"measured_{name}"] == committed[f"measured_{name}"]
    off = gpu_prediction.errors(predicted)._asdict()
    assert all(gpu_prediction.mape(values) <= gpu_prediction.GOALS[board][name] for name, values in off.items())


@BOARDS
def test_before_and_after_are_compared_with_the_same_measurements(board):
    before, after = (gpu_prediction.read(gpu_prediction.result(board, which)) for which in (True, False))
    for name in ("kernel", *(f"measured_{name}" for name in gpu_prediction.QUANTITIES)):
        assert [line[name] for line in before] == [line[name] for line in after]


def test_the_h100_is_held_to_what_was_measured_on_one(measured):
    """Nothing of the H100's spec was fitted to these rows: they judge it."""
    with open(measured("h100/gpt3_xl_auto_h100.csv"), encoding="utf-8") as file:
        rows = {row["id"]: row for row in csv.DictReader(file) if row["study"] == "kernel"}
    lines = gpu_prediction.read(gpu_prediction.RESULTS / "auto_only_h100.csv")
    assert {line["kernel"] for line in lines} == set(rows)
    for line in lines:
        for name, source in (("time_us", "time_us"), ("energy_mj", "energy_mj"), ("sm_mhz", "core_mhz")):
            assert float(line[name]) == pytest.approx(float(rows[line["kernel"]][source]), rel=1e-3), line["kernel"]


def test_two_probes_of_memory_halve_the_error_of_energy_on_another_board(root):
    """`kernel-dvfs calibrate` on one H100, and the kernels that were measured on another."""
    content = json.loads((gpu_prediction.RESULTS / "calibrate_h100.json").read_text())
    probes = {kind: calibration.CalibrationProbe(**probe) for kind, probe in content["probes"].items()}
    found = calibration.overrides(specs.resolve("h100_sxm"), probes)
    plain, own = (gpu_prediction.errors(gpu_prediction.predictions("h100", each)) for each in ({}, found))
    assert gpu_prediction.mape(own.energy) < 0.55 * gpu_prediction.mape(plain.energy)
    assert gpu_prediction.mape(own.time) < gpu_prediction.mape(plain.time)
    said = ", ".join(f"{name} {gpu_prediction.mape(off):.1f} %" for name, off in own._asdict().items())
    page = (root / "docs/gpu-model.md").read_text(encoding="utf-8")
    assert said in page and f"{found['energy_pj']['dram_byte']:g} pJ" in page


def test_the_figure_of_predictions_shows_every_kernels_error_by_family(cut_off):
    lines = gpu_prediction.read(gpu_prediction.result("h200"))
    frame = gpu_prediction.off_by_family(lines)
    for name, values in gpu_prediction.errors(lines)._asdict().items():
        shown = frame[frame.quantity == gpu_prediction.PANELS[name]].error_percent
        assert sorted(shown) == pytest.approx(sorted(values))
    # the family that is furthest off on top
    worst = frame.error_percent.abs().groupby(frame.family, observed=True).max()
    assert worst.is_monotonic_increasing and frame.family.nunique() == len({line["family"] for line in lines})
    plot = gpu_prediction.draw(lines)
    assert "%" in plot.labels.x and "46 kernels" in plot.labels.subtitle
    assert cut_off(plot) == []


def test_the_documented_errors_by_family_are_those_of_the_result_files(root):
    assert gpu_prediction.comparison() in (root / "docs/gpu-model.md").read_text(encoding="utf-8")


@BOARDS
def test_the_documented_summary_is_that_of_the_result_files(root, board):
    page = (root / "docs/gpu-model.md").read_text(encoding="utf-8")
    (row,) = re.findall(r"^\| \*\*all\*\* \| 46 \| (.+) \|$", page, re.MULTILINE)
    told = dict(zip(("h200", "h100"), zip(*[iter(row.split(" | "))] * 3, strict=True), strict=True))
    found = gpu_prediction.errors(gpu_prediction.read(gpu_prediction.result(board)))
    assert told[board] == tuple(f"{gpu_prediction.mape(values):.1f}" for values in found)


def test_the_probes_of_the_file_are_those_that_the_benchmark_runs(root):
    with open(root / "experiments/results/energy_probes_h200.csv") as file:
        lines = list(csv.DictReader(file))
    assert [line["probe"] for line in lines] == [probe.name for probe in PROBES]
    assert not any(line["error"] for line in lines)


def test_instructions_per_byte_are_those_counted_in_the_code():
    with open(count_instructions.RESULT) as file:
        lines = list(csv.DictReader(file))
    assert [line["kernel"] for line in lines] == [kernel for _, _, kernel, _, _ in count_instructions.KERNELS]
    spec = specs.resolve("h200_sxm")["families"]
    for family, counted in count_instructions.families(lines).items():
        assert spec[family]["instruction_per_byte"] == counted, family
    counted_in = {family for family, figures in spec.items() if "instruction_per_byte" in figures}
    assert counted_in == set(count_instructions.families(lines))


DISASSEMBLY = """
.text._Z5otherv:
        /*0000*/                   FADD R1, R2, R3 ;
.text._Z6kernelv:
        /*0000*/                   S2R R9, SR_CTAID.Y ;
        /*0010*/                   ULDC UR4, c[0x0][0x8] ;
.L_x_1:
        /*0020*/              @!P0 LDG.E.EF.128 R4, desc[UR4][R6.64] ;
        /*0030*/                   IMAD.U32 R5, R4, 0x10000, RZ ;
        /*0040*/              @P1  FFMA.FTZ R5, R5, R5, R5 ;
        /*0050*/                   MUFU.EX2 R5, R5 ;
        /*0060*/               @P2 BRA `(.L_x_1) ;
        /*0070*/                   STG.E [R2], R5 ;
        /*0080*/                   EXIT ;
.L_x_2:
        /*0090*/                   BRA `(.L_x_2);
        /*00a0*/                   NOP;
"""


def test_only_instructions_of_threads_beside_arithmetic_are_counted():
    body = count_instructions.bodies(DISASSEMBLY)["_Z6kernelv"]
    assert count_instructions.count(body) == 4, "S2R, LDG, IMAD, STG"
    assert count_instructions.count(count_instructions.main_loop(body)) == 2, "LDG, IMAD"
    assert [count_instructions.opcode(line) for line in count_instructions.main_loop(body)[1:]] == [
        "LDG",
        "IMAD",
        "FFMA",
        "MUFU",
        "BRA",
    ]
