"""A profile comes back from disk as it was written, or is refused by name."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kernel_dvfs.profile.store import COLUMNS, METADATA_KEY, SCHEMA, read_profile, write_profile
from kernel_dvfs_clocks.errors import InputError

GPU = {"kind": "simulated", "name": "GPU One", "slug": "sim-gpu-one"}
WORKLOAD = {"name": "toy-b1-tp1"}
CLOCKS = ["core_mhz", "mem_mhz"]


def columns(**other):
    rows = {
        "study": ["kernel", "kernel", "pass"],
        "target": ["gemm", "gemm", "forward"],
        "launches_per_iteration": [24, 24, 1],
        "core_mhz": [None, 1470, None],
        "mem_mhz": [None, 5001.0, 9251.0],
        "reached_core_mhz": [1905.0, 1470.0, None],
        "reached_mem_mhz": [None, None, None],
        "time_s": [1e-3, 2e-3, 0.25],
        "time_sd_s": [1e-6, None, None],
        "energy_j": [0.3, 0.2, 70.0],
        "energy_sd_j": [0.0, None, None],
        "n": [10, 1, 1],
        "verdict": ["ok", "unstable", "ok"],
        "replicate_group": [None, None, "halves"],
        "is_baseline": [True, False, True],
        "time_se_s": [1e-6, 1e-5, None],
        "energy_se_j": [0.01, 0.02, None],
    }
    return rows | other


@pytest.fixture
def path(tmp_path):
    return tmp_path / "results" / "profile.parquet"


@pytest.fixture
def written(path):
    write_profile(path, columns(), GPU, WORKLOAD, CLOCKS)
    return path


def test_a_profile_comes_back_as_it_was_written(written):
    profile = read_profile(written)
    assert profile.table.to_pydict() == columns(core_mhz=[None, 1470.0, None])
    assert profile.metadata == {"schema": SCHEMA, "gpu": GPU, "workload": WORKLOAD, "settings": CLOCKS}


def test_the_columns_are_those_of_the_contract_in_order_and_type(written):
    schema = pq.read_schema(written)
    assert schema.names == list(COLUMNS)
    assert [str(schema.field(name).type) for name in COLUMNS] == (
        ["string", "string", "int64"] + ["double"] * 8 + ["int64", "string", "string", "bool", "double", "double"]
    )
    assert json.loads(schema.metadata[b"kernel_dvfs"])["schema"] == "kernel-dvfs/profile/1"


def rewritten(path, change, table=lambda table, _: table):
    """A profile by another's hand: its table and its metadata changed, its checksum kept unless `change` takes it."""
    own = pq.read_table(path)
    metadata = json.loads(own.schema.metadata[METADATA_KEY])
    change(metadata)
    pq.write_table(table(own, metadata).replace_schema_metadata({METADATA_KEY: json.dumps(metadata)}), path)


@pytest.mark.parametrize(
    "change",
    [
        lambda m: m["gpu"].update(name="GPU Two"),
        lambda m: m["gpu"].update(kind="nvml"),
        lambda m: m["workload"].update(name="toy-b2-tp1"),
        lambda m: m["workload"].update(more=[1]),
        lambda m: m.update(sha256=m["sha256"].upper()),
        lambda m: m.update(settings=[*CLOCKS, "power_limit_w"]),
    ],
)
def test_metadata_that_was_changed_is_refused(path, change):
    write_profile(path, columns(power_cap_w=[150.0, None, 300.5]), GPU, WORKLOAD, [*CLOCKS, "power_cap_w"])

    # a setting's name stands in both places
    rewritten(path, change, lambda table, metadata: table.rename_columns([*COLUMNS, *metadata["settings"][2:]]))
    with pytest.raises(
        InputError, match=r"profile\.parquet: was changed since it was written: .*; delete it, and make it with"
    ) as no:
        read_profile(path)
    assert "\n" not in str(no.value)


