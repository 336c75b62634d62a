"""A serving profile on disk: read by lines between loads, refused outside them, and made by simulation."""

import numpy as np
import pytest

from kernel_dvfs.cli.main import main
from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_serving.machine import machine
from kernel_dvfs_serving.make_profile import PoissonArrivals, curve, excess, measure, profile_rows
from kernel_dvfs_serving.profile import COLUMNS, read_profile, write_profile

HEADER = ",".join(COLUMNS)
LINE = "llama2-70b,dgx,4,1400,MM,{tps},{power},0.1,{ttft},0.02,{tbt},measured"
LINES = [
    LINE.format(tps=0, power=400, ttft=0.1, tbt=0.02),
    LINE.format(tps=1000, power=1000, ttft=0.2, tbt=0.04),
    LINE.format(tps=2000, power=1400, ttft=0.6, tbt=0.06),
]


@pytest.fixture
def csv_of(tmp_path):
    def write(*lines, header=HEADER):
        (tmp_path / "mine.csv").write_text("\n".join([header, *lines]) + "\n")
        return tmp_path / "mine.csv"

    return write


@pytest.fixture
def instance(instances):
    return instances(4)


def test_a_measured_profile_is_read_by_lines_between_its_loads(csv_of):
    profile = read_profile(csv_of(*LINES))
    assert (profile.model, profile.gpu, profile.degrees, profile.classes) == ("llama2-70b", "dgx", [4], ["MM"])
    point = profile.at("MM", 4, 1400, 1500)
    assert point.power_w == pytest.approx(1200) and point.ttft_p99_s == pytest.approx(0.4)
    assert profile.curve("MM", 4, "1400").power(np.array([0.0, 500.0, 2000.0])).tolist() == [400, 700, 1400]


def test_no_load_outside_the_profile_is_guessed(csv_of):
    profile = read_profile(csv_of(*LINES))
    with pytest.raises(InputError, match=r"class MM, tp 4, 1400 MHz: 2001 tokens/s is outside the profiled 0 to 2000"):
        profile.at("MM", 4, 1400, 2001)
    with pytest.raises(InputError, match="class LL, tp 4"):
        profile.at("LL", 4, 1400, 1500)


def test_idle_power_is_the_profiles_own(csv_of):
    """At a clock the mean over classes; a GPU without an instance draws what the least drawing clock does."""
    other = [line.replace(",MM,0,400", ",LL,0,440").replace("MM", "LL") for line in LINES]
    slow = [line.replace(",1400,", ",900,").replace(",400,", ",300,") for line in LINES + other]
    profile = read_profile(csv_of(*LINES, *other, *slow))
    assert profile.idle_w(4, "1400") == 420 and profile.idle_w(4, "900") == 370 and profile.parked_w == 92.5


def test_a_profile_that_could_not_be_read_is_not_written(tmp_path):
    rows = [dict(zip(COLUMNS, line.split(","))) for line in LINES]
    write_profile(tmp_path / "mine.csv", rows)
    before = (tmp_path / "mine.csv").read_bytes()
    with pytest.raises(InputError, match="line 3, column power_w: '-1'"):
        write_profile(tmp_path / "mine.csv", [rows[0] | {"power_w": "-1"}, *rows[1:]])
    assert (tmp_path / "mine.csv").read_bytes() == before


def test_capacity_is_where_the_first_promise_breaks(csv_of):
    profile = read_profile(csv_of(*LINES))
    assert profile.capacity("MM", 4, 1400, 0.4, 0.1) == pytest.approx(1500)
    assert profile.capacity("MM", 4, 1400, 0.4, 0.045) == pytest.approx(1250)
    assert profile.capacity("MM", 4, 1400, 0.05, 0.1) == 0.0
    # kept to the end: nothing is known beyond
    assert profile.capacity("MM", 4, 1400, 2.0, 0.1) == 2000
    assert profile.capacity("LL", 4, 1400, 2.0, 0.1) == 0.0


