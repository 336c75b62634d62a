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
    assert table in (root / "docs/simulated-gpu.md").read_text(encoding="utf-8")


def test_the_documented_summary_is_that_of_the_result_files(benchmark, root):
    module = benchmark("gpu_prediction")
    assert module.comparison() in (root / "docs/simulated-gpu.md").read_text(encoding="utf-8")


def test_the_probes_of_the_file_are_those_that_the_benchmark_runs(root):
    from kernel_dvfs.calibration.probes import PROBES

    with open(root / "benchmarks/results/energy_probes_h200.csv") as file:
        lines = list(csv.DictReader(file))
    assert [line["probe"] for line in lines] == [probe.name for probe in PROBES]
    assert not any(line["error"] for line in lines)
