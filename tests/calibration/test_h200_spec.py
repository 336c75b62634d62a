"""The simulated H200 says what its energy probes give, and the documentation what the result files give."""

import csv
import sys

import pytest

from kernel_dvfs.gpu import spec as specs


@pytest.fixture
def benchmark(root, monkeypatch):
    """A script of benchmarks/ as a module."""

    def load(name):
        monkeypatch.syspath_prepend(root / "benchmarks")
        monkeypatch.delitem(sys.modules, name, raising=False)
        return __import__(name)

    return load


def leaves(tree, path=()):
    if isinstance(tree, dict):
        for key, value in tree.items():
            yield from leaves(value, (*path, key))
    else:
        yield path, tree


def test_the_spec_is_what_the_probes_give_to_rounding(benchmark, root):
    given = benchmark("calibrate_h200").figures()
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


def test_a_figure_that_the_probes_give_is_said_to_be_measured_and_names_them(benchmark, root):
    specs_folder = root / "workflow/kernel_dvfs/gpu/specs"
    tree = specs._read("h200_sxm")
    assert "energy_probes_h200.csv" in (specs_folder / "h200_sxm.yaml").read_text()
    for path, _ in leaves(benchmark("calibrate_h200").figures()):
        node = tree
        for key in path:
            if "value" in node:  # one figure by memory clock
                break
            node = node[key]
        assert node["source"] == "measured" and "probes" in node["note"], path


def test_the_report_of_the_calibration_is_the_one_committed(benchmark):
    module = benchmark("calibrate_h200")
    committed = (module.RESULTS / module.REPORT).read_text().splitlines()
    made = module.report().splitlines()
    # figures may differ in their last digit from machine to machine
    assert [line.split()[:1] for line in committed] == [line.split()[:1] for line in made]
    assert committed[committed.index("spec") : committed.index("spec") + 20] == made[made.index("spec") :][:20]


def test_predictions_are_those_of_the_spec(benchmark):
    module = benchmark("gpu_prediction")
    for made, committed in zip(module.predictions(), module.read(module.RESULTS / "prediction_h200.csv"), strict=True):
        assert made["kernel"] == committed["kernel"]
        for name in module.QUANTITIES:
            assert float(made[f"predicted_{name}"]) == pytest.approx(float(committed[f"predicted_{name}"]), rel=1e-4)
            assert made[f"measured_{name}"] == committed[f"measured_{name}"]


def test_before_and_after_are_compared_with_the_same_measurements(benchmark):
    module = benchmark("gpu_prediction")
    before, after = (module.read(module.RESULTS / f"prediction_h200{name}.csv") for name in ("_before", ""))
    for name in ("kernel", *(f"measured_{name}" for name in module.QUANTITIES)):
        assert [line[name] for line in before] == [line[name] for line in after]


@pytest.mark.parametrize("which", ["gpu_prediction", "calibrate_h200"])
def test_the_documented_tables_are_those_of_the_result_files(benchmark, root, which):
    table = benchmark(which).table()
    assert table.count("\n") >= 20
    assert table in (root / "docs/measured-gpus.md").read_text(encoding="utf-8")


def test_the_figure_of_predictions_shows_every_kernels_error_by_family(benchmark, cut_off):
    module = benchmark("gpu_prediction")
    lines = module.read(module.RESULTS / "prediction_h200.csv")
    frame = module.off_by_family(lines)
    for name, values in module.errors(lines)._asdict().items():
        shown = frame[frame.quantity == module.PANELS[name]].error_percent
        assert sorted(shown) == pytest.approx(sorted(values))
    # the family that is furthest off on top
    worst = frame.error_percent.abs().groupby(frame.family, observed=True).max()
    assert worst.is_monotonic_increasing and frame.family.nunique() == len({line["family"] for line in lines})
    plot = module.draw(lines)
    assert "%" in plot.labels.x and "46 kernels" in plot.labels.subtitle
    assert cut_off(plot) == []


def test_the_documented_summary_is_that_of_the_result_files(benchmark, root):
    module = benchmark("gpu_prediction")
    assert module.comparison() in (root / "docs/measured-gpus.md").read_text(encoding="utf-8")


def test_the_probes_of_the_file_are_those_that_the_benchmark_runs(root):
    from kernel_dvfs.calibration.probes import PROBES

    with open(root / "benchmarks/results/energy_probes_h200.csv") as file:
        lines = list(csv.DictReader(file))
    assert [line["probe"] for line in lines] == [probe.name for probe in PROBES]
    assert not any(line["error"] for line in lines)


def test_instructions_per_byte_are_those_counted_in_the_code(benchmark):
    module = benchmark("count_instructions")
    with open(module.RESULT) as file:
        lines = list(csv.DictReader(file))
    assert [line["kernel"] for line in lines] == [kernel for _, _, kernel, _, _ in module.KERNELS]
    spec = specs.resolve("h200_sxm")["families"]
    for family, counted in module.families(lines).items():
        assert spec[family]["instruction_per_byte"] == counted, family
    counted_in = {family for family, figures in spec.items() if "instruction_per_byte" in figures}
    assert counted_in == set(module.families(lines))


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


def test_only_instructions_of_threads_beside_arithmetic_are_counted(benchmark):
    module = benchmark("count_instructions")
    body = module.bodies(DISASSEMBLY)["_Z6kernelv"]
    assert module.count(body) == 4, "S2R, LDG, IMAD, STG"
    assert module.count(module.main_loop(body)) == 2, "LDG, IMAD"
    assert [module.opcode(line) for line in module.main_loop(body)[1:]] == ["LDG", "IMAD", "FFMA", "MUFU", "BRA"]
