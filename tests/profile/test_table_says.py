"""`kernel-dvfs import` says what it took a table for, what is missing, and what is in another unit: as transcripts."""

import numpy as np
import pytest

from kernel_dvfs.choice.schedule import choose
from kernel_dvfs.cli.main import main
from kernel_dvfs.profile.table import import_table, import_to_profile
from kernel_dvfs_clocks.errors import InputError

GOOD = """\
gpu,kernel,core_mhz,mem_mhz,time_ms,energy_mj,is_auto
One,gemm,,,10,3000,1
One,gemm,1470,9251,13,2200,0
One,gemm,1470,9251,13.2,2210,0
One,softmax,,,2,500,1
One,softmax,1470,9251,2.5,350,0
"""


@pytest.fixture
def said(tmp_path, monkeypatch, capsys):
    """said(table, *words) is (exit code, what `import mine.csv *words` prints)."""
    monkeypatch.chdir(tmp_path)

    def run(text, *words):
        (tmp_path / "mine.csv").write_text(text)
        code = main(["import", "mine.csv", "-o", "mine.parquet", *words])
        return code, capsys.readouterr().err

    return run


def swapped(old, new):
    assert old in GOOD
    return GOOD.replace(old, new)


def test_what_was_read_is_said(said):
    code, text = said(GOOD)
    assert code == 0
    assert text == (
        "mine.csv: 2 kernels of One, 2 settings of core_mhz, mem_mhz; 4 points from 5 rows, "
        "of which 2 rows are repeats pooled into 1 point\n"
        "baseline: the rows that lock no clock (auto); core auto, memory auto\n"
        "units: time_ms in ms, energy_mj in mJ, core_mhz in MHz, mem_mhz in MHz; mean power 140 to 300 W\n"
    )


def test_a_baseline_that_was_asked_for_is_said_to_be(said):
    assert (
        "baseline: the reference 1470,9251 that was asked for; core 1470 MHz, memory 9251 MHz\n"
        in (said(GOOD, "--reference", "1470,9251")[1])
    )


def test_a_marked_baseline_is_said_to_be_with_its_further_settings(said):
    text = (
        "kernel,core_mhz,mem_mhz,power_cap_w,time_s,energy_j,is_reference\nk,1410,,300,1,200,1\nk,1410,,150,2,250,0\n"
    )
    assert said(text)[1].splitlines()[1] == (
        "baseline: the rows marked is_reference, as no row is auto; core 1410 MHz, memory auto, power_cap_w 300.0"
    )


def test_all_that_is_missing_is_named_at_once_with_what_looks_like_it(said):
    code, text = said("name,Duration,wattage,Graphics\nk,1,200,1470\n")
    assert code == 2 and text.count("\n") == 1
    for words in (
        "missing: name of the kernel, named kernel (--columns kernel=name?); time per launch, named time_s,",
        "(--columns time_s=Duration?); energy per launch, named energy_j,",
        "or mean power, named power_w; core clock,",
        "named core_mhz or core_mhz_requested (--columns core_mhz=Graphics?)",
    ):
        assert words in text


def test_a_table_without_a_memory_clock_was_measured_with_the_memory_left_to_the_gpu(said):
    code, text = said("kernel,core_mhz,time_ms,energy_mj\nk,,1.5,300\nk,1110,1.6,250\n")
    assert code == 0 and "baseline: the rows that lock no clock (auto); core auto, memory auto" in text
    assert "no memory clock (mem_mhz): taken as left to the GPU in every row" in text
    assert "core_mhz in MHz; mean power" in text, "no unit of a column that is not there"


@pytest.mark.parametrize(
    ("table", "words", "against"),
    [
        ("k,1410,1.5,300,0\nk,1110,1.6,250,0\n", ["--reference", "highest"], "the reference 1410,auto ("),
        ("k,1410,1.5,300,1\nk,1110,1.6,250,0\n", [], "the reference 1410,auto ("),
        ("k,1410,1,3,1\nk,1110,1,2,0\nl,1110,1,2,1\nl,1410,1,3,0\n", [], "the reference as marked ("),
        ("k,,1.5,300,0\nk,1110,1.6,250,0\n", ["--reference", "auto,auto"], "auto ("),
    ],
)
def test_a_choice_says_what_it_is_against(said, capsys, table, words, against):
    assert said(f"kernel,core_mhz,time_ms,energy_mj,is_reference\n{table}", *words)[0] == 0
    assert main(["choose", "mine.parquet", "--slack", "10"]) == 0
    told = capsys.readouterr().out
    assert f"against {against}claimed" in told
    assert ("; 2 kernels at" if "\nl," in table else "; 1 kernel at") in told


