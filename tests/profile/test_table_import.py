"""What a measured table says survives its way into a profile, whatever its units and file format."""

import csv
import re
import statistics

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernel_dvfs.profile.store import read_profile
from kernel_dvfs.profile.table import gpu_slug, import_table, import_to_profile
from kernel_dvfs_clocks.errors import InputError

HEADER = "gpu,kernel,core_mhz_requested,core_mhz_applied,mem_mhz,time_ms,energy_mj,is_auto"
ROWS = [
    "GPU One,gemm,,,,10,3000,1",
    "GPU One,gemm,2100,2085,9251,11,3300,0",
    "GPU One,gemm,1470,1470,9251,13,2200,0",
    "GPU One,gemm,1470,1470,5001,15,2100,0",
    "GPU One,softmax,,,,2,500,1",
    "GPU One,softmax,1470,1470,9251,2.5,350,0",
    "GPU One,softmax,1470,,9251,2.7,390,0",
]


@pytest.fixture
def csv_table(tmp_path):
    def write(*rows, header=HEADER, name="table.csv"):
        path = tmp_path / name
        path.write_text("\n".join([header, *rows]) + "\n", encoding="utf-8")
        return path

    return write


def points(imported, *names):
    return list(zip(*(imported.columns[name] for name in names), strict=True))


def test_a_table_becomes_one_row_per_kernel_and_setting(csv_table):
    imported = import_table(csv_table(*ROWS))
    assert points(imported, "target", "core_mhz", "mem_mhz", "time_s", "energy_j", "n") == [
        ("gemm", None, None, 0.010, 3.0, 1),
        ("gemm", 2100, 9251, 0.011, 3.3, 1),
        ("gemm", 1470, 9251, 0.013, 2.2, 1),
        ("gemm", 1470, 5001, 0.015, 2.1, 1),
        ("softmax", None, None, 0.002, 0.5, 1),
        ("softmax", 1470, 9251, pytest.approx(0.0026), pytest.approx(0.37), 2),
    ]
    assert imported.columns["is_baseline"] == [True, False, False, False, True, False]
    assert imported.columns["reached_core_mhz"] == [None, 2085, 1470, 1470, None, 1470]
    assert set(imported.columns["study"]) == {"kernel"} and set(imported.columns["verdict"]) == {"ok"}
    assert set(imported.columns["launches_per_iteration"]) == {1}
    assert imported.settings == ["core_mhz", "mem_mhz"]
    assert imported.notices == []


def test_repeats_carry_their_sample_standard_deviation_and_single_rows_none(csv_table):
    imported = import_table(csv_table(*ROWS))
    assert imported.columns["time_sd_s"][-1] == pytest.approx(statistics.stdev([0.0025, 0.0027]))
    assert imported.columns["energy_sd_j"][-1] == pytest.approx(statistics.stdev([0.350, 0.390]))
    assert imported.columns["time_sd_s"][:-1] == [None] * 5


def test_the_gpu_is_called_after_the_table(csv_table):
    path = csv_table(*ROWS, name="My lab_GPU.v2.csv")
    imported = import_table(path)
    assert imported.gpu == {"kind": "table", "name": "GPU One", "slug": "table-my-lab-gpu-v2"}
    assert import_table(path, name="Lab 7").gpu["slug"] == "table-lab-7"
    assert gpu_slug("absent/My lab_GPU.v2.csv") == imported.gpu["slug"]
    assert imported.workload["name"] == "as-measured"
    assert imported.workload["table"] == "My lab_GPU.v2.csv" and imported.workload["rows"] == 7


def test_the_written_profile_holds_what_was_imported(csv_table, tmp_path):
    out = tmp_path / "deep" / "profile.parquet"
    imported = import_to_profile(csv_table(*ROWS), out)
    table, metadata, _ = read_profile(out)
    assert table.to_pydict() == imported.columns
    assert metadata["gpu"] == imported.gpu and metadata["settings"] == imported.settings