@pytest.mark.parametrize(
    ("name", "values"),
    [("target", ["gelu", "gemm", "forward"]), ("time_s", [1e-3, 2e-3, 0.250000001]), ("n", [10, 2, 1])],
)
def test_a_name_or_a_number_that_was_changed_is_refused(written, name, values):
    place = COLUMNS.index(name)

    def other(table, _):
        return table.set_column(place, table.schema.field(place), pa.array(values, table.schema.field(place).type))

    rewritten(written, lambda m: None, other)
    with pytest.raises(InputError, match="was changed since it was written"):
        read_profile(written)


def test_a_profile_of_a_version_that_wrote_no_checksum_is_read(written):
    rewritten(written, lambda m: m.pop("sha256"))
    assert read_profile(written).metadata == {"schema": SCHEMA, "gpu": GPU, "workload": WORKLOAD, "settings": CLOCKS}
    rewritten(written, lambda m: m.update(sha256=1))
    with pytest.raises(InputError, match="sha256 is 1, expected"):
        read_profile(written)


@pytest.mark.parametrize("text", ['{"schema": NaN}', '{"a": 1, "a": 2}', "{", b"\xff", "[" * 100_000])
def test_metadata_that_is_no_json_is_refused(written, text):
    pq.write_table(pq.read_table(written).replace_schema_metadata({METADATA_KEY: text}), written)
    with pytest.raises(InputError, match="the kernel_dvfs metadata is not JSON"):
        read_profile(written)


def test_further_settings_follow_as_numbers_or_text(path):
    extra = {"power_cap_w": [150, None, 300.5], "mode": ["eco", None, "boost"]}
    write_profile(path, columns(**extra), GPU, WORKLOAD, [*CLOCKS, "power_cap_w", "mode"])
    table, metadata, _ = read_profile(path)
    assert table.column_names[len(COLUMNS) :] == ["power_cap_w", "mode"]
    assert table["power_cap_w"].to_pylist() == [150.0, None, 300.5]
    assert table["mode"].to_pylist() == ["eco", None, "boost"]
    assert metadata["settings"] == ["core_mhz", "mem_mhz", "power_cap_w", "mode"]


def test_the_same_rows_give_the_same_bytes(path, tmp_path):
    for target in (path, tmp_path / "second.parquet"):
        write_profile(target, columns(), GPU, WORKLOAD, CLOCKS)
    assert path.read_bytes() == (tmp_path / "second.parquet").read_bytes()


@pytest.mark.parametrize(
    ("other", "settings"),
    [
        ({"time_s": [1.0]}, CLOCKS),
        ({"time_s": [1.0, float("nan"), 1.0]}, CLOCKS),
        ({"time_s": [1.0, 0.0, 1.0]}, CLOCKS),
        ({"time_s": [1.0, None, 1.0]}, CLOCKS),
        ({"energy_j": [1.0, float("inf"), 1.0]}, CLOCKS),
        ({"energy_sd_j": [-1.0, None, None]}, CLOCKS),
        ({"core_mhz": [-210.0, 1.0, 1.0]}, CLOCKS),
        ({"core_mhz": ["auto", 1.0, 1.0]}, CLOCKS),
        ({"power_cap_w": [1.0, float("nan"), 1.0]}, [*CLOCKS, "power_cap_w"]),
        ({"n": [0, 1, 1]}, CLOCKS),
        ({"study": ["kernels", "kernel", "pass"]}, CLOCKS),
        ({"surplus": [1, 1, 1]}, CLOCKS),
        ({}, [*CLOCKS, "power_cap_w"]),
        ({}, ["mem_mhz", "core_mhz"]),
        ({}, [*CLOCKS, "target"]),
        ({name: [] for name in COLUMNS}, CLOCKS),
    ],
)
def test_a_caller_that_breaks_the_contract_writes_nothing(path, other, settings):
    with pytest.raises(ValueError, match=r"profile|columns|setting"):
        write_profile(path, columns(**other), GPU, WORKLOAD, settings)
    assert not path.exists()


@pytest.mark.parametrize("gpu", [GPU | {"kind": "abacus"}, GPU | {"slug": ""}, {"kind": "table"}])
def test_a_gpu_without_kind_name_and_slug_is_refused(path, gpu):
    with pytest.raises(ValueError, match="gpu"):
        write_profile(path, columns(), gpu, WORKLOAD, CLOCKS)