@pytest.mark.parametrize(
    "lines,said",
    [
        ([LINES[0].replace(",400,", ",-4,"), LINES[1]], "line 2, column power_w: '-4' is not above zero"),
        ([LINES[0], LINES[1].replace("MM", "XX")], "line 3, column class: 'XX'; expected one of SS"),
        ([LINES[0], LINES[1].replace("measured", "guessed")], "column source: 'guessed'"),
        ([LINES[0], LINES[1].replace(",4,1400", ",4,fast")], "column core_mhz: 'fast' is not a whole number"),
        ([LINES[0], LINES[1].replace(",4,1400", ",0,1400")], "column tp: '0'"),
        ([LINES[0], LINES[1].replace("1000,1000", "nan,1000")], "column tps: 'nan'"),
        ([LINES[0], LINES[0]], "0 appears twice for class MM"),
        ([LINES[0], LINES[1] + ",7"], "13 cells where the header names 12 columns"),
        ([LINES[0], LINES[1].replace("dgx", "other")], "rows of several models or GPUs"),
        ([LINES[0]], "one load alone"),
        (LINES[1:], "class MM, tp 4, 1400 MHz: no row at load 0 (idle power, latencies of a lone request); add one"),
        ([], "the table has a header but no rows"),
    ],
)
def test_what_is_wrong_with_a_profile_is_one_line_saying_where(csv_of, lines, said):
    with pytest.raises(InputError) as refused:
        read_profile(csv_of(*lines))
    assert said in str(refused.value) and "mine.csv" in str(refused.value) and "\n" not in str(refused.value)


def test_a_profile_without_a_column_is_refused(csv_of, tmp_path):
    with pytest.raises(InputError, match="column tbt_p99_s missing"):
        read_profile(csv_of(*LINES, header=HEADER.replace("tbt_p99_s", "tbt")))
    with pytest.raises(InputError, match=r"absent\.csv: no such file"):
        read_profile(tmp_path / "absent.csv")


def test_a_simulated_profile_is_read_back_as_it_was_written(tmp_path):
    rows = profile_rows("h100_sxm", "llama2-70b", [8], [1200], ["SS"], requests=120)
    write_profile(tmp_path / "profile.csv", rows)
    profile = read_profile(tmp_path / "profile.csv")
    assert profile.sources == {"simulated"} and profile.clocks(8) == ["1200"]
    first = next(row for row in rows if row["tps"] > 0)
    assert profile.at("SS", 8, 1200, first["tps"]).power_w == pytest.approx(first["power_w"], rel=1e-5)


def test_power_and_latency_rise_with_load_from_idle_to_the_broken_promise(instance):
    found = curve(instance.at(1200), instance.kv_tokens, "MM", PoissonArrivals.draw("MM", 250))
    powers = [point.power_w for point in found.values()]
    assert powers[0] == instance.idle_w(1200) and powers == sorted(powers)
    worst = [excess("MM", point) for point in found.values()]
    assert worst[0] < 1 < worst[-1] and sum(each > 1 for each in worst[-4:]) >= 1
    assert max(powers) <= 4 * 700


def test_energy_of_a_window_is_its_tokens_worth(instance):
    """At a load far below saturation, a token costs the same share of busy time whatever the seed."""
    engine = instance.at(1200)
    powers = [
        measure(engine, instance.kv_tokens, PoissonArrivals.draw("SM", 400, seed), 1500).power_w for seed in (1, 2, 3)
    ]
    assert max(powers) / min(powers) < 1.06


def test_a_higher_clock_carries_at_least_as_much(instance):
    load = PoissonArrivals.draw("LS", 250)
    most = {}
    for core_mhz in (800, 1980):
        found = curve(instance.at(core_mhz), instance.kv_tokens, "LS", load)
        most[core_mhz] = max(tps for tps, point in found.items() if excess("LS", point) <= 1)
    assert most[1980] > most[800] > 0


