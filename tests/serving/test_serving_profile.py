"""A serving profile on disk: read by lines between loads, refused outside them, and made by simulation."""

import numpy as np
import pytest

from kernel_dvfs.cli.main import main
from kernel_dvfs.errors import InputError
from kernel_dvfs_serving.make_profile import Load, curve, excess, measure, profile_rows
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
        ([LINES[0].replace(",400,", ",-4,"), LINES[1]], "line 2, column power_w: '-4'; expected a number above 0"),
        ([LINES[0], LINES[1].replace("MM", "XX")], "line 3, column class: 'XX'; expected one of SS"),
        ([LINES[0], LINES[1].replace("measured", "guessed")], "column source: 'guessed'"),
        ([LINES[0], LINES[1].replace(",4,1400", ",4,fast")], "column core_mhz: 'fast'; expected MHz"),
        ([LINES[0], LINES[1].replace(",4,1400", ",0,1400")], "column tp: '0'"),
        ([LINES[0], LINES[1].replace("1000,1000", "nan,1000")], "column tps: 'nan'"),
        ([LINES[0], LINES[0]], "0 appears twice for class MM"),
        ([LINES[0], LINES[1] + ",7"], "13 cells under 12 columns"),
        ([LINES[0], LINES[1].replace("dgx", "other")], "rows of several models or GPUs"),
        ([LINES[0]], "one load alone"),
        (LINES[1:], "class MM, tp 4, 1400 MHz: no row at load 0 (idle power, latencies of a lone request); add one"),
        ([], "no rows under the header"),
    ],
)
def test_what_is_wrong_with_a_profile_is_one_line_saying_where(csv_of, lines, said):
    with pytest.raises(InputError) as refused:
        read_profile(csv_of(*lines))
    assert said in str(refused.value) and "mine.csv" in str(refused.value) and "\n" not in str(refused.value)


def test_a_profile_without_a_column_is_refused(csv_of, tmp_path):
    with pytest.raises(InputError, match="column tbt_p99_s missing"):
        read_profile(csv_of(*LINES, header=HEADER.replace("tbt_p99_s", "tbt")))
    with pytest.raises(InputError, match="no such serving profile"):
        read_profile(tmp_path / "absent.csv")


def test_a_simulated_profile_is_read_back_as_it_was_written(tmp_path):
    rows = profile_rows("h100_sxm", "llama2-70b", [8], [1200], ["SS"], requests=120)
    write_profile(tmp_path / "profile.csv", rows)
    profile = read_profile(tmp_path / "profile.csv")
    assert profile.sources == {"simulated"} and profile.clocks(8) == ["1200"]
    first = next(row for row in rows if row["tps"] > 0)
    assert profile.at("SS", 8, 1200, first["tps"]).power_w == pytest.approx(first["power_w"], rel=1e-5)


def test_power_and_latency_rise_with_load_from_idle_to_the_broken_promise(instance):
    found = curve(instance.at(1200), instance.kv_tokens, "MM", Load.draw("MM", 250))
    powers = [point.power_w for point in found.values()]
    assert powers[0] == instance.idle_w(1200) and powers == sorted(powers)
    worst = [excess("MM", point) for point in found.values()]
    assert worst[0] < 1 < worst[-1] and sum(each > 1 for each in worst[-4:]) >= 1
    assert max(powers) <= 4 * 700


def test_energy_of_a_window_is_its_tokens_worth(instance):
    """At a load far below saturation, a token costs the same share of busy time whatever the seed."""
    engine = instance.at(1200)
    powers = [measure(engine, instance.kv_tokens, Load.draw("SM", 400, seed), 1500).power_w for seed in (1, 2, 3)]
    assert max(powers) / min(powers) < 1.06


def test_a_higher_clock_carries_at_least_as_much(instance):
    load = Load.draw("LS", 250)
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