def test_a_missing_profile_is_named(path):
    with pytest.raises(InputError, match=r"profile\.parquet: no such file"):
        read_profile(path)


@pytest.mark.parametrize("keep", [0, 3, 100, -1])
def test_a_truncated_profile_is_named(written, keep):
    written.write_bytes(written.read_bytes()[:keep])
    with pytest.raises(InputError, match=r"profile\.parquet: not a readable Parquet file"):
        read_profile(written)


def test_a_foreign_parquet_file_is_named(path):
    path.parent.mkdir()
    pq.write_table(pa.table({"a": [1]}), path)
    with pytest.raises(InputError, match=r"profile\.parquet: a Parquet file, but not a profile"):
        read_profile(path)


def tampered(path, table=None, metadata=None):
    own, packed, _ = read_profile(path)
    table = own if table is None else table(own)
    packed = packed if metadata is None else metadata(packed)
    pq.write_table(table.replace_schema_metadata({METADATA_KEY: json.dumps(packed)}), path)
    return path


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"table": lambda t: t.drop_columns(["time_s"])}, "time_s"),
        ({"table": lambda t: t.append_column("b", pa.array([1, 2, 3]))}, "'b'"),
        (
            {"table": lambda t: t.set_column(7, "time_s", pa.array(["1", "2", "3"]))},
            "column time_s is string",
        ),
        (
            {"table": lambda t: t.set_column(7, "time_s", pa.array([1.0, None, 1.0]))},
            "time_s has empty cells",
        ),
        ({"table": lambda t: t.set_column(7, "time_s", pa.array([1.0, -1.0, 1.0]))}, "time_s holds a value"),
        ({"table": lambda t: t.slice(0, 0)}, "no rows"),
        ({"metadata": lambda m: m | {"schema": "kernel-dvfs/profile/2"}}, "kernel-dvfs/profile/2"),
        ({"metadata": lambda m: m | {"settings": [*CLOCKS, "power_cap_w"]}}, "power_cap_w"),
        (
            {"metadata": lambda m: m | {"settings": None}},
            "settings is None, expected a list that begins",
        ),
        ({"metadata": lambda m: m | {"workload": {}}}, "workload.name is missing; "),
        ({"metadata": lambda m: [m]}, "not a kernel-dvfs/profile/1 file; "),
    ],
)
def test_a_profile_that_was_tampered_with_is_refused_by_name(written, change, message):
    with pytest.raises(InputError, match=r"profile\.parquet: not a profile: .*" + message):
        read_profile(tampered(written, **change))


def test_a_failed_write_leaves_the_old_profile(written):
    before = written.read_bytes()
    with pytest.raises(ValueError, match="at least 1"):
        write_profile(written, columns(n=[0, 0, 0]), GPU, WORKLOAD, CLOCKS)
    assert written.read_bytes() == before
    assert [file.name for file in written.parent.iterdir()] == ["profile.parquet"]


def test_a_disk_that_is_full_or_a_name_that_is_too_long_is_said_of_the_profile(tmp_path):
    for path, why in (("/dev/full", "No space left on device"), (str(tmp_path / ("x" * 300)), "File name too long")):
        with pytest.raises(InputError) as no:
            write_profile(path, columns(), GPU, WORKLOAD, CLOCKS)
        assert str(no.value) == f"{path}: cannot be written: {why}"
    assert not list(tmp_path.iterdir())


def test_no_flipped_bit_gives_other_data(path):
    many = 200
    rows = {name: values[:1] * many for name, values in columns().items()}
    rows |= {
        "time_s": [1e-3 * (1 + row / 7) for row in range(many)],
        "energy_j": [0.3 / (1 + row / 9) for row in range(many)],
    }
    write_profile(path, rows, GPU, WORKLOAD, CLOCKS)
    data, truth = path.read_bytes(), read_profile(path).table
    refused = 0
    for place in range(0, 8 * len(data), max(1, 8 * len(data) // 500)):
        flipped = bytearray(data)
        flipped[place // 8] ^= 1 << place % 8
        path.write_bytes(flipped)
        try:
            found = read_profile(path).table
        except InputError:
            refused += 1
        else:
            assert found.equals(truth), f"bit {place} of {8 * len(data)}"
    assert refused > 150
