"""A malformed table gets one line that names file, line and column, and no profile."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernel_dvfs.profile.table import import_table, import_to_profile
from kernel_dvfs_clocks.errors import InputError

HEADER = "gpu,kernel,core_mhz,mem_mhz,time_ms,energy_mj,is_auto"
AUTO = "G,k,,,1,1,1"
PLAIN = "G,k,210,405,2,1,0"


def table(*rows, header=HEADER):
    return "\n".join([header, *rows]) + "\n"


def without(column):
    names = HEADER.split(",")
    keep = [i for i, name in enumerate(names) if name != column]
    return table(*(",".join(row.split(",")[i] for i in keep) for row in (HEADER, AUTO, PLAIN))).split("\n", 1)[1]


CASES = {
    "no time": (without("time_ms"), r"line 1: missing: time per launch, named time_s, time_ms"),
    "no energy": (
        without("energy_mj"),
        r"line 1: missing: energy per launch, named energy_j, energy_mj.*or mean power, named power_w",
    ),
    "no core clock": (without("core_mhz"), r"line 1: missing: core clock, named core_mhz or core_mhz_requested$"),
    "memory clock of another name": (
        table(AUTO, header=HEADER.replace("mem_mhz", "memory_clocking")),
        r"line 1: missing: memory clock.*--columns mem_mhz=memory_clocking, or drop it\?",
    ),
    "no kernel": (without("kernel"), r"line 1: missing: name of the kernel, named kernel$"),
    "two times": (table(AUTO + ",1", header=HEADER + ",time_s"), r"line 1, column time_ms.*column time_s"),
    "two energies": (table(AUTO + ",1", header=HEADER + ",energy_j"), r"column energy_mj.*column energy_j"),
    "two core clocks": (
        table(AUTO + ",", header=HEADER + ",core_mhz_requested"),
        r"column core_mhz_requested: .*column core_mhz",
    ),
    "duplicate column": (table(AUTO + ",1", header=HEADER + ",time_ms"), r"line 1, column time_ms: .*twice"),
    "NaN time": (table(AUTO, "G,k,210,405,nan,1,0"), r"line 3, column time_ms: 'nan' is not a finite number"),
    "infinite energy": (
        table(AUTO, "G,k,210,405,1,inf,0"),
        r"line 3, column energy_mj: 'inf' is not a finite",
    ),
    **{
        f"a number as large as {cell}": (
            table(AUTO, f"G,k,210,405,{cell},1,0"),
            f"column time_ms: '{cell}' is not a fin",
        )
        for cell in ("1e300", "1.2e300", "-1e300", "-1.2e300")
    },
    "a number that is nearly as large": (table(AUTO, "G,k,210,405,9e299,1,0"), "'9e299' is too large to be true"),
    "time that is a word": (
        table(AUTO, "G,k,210,405,fast,1,0"),
        r"line 3, column time_ms: 'fast' is not a number",
    ),
    "decimal comma": (table(AUTO, 'G,k,210,405,"1,5",1,0'), r"line 3, column time_ms: '1,5' is not a number"),
    "digit grouping": (table(AUTO, "G,k,210,405,1_5,1,0"), r"line 3, column time_ms: '1_5' is not a number"),
    "digit grouping everywhere": (
        table("G,k,,,1_0,1,1", "G,k,210,405,2_0,1,0"),
        r"line 2, column time_ms: '1_0' is not a number",
    ),
    "empty time": (table(AUTO, "G,k,210,405,,1,0"), r"line 3, column time_ms: is empty"),
    "zero time": (table(AUTO, "G,k,210,405,0,1,0"), r"line 3, column time_ms: '0' is not above zero"),
    "negative time": (table(AUTO, "G,k,210,405,-1,1,0"), r"line 3, column time_ms: '-1' is not above zero"),
    "negative energy": (
        table(AUTO, "G,k,210,405,1,-1,0"),
        r"line 3, column energy_mj: '-1' is not above zero",
    ),
    "absurd time": (table(AUTO, "G,k,210,405,1e200,1,0"), r"line 3, column time_ms: '1e200' is too large"),
    "core clock that is a word": (
        table(AUTO, "G,k,max,405,1,1,0"),
        r"line 3, column core_mhz: unknown clock 'max'",
    ),
    "zero clock": (table(AUTO, "G,k,0,405,1,1,0"), r"line 3, column core_mhz: unknown clock '0'"),
    "negative clock": (table(AUTO, "G,k,210,-405,1,1,0"), r"line 3, column mem_mhz: unknown clock '-405'"),
    "NaN clock": (table(AUTO, "G,k,210,nan,1,1,0"), r"line 3, column mem_mhz: unknown clock 'nan'"),
    "clock in kHz": (
        table(AUTO, "G,k,1410000,405,1,1,0"),
        r"line 3, column core_mhz: '1410000' is no clock in MHz.*--units core_mhz=khz$",
    ),
    "empty kernel": (table(AUTO, "G,,210,405,1,1,0"), r"line 3, column kernel: is empty"),
    "is_auto neither 1 nor 0": (
        table(AUTO, "G,k,210,405,1,1,2"),
        r"line 3, column is_auto: '2' is neither 1/yes/true nor 0/no/false",
    ),
    "two GPUs": (table(AUTO, PLAIN, "H,k,420,405,1,1,0"), r"line 4, column gpu: 'H' after 'G'"),
    "no auto row": (
        table(AUTO, "G,other,210,405,1,1,0", "G,other,420,405,1,1,0"),
        r"line 3, column is_auto: kernel other has no baseline",
    ),
    "no reference row": (
        table("k,210,405,1,1,0", header="kernel,core_mhz,mem_mhz,time_s,energy_j,is_reference"),
        r"line 2, column is_reference: kernel k has no baseline",
    ),
    "neither auto nor reference column": (
        table("k,210,405,1,1", header="kernel,core_mhz,mem_mhz,time_s,energy_j"),
        r"line 2: kernel k has no baseline.*is_auto.*is_reference.*reference",
    ),
    "two reference points": (
        table(
            "k,210,405,1,1,1",
            "k,420,405,1,1,1",
            header="kernel,core_mhz,mem_mhz,time_s,energy_j,is_reference",
        ),
        r"line 3, column is_reference: kernel k has several baselines: line 2 and line 3",
    ),
    "two auto points": (
        table(AUTO + ",300", AUTO + ",150", header=HEADER + ",power_cap_w"),
        r"line 3, column is_auto: kernel k has several baselines: line 2 and line 3",
    ),
    "power cap that is a word": (
        table(AUTO + ",300", PLAIN + ",high", header=HEADER + ",power_cap_w"),
        r"line 3, column power_cap_w: 'high' is not a number",
    ),
    "negative power cap": (
        table(AUTO + ",300", PLAIN + ",-5", header=HEADER + ",power_cap_w"),
        r"line 3, column power_cap_w: '-5' is no power cap",
    ),
    "undeclared setting": (
        table(AUTO + ",a", PLAIN + ",a", AUTO + ",a", PLAIN + ",b", header=HEADER + ",fan"),
        r"line 5, column fan: 'a' in line 3 but 'b' here.*--only fan=a.*--settings fan.*leave it out",
    ),
    "applied clock that is a word": (
        table(AUTO + ",", PLAIN + ",N/A", header=HEADER + ",core_mhz_applied"),
        r"line 3, column core_mhz_applied: 'N/A' is not a number",
    ),
    "row too short": (table(AUTO, "G,k,210,405,1,1"), r"line 3: 6 cells where the header names 7"),
    "row too long": (table(AUTO, PLAIN + ",9"), r"line 3: 8 cells where the header names 7"),
    "open quote": (table(AUTO, 'G,"k,210,405,1,1,0'), r"line 3: not readable as CSV"),
    "header only": (table(), r"line 1: the table has a header but no rows"),
    "empty": ("", r"line 1: the file is empty"),
    "blank lines only": ("\n\n", r"line 1: the file is empty"),
    "line after a blank one": (table(AUTO, "", "G,k,210,405,x,1,0"), r"line 4, column time_ms"),
    "line after a cell of two lines": (
        table('G,"k\nk",,,1,1,1', "G,k,210,405,x,1,0"),
        r"line 4, column time_ms",
    ),
}


def refused(path, pattern, **options):
    with pytest.raises(InputError, match=pattern) as caught:
        import_to_profile(path, path.with_name("out.parquet"), **options)
    message = str(caught.value)
    assert message.startswith(str(path)), message
    assert "\n" not in message and len(message) < 400
    assert not path.with_name("out.parquet").exists()


@pytest.mark.parametrize("case", CASES)
def test_a_malformed_csv_gets_one_line(tmp_path, case):
    text, pattern = CASES[case]
    path = tmp_path / "bad.csv"
    path.write_text(text, encoding="utf-8")
    refused(path, pattern)


def test_text_that_is_not_utf8_is_named_with_its_line(tmp_path):
    path = tmp_path / "bad.csv"
    path.write_bytes(table(AUTO, "G,k\xe9,210,405,1,1,0").encode("latin-1"))
    refused(path, r"line 3: not UTF-8")


@pytest.mark.parametrize("name", ["table.xlsx", "table", "table.csv.gz"])
def test_an_unknown_ending_names_those_that_are_read(tmp_path, name):
    path = tmp_path / name
    path.write_text(table(AUTO))
    refused(path, r"unknown file ending .*\.csv, \.parquet or a Kernel Tuner \.json")


@pytest.mark.parametrize("ending", ["csv", "parquet", "json"])
def test_a_missing_file_and_a_folder_are_named(tmp_path, ending):
    refused(tmp_path / f"absent.{ending}", "no such file")
    (tmp_path / f"folder.{ending}").mkdir()
    refused(tmp_path / f"folder.{ending}", "cannot be read")


@pytest.mark.parametrize("name", ["fast", "time_ms", "n"])
def test_a_declared_setting_must_be_a_column_of_its_own(tmp_path, name):
    path = tmp_path / "table.csv"
    path.write_text(table(AUTO + ",1", header=HEADER + ",n"))
    refused(path, f"line 1, column {name}: declared a setting", settings=[name])


def test_a_name_without_letters_or_digits_makes_no_slug(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text(table(AUTO))
    refused(path, "name", name="///")


COLUMNS = {
    "kernel": ["k", "k"],
    "core_mhz": [None, 210.0],
    "mem_mhz": [None, 405.0],
    "time_s": [1.0, 2.0],
    "energy_j": [1.0, 1.0],
}


@pytest.mark.parametrize(
    ("other", "pattern"),
    [
        ({"time_s": [1.0, float("nan")]}, r"row 2, column time_s: 'nan' is not a finite"),
        ({"time_s": [1.0, None]}, r"row 2, column time_s: is empty"),
        ({"time_s": [True, True]}, r"row 1, column time_s: 'True' is not a number"),
        ({"time_s": [[1.0], [2.0]]}, r"column time_s holds list<.*>, where a number or a text belongs"),
        ({"core_mhz": [None, float("nan")]}, r"row 2, column core_mhz: unknown clock"),
        ({"core_mhz": [[], [1.0]]}, r"column core_mhz holds list<.*>"),
        ({"core_mhz": [420.0, 210.0]}, r"row 1: kernel k has no baseline"),
        ({"gpu": ["A", "B"]}, r"row 2, column gpu: 'B' after 'A'"),
        ({"time_ms": [1.0, 1.0]}, r"column time_ms: .*column time_s"),
        ({name: pa.array([], pa.float64()) for name in COLUMNS}, r"no rows"),
    ],
)
def test_a_malformed_parquet_table_gets_one_line(tmp_path, other, pattern):
    path = tmp_path / "bad.parquet"
    pq.write_table(pa.table(COLUMNS | other), path)
    refused(path, pattern)


def test_a_parquet_file_cut_short_is_named(tmp_path):
    path = tmp_path / "bad.parquet"
    pq.write_table(pa.table(COLUMNS), path)
    path.write_bytes(path.read_bytes()[:-10])
    refused(path, "not a readable Parquet file")


def test_a_parquet_column_that_appears_twice_is_named(tmp_path):
    path = tmp_path / "bad.parquet"
    pq.write_table(pa.Table.from_arrays([pa.array([1.0])] * 2, names=["time_s", "time_s"]), path)
    refused(path, "column time_s: the name appears twice")


CELLS = st.one_of(
    st.sampled_from(["", "auto", "1", "0", "-1", "nan", "1e999", "210", '"', "k", "\x00", "é", "1_0", ","]),
    st.text(max_size=4),
)


GOOD = [*AUTO.split(","), "300", "x"]


@pytest.mark.slow
@settings(max_examples=80, deadline=None)
@given(
    header=st.permutations([*HEADER.split(","), "power_cap_w", "odd"]),
    spoiled=st.lists(st.dictionaries(st.integers(0, 9), CELLS, max_size=3), max_size=4),
)
def test_whatever_a_csv_holds_the_answer_is_a_profile_or_one_line(tmp_path_factory, header, spoiled):
    good = dict(zip([*HEADER.split(","), "power_cap_w", "odd"], GOOD, strict=True))
    row = [good[name] for name in header] + [None]
    rows = [[cells.get(i, cell) for i, cell in enumerate(row)] for cells in spoiled]
    rows = [[cell for cell in cells if cell is not None] for cells in rows]
    path = tmp_path_factory.mktemp("fuzz") / "t.csv"
    path.write_bytes("\n".join(",".join(cells) for cells in [header, *rows]).encode("utf-8", "surrogatepass"))
    try:
        imported = import_table(path)
    except InputError as error:
        assert str(path) in str(error) and "\n" not in str(error)
    else:
        assert sum(imported.columns["n"]) == imported.workload["rows"]