def test_power_is_taken_where_energy_is_missing(said):
    table = (
        swapped("energy_mj", "power_w").replace(",3000,", ",300,").replace(",2200,", ",170,").replace(",2210,", ",168,")
    )
    code, text = said(table.replace(",500,", ",250,").replace(",350,", ",140,"))
    assert code == 0 and "note: mine.csv: no energy; it is power_w x time_ms, the mean power x time\n" in text
    assert "power_w in W" in text


def test_power_times_time_is_the_energy(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("kernel,core_mhz,mem_mhz,time_us,avg_power_mw\nk,,,500,200000\nk,1000,,600,100000\n")
    assert import_table(path).columns["energy_j"] == pytest.approx([0.1, 0.06])


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        (
            "energy_mj",
            "energy_j",
            "error: mine.csv, line 2, column energy_j: '3000' in '10' (time_ms) is a mean power of 300 kW, which no GPU"
            " draws; if time_ms is in s: --units time_ms=s, or if energy_j is in mJ: --units energy_j=mj\n",
        ),
        (
            "time_ms",
            "time_s",
            "error: mine.csv, line 2, column energy_mj: '3000' in '10' (time_s) is a mean power of 300 mW, which no GPU"
            " draws; if time_s is in ms: --units time_s=ms, or if energy_mj is in J: --units energy_mj=j\n",
        ),
        (
            "1470,9251",
            "1470000,9251",
            "error: mine.csv, line 3, column core_mhz: '1470000' is no clock in MHz (60 to 50000); if the column is in "
            "another unit, state it: --units core_mhz=khz\n",
        ),
        (
            "1470,9251",
            "1470,9251000000",
            "error: mine.csv, line 3, column mem_mhz: '9251000000' is no clock in MHz (60 to 50000); if the column is "
            "in another unit, state it: --units mem_mhz=hz\n",
        ),
        (
            "1470,9251",
            "1.47,9251",
            "error: mine.csv, line 3, column core_mhz: '1.47' is no clock in MHz (60 to 50000); if the column is in "
            "another unit, state it: --units core_mhz=ghz\n",
        ),
    ],
    ids=["mJ as J", "ms as s", "kHz", "Hz", "GHz"],
)
def test_an_implausible_unit_is_refused_with_its_remedy(said, old, new, line):
    assert said(swapped(old, new)) == (2, line)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("energy_mj", "energy_j", ["energy_j=mj"]),
        ("time_ms", "time_s", ["time_s=ms"]),
        ("1470,9251", "1470000,9251", ["core_mhz=khz"]),
        ("1470,9251", "1.47,9251000000", ["core_mhz=GHz", "mem_mhz=Hz"]),
    ],
)
def test_a_stated_unit_gives_the_same_profile(tmp_path, said, old, new, words):
    assert said(swapped(old, new), "--units", *words)[0] == 0
    (tmp_path / "good.csv").write_text(GOOD)
    columns_in = dict(word.split("=") for word in words)
    found, good = import_table("mine.csv", columns_in=columns_in).columns, import_table("good.csv").columns
    for name in ("core_mhz", "mem_mhz", "time_s", "energy_j"):
        assert [value and pytest.approx(value) for value in good[name]] == found[name]


def test_two_stated_units_are_believed_whatever_follows(said):
    assert said(swapped("energy_mj", "energy_j"), "--units", "energy_j=j", "time_ms=ms")[0] == 0


@pytest.mark.parametrize(
    ("word", "line"),
    [
        ("core_mhz=furlong", "column core_mhz: declared to be in 'furlong'; a clock is in mhz, khz, hz or ghz"),
        ("speed=khz", "column speed: declared to be in khz, but the table has no such column"),
        ("kernel=ms", "column kernel: declared to be in 'ms'; its name is that of no time, energy or clock"),
        ("core_mhz", "--units core_mhz: expected COLUMN=UNIT, such as core_mhz=khz"),
    ],
)
def test_a_unit_that_is_none_gets_one_line(said, word, line):
    code, text = said(GOOD, "--units", word)
    assert code == 2 and text.count("\n") == 1 and line in text


def test_a_power_cap_in_milliwatts_is_refused_and_can_be_stated(said):
    text = "kernel,core_mhz,mem_mhz,power_cap_w,time_s,energy_j,is_reference\n"
    text += "k,1410,,300000,1,200,1\nk,1410,,150000,2,250,0\n"
    code, line = said(text)
    assert (
        code == 2 and "'300000' is no power cap in W; if the column is in mW, state it: --units power_cap_w=mw" in line
    )
    assert said(text, "--units", "power_cap_w=mw")[0] == 0