UNITS = {
    "ms, mJ": ("time_ms", 1e3, "energy_mj", 1e3),
    "s, J": ("time_s", 1.0, "energy_j", 1.0),
    "us, uJ": ("time_us", 1e6, "energy_uj", 1e6),
    "ns, nJ": ("time_ns", 1e9, "energy_nj", 1e9),
    "ms, kJ": ("time_ms", 1e3, "energy_kj", 1e-3),
}


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("ending", [".csv", ".parquet"])
def test_units_and_format_do_not_change_the_profile(csv_table, tmp_path, unit, ending):
    expected = import_table(csv_table(*ROWS)).columns
    time_name, per_s, energy_name, per_j = UNITS[unit]
    source = list(csv.DictReader([HEADER, *ROWS]))

    def number(text):
        return float(text) if text else None

    table = {
        "kernel": [row["kernel"] for row in source],
        "core_mhz": [number(row["core_mhz_requested"]) for row in source],
        "mem_mhz_requested": [number(row["mem_mhz"]) for row in source],
        "core_mhz_applied": [number(row["core_mhz_applied"]) for row in source],
        time_name: [float(row["time_ms"]) / 1e3 * per_s for row in source],
        energy_name: [float(row["energy_mj"]) / 1e3 * per_j for row in source],
        "is_auto": [row["is_auto"] == "1" for row in source],
    }
    path = tmp_path / f"other{ending}"
    if ending == ".csv":
        with open(path, "w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(table)
            writer.writerows(zip(*table.values(), strict=True))
    else:
        pq.write_table(pa.table(table), path)
    actual = import_table(path).columns
    for name in expected:
        # 1 mJ / 1000 and 0.001 J may differ in the last bit, and a spread of near values magnifies it
        for value, other in zip(expected[name], actual[name], strict=True):
            assert other == (pytest.approx(value, rel=1e-9) if isinstance(value, float) else value), name


def test_auto_default_minus_one_an_empty_cell_and_blanks_are_the_same_clock(csv_table):
    header = "kernel,core_mhz,mem_mhz,time_s,energy_kj"
    rows = ["k,auto,auto,1.75,1", "k,,,2.25,1", "k, Default ,  ,2,1", "k,1470,auto,4.5,1", "k, 1470.0,-1,5.5,1"]
    imported = import_table(csv_table(*rows, header=header))
    assert points(imported, "core_mhz", "mem_mhz", "time_s", "n", "is_baseline") == [
        (None, None, 2.0, 3, True),
        (1470.0, None, 5.0, 2, False),
    ]


def test_a_memory_clock_empty_in_every_row_is_the_only_one(csv_table):
    header = "kernel,core_mhz,mem_mhz,time_s,energy_kj,is_reference"
    imported = import_table(csv_table("k,1410,,1,1,1", "k,1200,,1.1,0.9,0", header=header))
    assert imported.columns["mem_mhz"] == [None, None]
    assert imported.columns["is_baseline"] == [True, False]


def test_the_reference_row_is_the_baseline_where_no_row_is_auto(csv_table):
    header = HEADER + ",is_reference"
    kernels = ["G,a,1380,,877,1,1,0,1", "G,a,705,,877,2,3,0,0", "G,b,,,,1,1,1,0", "G,b,1380,,877,1,1,0,1"]
    imported = import_table(csv_table(*kernels, header=header))
    assert imported.columns["is_baseline"] == [True, False, True, False]


def test_a_clock_in_an_auto_row_is_the_clock_that_was_reached(csv_table):
    rows = ["G,k,1905,,9501,1,1,1", "G,k,1920,1890,9501,1,1,1", "G,k,1470,,9251,1,1,0"]
    imported = import_table(csv_table(*rows))
    assert points(imported, "core_mhz", "mem_mhz", "n") == [(None, None, 2), (1470.0, 9251.0, 1)]
    assert imported.columns["reached_core_mhz"] == [(1905 + 1890) / 2, None]
    assert len(imported.notices) == 1 and "line 2" in imported.notices[0]


POWER = "kernel,core_mhz,mem_mhz,power_cap_w,time_s,energy_kj,is_reference"
CAPPED = ["k,1410,,300,1,3,1", "k,1410,,150,2.5,2,0", "k,1410,,150,3.5,2,0", "k,1005,,300,1.5,2,0"]


def test_a_power_cap_is_part_of_the_key_without_being_declared(csv_table):
    imported = import_table(csv_table(*CAPPED, header=POWER))
    assert points(imported, "core_mhz", "power_cap_w", "time_s", "n") == [
        (1410.0, 300.0, 1.0, 1),
        (1410.0, 150.0, 3.0, 2),
        (1005.0, 300.0, 1.5, 1),
    ]
    assert imported.settings == ["core_mhz", "mem_mhz", "power_cap_w"]


def test_a_declared_setting_is_part_of_the_key_even_as_text(csv_table, tmp_path):
    header = "kernel,core_mhz,mem_mhz,fan,time_s,energy_kj,is_reference"
    path = csv_table("k,1410,,high,1,3,1", "k,1410,,low,2,2,0", "k,1410,,,2,2,0", header=header)
    imported = import_to_profile(path, tmp_path / "p.parquet", settings=["fan"])
    assert imported.columns["fan"] == ["high", "low", None]
    assert read_profile(tmp_path / "p.parquet").metadata["settings"] == ["core_mhz", "mem_mhz", "fan"]


def test_known_measurements_pass_in_silence_and_unknown_columns_are_noted_once(csv_table):
    known = "idle_power_w,sm_active,sm_occupancy,gpu_temp_c,gb_per_s,time_sd_ms,repeat,timestamp,suite"
    cells = ",90,0.5,0.4,60,10,0.1,{},2024,micro"
    header = f"{HEADER},{known},colour,taste"
    rows = [f"{row}{cells.format(i)},red,sweet" for i, row in enumerate(ROWS)]
    imported = import_table(csv_table(*rows, header=header))
    assert imported.columns["n"][-1] == 2
    assert len(imported.notices) == 1 and "colour, taste ignored" in imported.notices[0]


def test_the_index_that_pandas_writes_is_no_setting(csv_table):
    rows = [f"{index},{row}" for index, row in enumerate(ROWS)]
    imported = import_table(csv_table(*rows, header="," + HEADER))
    assert imported.columns["n"][-1] == 2 and imported.notices == []


def test_quotes_blank_lines_a_byte_order_mark_and_windows_line_ends_do_not_matter(tmp_path, csv_table):
    expected = import_table(csv_table(*ROWS)).columns
    path = tmp_path / "windows.csv"
    rows = [row.replace("GPU One", '"GPU One"') for row in ROWS]
    path.write_bytes(("\ufeff" + "\r\n".join([HEADER, "", *rows, "", ""])).encode())
    assert import_table(path).columns == expected


NO_BASELINE = "kernel,core_mhz,mem_mhz,power_cap_w,time_s,energy_kj"
GRID = ["k,1005,877,300,2,1", "k,1410,877,150,3,1", "k,1410,877,300,1,2", "k,1410,810,300,1,2"]


@pytest.mark.parametrize(
    ("reference", "row"),
    [
        ("highest", 2),
        ("1410,877", 2),
        ("1410,877,power_cap_w=150", 1),
        ([1005, 877], 0),
        (" 1410.0 , 810 ", 3),
    ],
)
def test_a_reference_named_by_the_user_is_the_baseline(csv_table, reference, row):
    imported = import_table(csv_table(*GRID, header=NO_BASELINE), reference=reference)
    assert [i for i, base in enumerate(imported.columns["is_baseline"]) if base] == [row]


@pytest.mark.parametrize(
    ("clocks", "row"),
    [
        # by the memory clock, then by the core clock; an unlocked one is below any, however low
        ([",", "0.5,", ",877"], 2),
        ([",", "0.5,", "0.4,"], 1),
        ([",0.5", ",", "1410,"], 0),
        (["1410,810", "1005,877", "900,877"], 1),
    ],
)
def test_the_highest_clocks_are_the_highest_memory_clock_then_core_clock(csv_table, clocks, row):
    """Of equal power caps the highest clocks win, however slow they are."""
    rows = [f"k,{clock},300,{3 - abs(number - row)},1" for number, clock in enumerate(clocks)]
    stated = {"core_mhz": "mhz", "mem_mhz": "mhz", "time_s": "s", "energy_kj": "kj"}
    imported = import_table(csv_table(*rows, header=NO_BASELINE), reference="highest", columns_in=stated)
    assert imported.columns["is_baseline"] == [number == row for number in range(3)]


def test_of_points_at_the_reference_the_highest_power_cap_wins_then_the_least_time(csv_table):
    header = NO_BASELINE + ",fan"
    rows = ["k,1410,877,300,3,1,a", "k,1410,877,300,2,1,b", "k,1410,877,,1,1,c", "k,1410,877,250,1,1,d"]
    imported = import_table(csv_table(*rows, header=header), settings=["fan"], reference="1410,877")
    assert imported.columns["is_baseline"] == [False, True, False, False]
    imported = import_table(csv_table(*rows, header=header), settings=["fan"], reference="1410,877,fan=a")
    assert imported.columns["is_baseline"] == [True, False, False, False]


def test_a_named_reference_goes_before_the_marks_of_the_table(csv_table):
    imported = import_table(csv_table(*ROWS), reference="1470,9251")
    assert imported.columns["is_baseline"] == [False, False, True, False, False, True]


def test_a_core_clock_alone_names_the_reference_of_a_gpu_with_one_memory_clock(csv_table):
    rows = ["k,1410,,300,1,2", "k,1005,,300,2,1"]
    imported = import_table(csv_table(*rows, header=NO_BASELINE), reference=1410)
    assert imported.columns["is_baseline"] == [True, False]


@pytest.mark.parametrize("reference", ["", "fast", "1410,877,5", "-1,877", "nan", "power_cap_w=300", "1410;877"])
def test_a_reference_that_is_none_gets_one_line(csv_table, reference):
    with pytest.raises(InputError, match="reference"):
        import_table(csv_table(*GRID, header=NO_BASELINE), reference=reference)


def test_a_reference_that_a_kernel_lacks_names_the_kernel(csv_table):
    with pytest.raises(InputError, match=r"line 2: kernel k .* no point at reference 1200,877; .* up to 1410,877"):
        import_table(csv_table(*GRID, header=NO_BASELINE), reference="1200,877")


def test_auto_rows_at_several_power_caps_need_one_marked_as_the_reference(csv_table):
    rows = ["k,,,300,1,3,1", "k,,,150,2,2,0", "k,1005,,300,1,3,0"]
    imported = import_table(csv_table(*rows, header=POWER))
    assert imported.columns["is_baseline"] == [True, False, False]


measured_rows = st.lists(
    st.tuples(
        st.sampled_from([None, 210.0, 1470.0]),
        st.sampled_from([None, 5001.0]),
        st.floats(0.9, 1.1),
        st.floats(200, 220),  # W
    ),
    max_size=12,
)


@settings(max_examples=20, deadline=None)
@given(rows=measured_rows, order=st.randoms(use_true_random=False))
def test_the_order_of_rows_changes_neither_means_nor_counts(tmp_path_factory, rows, order):
    rows = [(None, None, 1.0, 210.0), *((core, mem, time_s, power * time_s) for core, mem, time_s, power in rows)]
    path = tmp_path_factory.mktemp("order") / "t.parquet"
    answers = []
    for _ in range(2):
        core, mem, time_s, energy_j = map(list, zip(*rows, strict=True))
        table = {"kernel": ["k"] * len(rows), "core_mhz": core, "mem_mhz": mem}
        types = {"core_mhz": pa.float64(), "mem_mhz": pa.float64()}
        table = {name: pa.array(cells, types.get(name)) for name, cells in table.items()}
        pq.write_table(pa.table(table | {"time_s": time_s, "energy_j": energy_j}), path)
        imported = import_table(path)
        assert sum(imported.columns["n"]) == len(rows)
        keys = points(imported, "core_mhz", "mem_mhz")
        values = points(imported, "n", "time_s", "energy_j", "is_baseline")
        answers.append(dict(zip(keys, values, strict=True)))
        assert len(answers[-1]) == len(keys)
        order.shuffle(rows)
    assert answers[0].keys() == answers[1].keys()
    for key, values in answers[0].items():
        assert values == pytest.approx(answers[1][key], rel=1e-12)


@pytest.mark.slow
def test_twenty_thousand_rows_load_each_where_it_belongs(csv_table):
    rows = []
    for kernel in range(200):
        rows.append(f"G,k{kernel},,,,1.5,250,1")
        rows += [f"G,k{kernel},{210 + 15 * i},,9251,{1.5 + i / 7},{250 + i / 3},0" for i in range(99)]
    path = csv_table(*rows)
    imported = import_table(path)
    assert len(imported.columns["n"]) == 20_000 and set(imported.columns["n"]) == {1}
    assert imported.columns["target"] == [f"k{kernel}" for kernel in range(200) for _ in range(100)]
    clocks = [None, *(210 + 15 * i for i in range(99))]
    assert imported.columns["core_mhz"] == clocks * 200
    assert imported.columns["is_baseline"] == [clock is None for clock in clocks] * 200
    energies = [0.25, *((250 + i / 3) / 1e3 for i in range(99))]
    assert imported.columns["energy_j"] == energies * 200


PLAIN = "kernel,core_mhz,mem_mhz,time_ms,energy_mj\na,auto,auto,1.5,200.25\na,1200,5001,1.625,150.5\n"


@pytest.mark.parametrize(
    "as_people_have_it",
    [
        PLAIN.replace(",", ";").replace(".", ","),
        PLAIN.replace(",", "\t"),
        '\N{BYTE ORDER MARK}# measured on a Monday, with "care"\n\n' + PLAIN.replace("a,1200", "# again\na,1200"),
        PLAIN.replace("kernel,core_mhz,mem_mhz,time_ms,energy_mj", "Kernel,Core (MHz),Mem MHz,Time [ms],Energy (mJ)"),
        PLAIN.replace("core_mhz,mem_mhz", "SM clock [MHz],Memory frequency (MHz)"),
        PLAIN.replace("1.625,150.5", "1.625 ms,150.5 mJ").replace("1200", "1200MHz"),
    ],
    ids=["semicolons and decimal commas", "tabs", "comments", "headings", "headings in words", "units in cells"],
)
def test_a_csv_as_people_have_it_says_the_same(tmp_path, as_people_have_it):
    for name, text in (("plain", PLAIN), ("theirs", as_people_have_it)):
        (tmp_path / f"{name}.csv").write_text(text, encoding="utf-8")
    plain, theirs = (import_table(tmp_path / f"{name}.csv") for name in ("plain", "theirs"))
    assert theirs.columns == plain.columns and plain.columns["time_s"] == [0.0015, 0.001625]


@pytest.mark.parametrize(
    ("given", "named"),
    [
        (PLAIN.replace("1.625", "1.625 us"), "column time_ms: '1.625 us' is not a number"),
        (PLAIN.replace("150.5", "150.5 MJ"), "column energy_mj: '150.5 MJ' is not a number"),
        (PLAIN.replace("energy_mj", "Energy (MJ)"), "missing: energy per launch"),
        (PLAIN.replace(",", ";").replace("1.625", "1.234,5"), "column time_ms: '1.234,5' is not a number"),
        (PLAIN.replace(",", ";").replace("1.625", "1,625"), "column time_ms: '1,625' is not a number"),
    ],
    ids=["another unit", "mega is not milli", "mega in the heading", "thousands", "points and commas"],
)
def test_what_may_mean_something_else_is_refused(tmp_path, given, named):
    (tmp_path / "t.csv").write_text(given)
    with pytest.raises(InputError, match=re.escape(named)):
        import_table(tmp_path / "t.csv")


def test_power_and_clocks_are_known_by_headings_in_words_unless_two_say_the_same(tmp_path):
    text = "Kernel;GPU clock [MHz];mem clock (MHz);time_ms;Avg Power [W]\na;auto;auto;2;150,5 W\na;1200;5001;4;70,25\n"
    (tmp_path / "t.csv").write_text(text)
    columns = import_table(tmp_path / "t.csv").columns
    assert columns["energy_j"] == pytest.approx([0.301, 0.281]) and columns["core_mhz"] == [None, 1200.0]
    (tmp_path / "t.csv").write_text(text.replace("mem clock (MHz)", "SM clock (MHz)"))
    with pytest.raises(InputError, match="missing: core clock"):
        import_table(tmp_path / "t.csv")


def test_a_memory_clock_that_all_rows_have_is_no_choice(tmp_path):
    (tmp_path / "t.csv").write_text(PLAIN.replace("auto,auto", "auto,5001"))
    columns = import_table(tmp_path / "t.csv").columns
    assert columns["is_baseline"] == [True, False]
    assert (columns["core_mhz"], columns["mem_mhz"]) == ([None, 1200.0], [None, 5001.0])
    assert columns["reached_mem_mhz"] == [5001.0, None]
    # with a second one it is a lock, and no row is auto
    (tmp_path / "t.csv").write_text(PLAIN.replace("auto,auto", "auto,9251"))
    with pytest.raises(InputError, match="kernel a has no baseline row"):
        import_table(tmp_path / "t.csv")
