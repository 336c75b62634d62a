"""The simulated H200 says what its energy probes give, and the documentation what the result files give."""

import csv

import pytest

from experiments.benchmarks import gpu_prediction
from experiments.calibration import calibrate_h200, count_instructions
from experiments.calibration.probes import PROBES
from kernel_dvfs.gpu import spec as specs


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


def test_predictions_are_those_of_the_spec():
    for made, committed in zip(
        gpu_prediction.predictions(), gpu_prediction.read(gpu_prediction.RESULTS / "prediction_h200.csv"), strict=True
    ):
        assert made["kernel"] == committed["kernel"]
        for name in gpu_prediction.QUANTITIES:
            assert float(made[f"predicted_{name}"]) == pytest.approx(float(committed[f"predicted_{name}"]), rel=1e-4)
            assert made[f"measured_{name}"] == committed[f"measured_{name}"]


def test_before_and_after_are_compared_with_the_same_measurements():
    before, after = (
        gpu_prediction.read(gpu_prediction.RESULTS / f"prediction_h200{name}.csv") for name in ("_before", "")
    )
    for name in ("kernel", *(f"measured_{name}" for name in gpu_prediction.QUANTITIES)):
        assert [line[name] for line in before] == [line[name] for line in after]


@pytest.mark.parametrize("script", [gpu_prediction, calibrate_h200])
def test_the_documented_tables_are_those_of_the_result_files(root, script):
    table = script.table()
    assert table.count("\n") >= 20
    assert table in (root / "docs/measured-gpus.md").read_text(encoding="utf-8")


def test_the_figure_of_predictions_shows_every_kernels_error_by_family(cut_off):
    lines = gpu_prediction.read(gpu_prediction.RESULTS / "prediction_h200.csv")
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


def test_the_documented_summary_is_that_of_the_result_files(root):
    assert gpu_prediction.comparison() in (root / "docs/measured-gpus.md").read_text(encoding="utf-8")


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