def test_a_power_cap_may_be_any_above_zero_in_its_unit(tmp_path):
    path = tmp_path / "t.csv"
    text = "kernel,core_mhz,mem_mhz,power_cap_w,time_s,energy_j,is_reference\nk,1410,,0.3,1,200,1\nk,1410,,{},2,250,0\n"
    for cap, watts in (("0.15", 150.0), ("", None), ("5.5", 5500.0)):
        path.write_text(text.format(cap))
        assert import_table(path, columns_in={"power_cap_w": "kw"}).columns["power_cap_w"] == [300.0, watts]
    path.write_text(text.format("0"))
    with pytest.raises(InputError, match="'0' is no power cap: a number above zero"):
        import_table(path, columns_in={"power_cap_w": "kw"})
    for cap, fits in (("5000", True), ("5001", False)):
        path.write_text(text.replace("0.3", "300").format(cap))
        if fits:
            assert import_table(path).columns["power_cap_w"] == [300.0, 5000.0]
        else:
            with pytest.raises(InputError, match="'5001' is no power cap in W"):
                import_table(path)


def test_rows_that_are_exact_copies_are_noted(said):
    code, text = said(GOOD + "One,softmax,1470,9251,2.5,350,0\n")
    assert code == 0
    assert text.endswith(
        "note: mine.csv, line 7: 1 row is an exact copy of another, counted as measured again; "
        "drop copies, if that is what they are\n"
    )


NAMES = [
    "gpu",
    "kernel",
    "core_mhz",
    "mem_mhz",
    "time_ms",
    "energy_mj",
    "power_w",
    "power_cap_w",
    "is_auto",
    "is_reference",
]
ODD = ["", "auto", "nan", "inf", "-1", "0", "1e300", "1e-300", "1_0", "x", "é", "9" * 40, " 5 ", "1,5", "TRUE"]


def odd_table(rng):
    """A small table, mostly plausible, with something odd about it: columns, rows, cells, or one kernel or pair."""
    names = [name for name in NAMES if rng.random() > 0.08]
    rng.shuffle(names)
    rows = []
    kernels, cores = rng.integers(1, 4), rng.integers(1, 4)
    for kernel in range(kernels):
        for core in range(cores):
            for _ in range(rng.choice([0, 1, 1, 1, 2])):
                time_ms = float(np.exp(rng.normal(0, 3)))
                row = {
                    "gpu": "G",
                    "kernel": f"k{kernel}",
                    "core_mhz": "" if core == 0 and rng.random() < 0.8 else 600 + 300 * core,
                    "mem_mhz": rng.choice(["", "5001"]) if core else "",
                    "time_ms": time_ms,
                    "energy_mj": time_ms * rng.uniform(30, 400),
                    "power_w": rng.uniform(30, 400),
                    "power_cap_w": rng.choice(["", "200", "300"]) if rng.random() < 0.3 else "",
                    "is_auto": int(core == 0 and rng.random() < 0.8),
                    "is_reference": int(rng.random() < 0.2),
                }
                rows.append([str(row[name]) for name in names])
    if rows and names and rng.random() < 0.5:
        for _ in range(rng.integers(1, 4)):
            rows[rng.integers(len(rows))][rng.integers(len(names))] = str(rng.choice(ODD))
    if rows and rng.random() < 0.1:
        rows.append(rows[0])
    return "\n".join(",".join(f'"{cell}"' for cell in row) for row in [names, *rows])


@pytest.mark.slow
@pytest.mark.parametrize("block", [0, *(pytest.param(more, marks=pytest.mark.nightly) for more in range(1, 10))])
def test_of_thousands_of_odd_tables_each_gives_a_profile_or_one_line(tmp_path, block):
    """1,000 tables a block; every thirtieth that is read is chosen on as well, in each scope."""
    rng = np.random.default_rng(block)
    path, read, refused = tmp_path / "odd.csv", 0, 0
    for _ in range(1000):
        path.write_text(odd_table(rng), encoding="utf-8")
        try:
            imported = import_table(path)
        except InputError as error:
            refused += 1
            assert str(error).startswith(str(path)) and "\n" not in str(error)
            continue
        read += 1
        assert sum(imported.columns["n"]) == imported.workload["rows"] and len(imported.read) == 3
        if read % 30 == 0:
            import_to_profile(path, tmp_path / "odd.parquet")
            for scope in ("single", "local", "global"):
                try:
                    schedule = choose(tmp_path / "odd.parquet", granularity="kernel", scope=scope, objective="waste")
                except InputError as error:
                    assert "\n" not in str(error)
                else:
                    # one setting for all may use more than baselines that differ from kernel to kernel
                    most = np.inf if scope == "single" else 1.000001 * schedule["baseline_energy"]
                    assert schedule["status"] == "infeasible" or schedule["energy"] <= most
    assert read > 100 and refused > 100