def test_a_class_that_no_cache_holds_has_no_rows():
    with pytest.raises(InputError, match="use a higher tp"):
        # a batch of 16 GB cards: two hold the weights of 13B and next to no cache
        profile_rows("h100_sxm", "llama2-13b", [1], [1200], ["LL"], requests=20, overrides=SMALL)


SMALL = {"memory": {"capacity_gb": 30}}


def test_a_profile_by_command(tmp_path):
    path = tmp_path / "profile.csv"
    asked = ["--tp", "8", "--core-mhz", "1200", "--classes", "SS", "--requests", "40", "-o", str(path)]
    assert main(["serving", "profile", *asked]) == 0
    assert path.read_text().splitlines()[1].startswith("model,gpu,tp,core_mhz,class,tps,power_w")


H100 = "model,gpu,tp,core_mhz,class,tps,power_w,ttft_p50_s,ttft_p99_s,tbt_p50_s,tbt_p99_s,source"
ROWS = ((0, 492.0, 0.13, 0.25), (900, 1130.0, 0.21, 0.44), (3500, 1840.0, 0.36, 0.83))


def of_h100(tmp_path, head=H100, watt=1.0, second=1.0, mhz="1755", model="llama2-70b", gpu="h100_sxm"):
    lines = [head]
    for tps, power, ttft, late in ROWS:
        times = (second * each for each in (ttft, late, ttft / 5, late / 5))
        lines.append(
            f"{model},{gpu},4,{mhz},MM,{tps},{watt * power:.8g},{','.join(f'{t:.6g}' for t in times)},measured"
        )
    (tmp_path / "h.csv").write_text("\n".join(lines) + "\n")
    return tmp_path / "h.csv"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"watt": 1e-3}, "line 2, column power_w: '0.492' for 4 GPUs is 123 mW each, which no GPU draws; is it in kW?"),
        ({"watt": 1e3}, "line 2, column power_w: '492000' for 4 GPUs is 123 kW each, which no GPU draws; is it in mW?"),
        ({"mhz": "1755000"}, "column core_mhz: '1755000' is no clock in MHz (60 to 50000); write MHz; is it in kHz?"),
        ({"mhz": "1755000000"}, "write MHz; is it in Hz?"),
        ({"second": 1e3}, "line 2, column ttft_p50_s: 130 s without load; is it in ms?"),
    ],
)
def test_a_profile_in_another_unit_is_refused_with_the_unit_guessed(tmp_path, change, said):
    assert read_profile(of_h100(tmp_path)).curve("MM", 4, "1755").power_w.tolist() == [492, 1130, 1840]
    with pytest.raises(InputError) as refused:
        read_profile(of_h100(tmp_path, **change))
    assert said in str(refused.value)


def test_a_profile_is_read_in_the_units_of_its_headings(tmp_path):
    head = H100.replace("power_w", "Power [kW]").replace("_s,", "_ms,")
    found = read_profile(of_h100(tmp_path, head, watt=1e-3, second=1e3)).at("MM", 4, "1755", 900)
    assert found.power_w == pytest.approx(1130) and found.ttft_p99_s == pytest.approx(0.44)


def test_the_watts_of_one_gpu_are_no_instances(tmp_path):
    """Where the GPU is known here, what it draws idle is: about 86 W an H100."""
    one = read_profile(of_h100(tmp_path, watt=0.25))
    with pytest.raises(
        InputError, match=r"30.8 W a GPU without load, where h100_sxm draws about 85.4 W; .* 4 times as"
    ):
        machine(one, "h100_sxm", "llama2-70b", max_batch=64, chunk_tokens=512)
    for fits in ({}, {"watt": 0.25, "gpu": "mine"}):
        try:
            machine(read_profile(of_h100(tmp_path, **fits)), "h100_sxm", "llama2-70b", max_batch=64, chunk_tokens=512)
        except InputError as error:
            assert "without load" not in str(error)
