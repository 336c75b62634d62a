"""`kernel-dvfs study selection-bias` writes every study and a row for each procedure, and refuses what has no truth."""

import json

import pandas as pd
import pytest

from kernel_dvfs.cli.main import main
from kernel_dvfs.measurement import setup
from kernel_dvfs.plan.study import plan

PAIRS = "auto-auto,1470-5001,1470-9251,1890-9251,1050-9251"


@pytest.fixture(scope="module")
def path(config, tmp_path_factory):
    quick = {"data_parallel_batches": [], "tensor_parallel_degrees": [], "tensor_energy_pj": []}
    return plan(config(**quick), str(tmp_path_factory.mktemp("setup"))).setup.write()


def test_every_study_is_kept_with_its_seed_and_summed_up_by_procedure(path, tmp_path):
    assert main(["study", "selection-bias", "--gpu", path, "--pairs", PAIRS, "--seeds", "3", "-o", str(tmp_path)]) == 0
    studies = pd.read_csv(tmp_path / "selection_bias_studies.csv")
    assert len(studies) == 2 * 4 * 3 and set(studies.seed) == {0, 1, 2}
    table = pd.read_csv(tmp_path / "tables/selection_bias.csv")
    assert len(table) == 8 and set(table.studies) == {3}
    row = table[(table.procedure == "one sweep") & (table.noise == "as the GPU's spec")].iloc[0]
    own = studies[(studies.procedure == "one sweep") & (studies.noise == "as the GPU's spec")]
    optimism_pp = (own.energy_true_percent - own.energy_claimed_percent).mean()
    assert row.energy_optimism_pp == pytest.approx(optimism_pp, abs=1e-3)
    assert "simulated" in (tmp_path / "tables/selection_bias.md").read_text()


def test_a_real_gpu_has_no_known_truth(path, tmp_path, capsys):
    known = setup.read(path)
    gpu = json.loads(json.dumps(known.gpu)) | {"kind": "nvml"}
    real = setup.store(str(tmp_path), gpu, known.workload, known.targets, known.measurement)
    assert main(["study", "selection-bias", "--gpu", real, "--pairs", PAIRS, "-o", str(tmp_path / "out")]) == 2
    assert "has no known truth" in capsys.readouterr().err and not (tmp_path / "out").exists()
