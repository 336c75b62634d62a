"""Small files that would cost much are refused in one line: what costs is counted before it is paid."""

import gzip

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kernel_dvfs.plan import config
from kernel_dvfs.profile.table import import_table
from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_clocks.files import parse_json, parse_yaml
from kernel_dvfs_serving.trace import read_trace


@pytest.mark.parametrize("levels", range(1, 9))
def test_merges_of_merges_are_counted_before_they_are_written_out(levels):
    star = [f"a{k}: &a{k} {{<<: [{', '.join([f'*a{k - 1}'] * 10)}], z{k}: 1}}\n" for k in range(1, levels + 1)]
    text = "a0: &a0 {x: 1, y: 2}\n" + "".join(star)
    if levels < 5:
        assert parse_yaml(text)[f"a{levels}"]["x"] == 1
    else:
        with pytest.raises(ValueError, match="merges make more than 100000 values"):
            parse_yaml(text)


@pytest.mark.parametrize("text", ["!!timestamp x", '!!int ""', "!!set [a]", "a: !!int ''", "!!float '1:'", "!!bool x"])
def test_a_tag_that_does_not_fit_is_named(text):
    with pytest.raises(ValueError, match=r"a tag does not fit|could not convert|invalid literal"):
        parse_yaml(text)


def test_yaml_is_read_up_to_a_length():
    assert len(parse_yaml("- a\n" * 32_000)) == 32_000
    with pytest.raises(ValueError, match="132000 characters of YAML; at most 131072 are read"):
        parse_yaml("- a\n" * 33_000)


@pytest.mark.parametrize("read", [parse_json, parse_yaml])
def test_what_is_nested_too_deeply_for_whoever_goes_through_it_is_refused(read):
    for deep, fits in ((64, True), (65, False), (700, False)):
        text = '{"a": ' * (deep - 1) + "[]" + "}" * (deep - 1)
        if fits:
            assert "a" in read(text)
        else:
            with pytest.raises(ValueError, match="nested too deeply"):
                read(text)


def test_a_deep_configuration_is_one_line(tmp_path):
    for name, text in (("c.yaml", "a: " + "[" * 700 + "]" * 700), ("c.json", '{"a": ' + "[" * 700 + "]" * 700 + "}")):
        (tmp_path / name).write_text(text)
        with pytest.raises(InputError, match="nested too deeply") as refused:
            config.load(tmp_path / name)
        assert "\n" not in str(refused.value)


def test_a_name_that_comes_twice_among_many_is_found_in_one_look():
    """Counted: a name is compared as often as its dictionary does, not once a pair of names."""
    many = 50_000
    text = "{" + ",".join(f'"{place}":1' for place in range(many)) + f',"{many - 1}":2}}'
    with pytest.raises(ValueError, match=f"'{many - 1}' appears twice"):
        parse_json(text)


def test_more_columns_than_a_table_has_are_refused(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text(",".join(f"c{place}" for place in range(40_000)) + "\n")
    with pytest.raises(InputError, match="line 1: 40000 columns; at most 4096 are read"):
        import_table(path)


def test_a_packed_trace_is_not_unpacked(tmp_path):
    path = tmp_path / "trace.csv.gz"
    path.write_bytes(gzip.compress(b"TIMESTAMP,ContextTokens,GeneratedTokens\n" + b"0,1,1\n" * 9))
    with pytest.raises(InputError, match="is compressed; unpack it first"):
        read_trace(path)


@pytest.mark.parametrize("rows", [50, 300_000])
def test_parquet_that_unpacks_to_more_than_measurements_do_is_refused(tmp_path, rows):
    """Equal values in every row take next to nothing in a file."""
    path = tmp_path / "t.parquet"
    columns = {"core_mhz": 1410.0, "time_s": 1.0, "energy_j": 230.0}
    columns = {name: np.full(rows, value) for name, value in columns.items()} | {"kernel": ["k"] * rows}
    pq.write_table(pa.table(columns), path)
    if rows == 50:
        assert import_table(path, reference="highest").columns["n"] == [50]
        return
    with pytest.raises(InputError, match=r"bytes that unpack to 1200000 values, which no measurements are packed to"):
        import_table(path, reference="highest")


def test_a_long_text_that_stands_in_every_row_is_not_written_out(tmp_path):
    path, rows = tmp_path / "t.parquet", 30_000
    kernel = pa.DictionaryArray.from_arrays(np.zeros(rows, np.int32), ["k" * 30_000])
    pq.write_table(pa.table({"kernel": kernel}), path, store_schema=False)
    with pytest.raises(InputError, match=r"texts of more than .* bytes in its rows"):
        import_table(path)
