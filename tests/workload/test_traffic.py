"""DRAM traffic of matrix products: its limits, what it grows with, and a product that was measured."""

import csv
import math

import pytest

from kernel_dvfs.workload.formulas import Gemm, gemm
from kernel_dvfs.workload.rows import kernel_rows
from kernel_dvfs.workload.traffic import L2Cache, dense_products, gemm_byte, gemm_bytes, tensor_share, wave_share

QKV = Gemm(1, 40960, 6144, 2048, "TN", True, 0)
GA102 = L2Cache(6e6, 80)


def once(g):
    return gemm(g).read_byte + gemm(g).write_byte


@pytest.mark.parametrize(
    "g", [QKV, Gemm(1, 2048, 8192, 40960, "NT", False, 1), Gemm(640, 1024, 128, 1024, "NN", False, 0)]
)
def test_what_fits_in_the_cache_is_read_once(g):
    assert gemm_byte(g, L2Cache(1e12, 80)) == once(g)


@pytest.mark.parametrize("tile", [(256, 128), (128, 128), (64, 64)])
def test_without_a_cache_every_tile_reads_its_own(tile):
    read = QKV.m * QKV.k * (QKV.n // tile[1]) + QKV.k * QKV.n * (QKV.m // tile[0])
    assert gemm_byte(QKV, L2Cache(1e-6, 80, tile)) == pytest.approx(2 * (read + QKV.n + QKV.m * QKV.n), rel=1e-6)


def test_traffic_falls_as_the_cache_grows_and_stays_between_its_limits():
    sizes = [1e-6, 1e5, 1e6, 4e6, 6e6, 2e7, 5e7, 1e8, 1e12]
    found = [gemm_byte(QKV, L2Cache(size, 80)) for size in sizes]
    assert found == sorted(found, reverse=True)
    assert found[0] > found[-1] == once(QKV)


def test_larger_tiles_and_more_sms_at_a_time_read_less_again():
    assert gemm_byte(QKV, L2Cache(6e6, 80, (256, 128))) < gemm_byte(QKV, L2Cache(6e6, 80, (128, 128)))
    assert gemm_byte(QKV, L2Cache(6e6, 80)) < gemm_byte(QKV, L2Cache(6e6, 40))


def test_sides_are_alike():
    turned = Gemm(1, QKV.n, QKV.m, QKV.k, "TN", False, 0)
    plain = Gemm(1, QKV.m, QKV.n, QKV.k, "TN", False, 0)
    square = L2Cache(6e6, 81, (128, 128))
    assert gemm_byte(turned, square) == pytest.approx(gemm_byte(plain, square), rel=0.02)


def test_a_measured_product():
    """FP64 products on an A100: 122 FLOP per DRAM byte at 510 to 1050 MHz, tensor cores 99 % busy.

    tensor_active x 19.5 TFLOP/s (at 1410 MHz) over dram_active x 1555 GB/s, in the public data set
    ghazanfarttu/Optimal-GPU-frequency-using-DNN-based-models (BSD-3-Clause), application dgemm. A block of 8 warps an
    SM (sm_occupancy 0.125) is a tile of 128 x 64.
    """
    n = 16384
    byte = gemm_byte(Gemm(1, n, n, n, "NN", False, 0), L2Cache(20e6, 108, (128, 64)), element_byte=8)
    assert 2 * n**3 / byte == pytest.approx(122, rel=0.05)


def dense():
    return {row.id: (row.gemm, row.multiplicity) for row in kernel_rows() if row.family == "gemm"}


def total(byte, gemms):
    return math.fsum(count * byte[name] for name, (_, count) in gemms.items())


def test_dense_products_of_the_default_study_move_twice_the_compulsory_bytes():
    gemms = dense()
    compulsory = {name: once(g) for name, (g, _) in gemms.items()}
    assert total(gemm_bytes(gemms, GA102), gemms) / total(compulsory, gemms) == pytest.approx(1.994, abs=0.001)


@pytest.mark.parametrize("multiple", [1, 1.5, 4])
def test_a_multiple_is_the_total_and_spread_as_the_tiles_have_it(multiple):
    gemms = dense()
    compulsory = {name: once(g) for name, (g, _) in gemms.items()}
    found, tiled = gemm_bytes(gemms, GA102, multiple), gemm_bytes(gemms, GA102)
    assert total(found, gemms) == pytest.approx(multiple * total(compulsory, gemms), rel=1e-12)
    shares = {(found[name] - compulsory[name]) / (tiled[name] - compulsory[name]) for name in gemms}
    assert max(shares) - min(shares) < 1e-9


def test_a_multiple_where_nothing_is_read_again_is_spread_evenly():
    gemms = dense()
    found = gemm_bytes(gemms, L2Cache(math.inf, 80), 2)
    assert found == {name: 2 * once(g) for name, (g, _) in gemms.items()}


def test_no_products_no_bytes():
    assert gemm_bytes({}, GA102, 2) == {}


def test_no_product_measured_on_an_h200_moves_more_than_its_dram_can(root):
    """Traffic by the formula over measured time; attention's products leave it hardly any room to read again."""
    with open(root / "experiments/results/gpu_kernels_h200.csv", encoding="utf-8") as file:
        time_s = {row["row"]: float(row["time_us"]) * 1e-6 for row in csv.DictReader(file)}
    products = [row for row in kernel_rows() if row.gemm and row.id in time_s]
    rates = {row.id: gemm_byte(row.gemm, L2Cache(25e6, 132)) / time_s[row.id] for row in products}
    assert len(rates) == 21 and max(rates.values()) < 4800e9
    assert max(rates.values()) > 0.85 * 4800e9, "or it would bound nothing"


@pytest.mark.parametrize(
    ("g", "share"),
    [
        (Gemm(1, 10240, 10240, 64, "NN", False, 0), 1.0),  # 3,200 tiles: 40 waves
        (Gemm(1, 2048, 2048, 64, "NN", False, 0), 128 / 160),  # two waves
        (Gemm(5, 512, 256, 64, "NN", False, 0), 20 / 80),  # five products of four tiles fill one wave together
        (Gemm(1, 257, 128, 64, "NN", False, 0), 257 / 256 / 80),  # of the second tile one row in 256 is needed
    ],
)
def test_a_product_takes_whole_waves_of_tiles(g, share):
    assert wave_share(g, 80, (256, 128)) == pytest.approx(share)


RATES = {"gemm_tile": [64, 64]}


def test_start_of_tiles_takes_longer_the_less_they_have_to_add_up():
    # 128 tiles on 128 SMs: one wave
    products = [Gemm(1, 512, 1024, k, "NN", False, 0) for k in (300, 3000)]
    shares = [tensor_share(g, 128, RATES | {"gemm_start_k": 100}) for g in products]
    assert shares == pytest.approx([0.75, 30 / 31])
    assert [tensor_share(g, 128, RATES) for g in products] == [wave_share(g, 128, (64, 64)) for g in products]
    assert tensor_share(products[0], 128, {}) == 1


def test_sms_without_a_tile_share_k_where_adding_up_takes_less_than_they_save():
    few, many = (Gemm(1, 64, n, 8192, "NN", False, 0) for n in (256, 64 * 128))  # 4 tiles, 128 tiles
    rates = RATES | {"gemm_start_k": 72, "gemm_split_k": 600}
    # 32 parts of 256 fill the 128 SMs, and 600 to add them up
    assert tensor_share(few, 128, rates) == pytest.approx(4 / 128 * 8192 / (256 + 72 + 600))
    assert tensor_share(many, 128, rates) == pytest.approx(8192 / (8192 + 72))
    # too little k to be worth it
    short = Gemm(1, 64, 256, 512, "NN", False, 0)
    assert tensor_share(short, 128, rates) == pytest.approx(4 / 128 * 512 / (512 + 72))


def test_dense_products_fill_their_waves_where_the_tile_is_known_and_count_as_full_elsewhere():
    rows = kernel_rows()
    spec = {"sm_count": 80, "memory": {"l2_mb": 6}, "rates": {"gemm_tile": [256, 128]}}
    known, unknown = dense_products(rows, spec), dense_products(rows, spec | {"rates": {}})
    assert {name: byte for name, (byte, _) in known.items()} == {name: byte for name, (byte, _) in unknown.items()}
    assert known["forward_qkv_gemm"][1] == 1 and known["backward_attproj_dweight_gemm"][1] == pytest.approx(0.8)
    assert {share for _, share in unknown.values()} == {1.0} and len(known) == 15
