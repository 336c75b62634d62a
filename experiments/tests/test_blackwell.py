"""Energies of a FLOP are found again from tables that a simulated B200 fills."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from experiments.calibration import blackwell
from kernel_dvfs.gpu import spec as specs
from kernel_dvfs_clocks.errors import InputError

TRUE = {"bf16": 0.47, "fp8": 0.77, "nvfp4": 0.62}  # pJ, and relative to it
SIZES = [(4096, 4096, 2048), (8192, 4096, 8192), (4096, 16384, 8192), (16384, 8192, 8192), (2048, 8192, 8192)]


@pytest.fixture
def folder(tmp_path):
    figures: dict = {}
    for precision, value in TRUE.items():
        figures = specs.merge(figures, blackwell.figure(precision, value))
    m, n, k = (np.array(each, float) for each in zip(*SIZES, strict=True))
    for board, backend, version, fitted in blackwell.TABLES:
        rows = []
        for precision, name in blackwell.PRECISIONS.items():
            # a table that is left out says something else
            spec = blackwell.in_precision(board, precision, figures if fitted else {})
            time_s, power_w = blackwell.simulate(spec, blackwell.Large(m, n, k, m, m))
            for own in zip(m, n, k, 1e3 * time_s, power_w, strict=True):
                rows.append(dict(zip(("m", "n", "k", "latency", "power"), own, strict=True)) | {"gemm_dtype": name})
        path = tmp_path / board / "gemm" / backend / version
        path.mkdir(parents=True)
        known = pa.Table.from_pylist(rows)
        pq.write_table(known if "vllm" in backend else known.drop_columns("power"), path / "gemm_perf.parquet")
    return tmp_path


def test_the_energies_that_filled_the_tables_are_found_again(folder):
    found = blackwell.fit(folder)
    assert found["energy_pj"]["tensor_bf16_flop"] == pytest.approx(TRUE["bf16"], rel=0.01)
    for precision in ("fp8", "nvfp4"):
        assert found["precisions"][precision]["energy"] == pytest.approx(TRUE[precision], rel=0.02)


def test_only_large_products_count_and_power_of_those_on_memory_that_was_written(folder):
    large = blackwell.read(folder, "b200_sxm", "vllm", "0.22.0", "bf16")
    assert len(large.m) == 4 and min(large.m) == 4096
    assert [bool(np.isfinite(each)) for each in large.power_w] == [True, True, False, True], (
        "its weights are fresh memory"
    )
    without = blackwell.medians(large, 2 * large.time_s, large.power_w)
    rate, watt, pj = blackwell.medians(large, large.time_s, large.power_w)
    assert (without[0], without[1], without[2]) == pytest.approx((rate / 2, watt, 2 * pj))


def test_the_report_says_which_tables_were_left_out(folder):
    lines = blackwell.report(folder).splitlines()
    told = {tuple(line.split()[:5]) for line in lines if line.startswith(("b200", "gb200"))}
    assert ("b200_sxm", "vllm", "0.22.0", "bf16", "fitted") in told
    assert ("b200_sxm", "trtllm", "1.3.0rc20", "fp8", "left") in told
    assert len([line for line in lines if "left out" in line]) == 3 * len(blackwell.TABLES) - 3


def test_a_folder_without_the_tables_is_refused_in_one_line(tmp_path):
    with pytest.raises(InputError, match=r"gemm_perf.parquet: .*name the folder of the tables of aiconfigurator"):
        blackwell.report(tmp_path)


def test_the_spec_is_what_the_kept_result_gives():
    first = blackwell.REPORT.read_text("utf-8").splitlines()[1].split()
    spec = specs.resolve("b200_sxm")
    assert float(first[1]) == spec["energy_pj"]["tensor_bf16_flop"]
    said = dict(zip(first[6::2], (float(each.rstrip(",")) for each in first[7::2]), strict=True))
    assert said == {name: own["energy"] for name, own in spec["precisions"].items()}
