"""Thousands of damaged files: records, comparisons, setups and leases. None is taken for a good one, and each is
refused in one line. `--fuzz N` sets how many of each kind and damage."""

import copy
import json
import random

import pytest

from kernel_dvfs.measurement import record
from kernel_dvfs.measurement import setup as setups
from kernel_dvfs.measurement.campaign import Bench
from kernel_dvfs.measurement.target import MeasurementTarget
from kernel_dvfs_clocks.clocks import Pair
from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_clocks.nvml import lease

TARGET, PAIR = MeasurementTarget("kernel", "forward_fc_gemm"), Pair(1890, 9251)
FILES = ("simulated point", "real point", "comparison", "setup", "lease")
DAMAGES = ("truncated", "type", "unit", "NaN", "twice", "schema")
REAL = {
    "run": {
        **{"run_id": "b-1-2", "started_utc": "2026-11-21T00:00:00Z", "host": "h", "boot_id": "b"},
        **{"config_sha256": "0" * 12, "block": 3, "order": 7},
        "spent_s": dict.fromkeys(("windows", "warm_up", "passes", "choosing", "preparing", "other"), 1.5),
    },
    "device": {
        **{"kind": "nvml", "pci_bus_id": "0", "nvml": "13", "binding": "13", "cuda": "13.0", "vbios": "1"},
        **{"ecc": True, "persistence": False, "cuda_runtime": 13000, "cublaslt": 130000},
    },
    "kernel": {"shape": "s", "dtype": "bf16", "instance": "i", "working_set_bytes": 5, "by_graph": True},
    "request": {"lock": "range", "core_range_mhz": [210, 1890], "mem_range_mhz": [405, 9251]},
}


@pytest.fixture(scope="module")
def files(setup, tmp_path_factory):
    """{kind of file: (its content, path to damage, reader)}; each reader accepts the whole file."""
    folder, bench = tmp_path_factory.mktemp("whole"), Bench(setup, TARGET)
    path, other = str(folder / "r0.json"), str(folder / "c.json")
    record.write_point(path, setup, bench, TARGET, "sweep", 0, bench.point(PAIR))
    point = json.loads((folder / "r0.json").read_text())
    # without it, as older records are: each of these damages is told by the numbers themselves
    del point["sha256"]
    real = copy.deepcopy(point)
    for group, fields in REAL.items():
        real[group] |= fields
    record.write_comparison(other, setup, bench.device, "s.json", [bench.compare(PAIR, 0)])
    comparison = json.loads((folder / "c.json").read_text())
    del comparison["sha256"]
    stored = setups.store(str(folder), setup.gpu, setup.workload, setup.targets, setup.measurement)
    content = {
        **{"schema": lease.SCHEMA, "uuid": "GPU-1", "pid": 5, "process_start": 7, "boot_id": "b", "user": "u"},
        **{"host": "h", "since_utc": "2026-11-21T00:00:00Z", "requested": "1500-2201"},
    }

    def read_point(text):
        (folder / "r0.json").write_text(text)
        record.read_point(path, setup, TARGET, PAIR)

    def read_comparison(text):
        (folder / "c.json").write_text(text)
        record.read_comparison(other)

    def read_setup(text):
        with open(stored, "w") as file:
            file.write(text)
        setups.read(stored)

    return {
        "simulated point": (point, read_point),
        "real point": (real, read_point),
        "comparison": (comparison, read_comparison),
        "setup": (json.loads(open(stored).read()), read_setup),
        "lease": (content, lease.parse),
    }


def leaves(node, path=()):
    """Paths of everything in a file but the insides of free texts."""
    if isinstance(node, dict):
        for key, child in node.items():
            yield (*path, key)
            yield from leaves(child, (*path, key))
    elif isinstance(node, list):
        for place, child in enumerate(node):
            yield (*path, place)
            yield from leaves(child, (*path, place))


def at(node, path):
    for step in path:
        node = node[step]
    return node


def put(node, path, value):
    at(node, path[:-1])[path[-1]] = value


def another_type(value, rng):
    if isinstance(value, bool):
        return rng.choice(["yes", 2, [True], {}])
    if isinstance(value, int | float):
        return rng.choice([str(value), [value], {"value": value}, True])
    if isinstance(value, str):
        return rng.choice([7.5, [value], {"text": value}, False])
    if isinstance(value, list):
        return rng.choice(["list", 3, {str(place): child for place, child in enumerate(value)}])
    if isinstance(value, dict):
        return rng.choice([list(value), "group", 4])
    return rng.choice([[], {"null": None}, True])


# quantities in which a wrong unit can be told, wherever they stand in a record
_THOUSANDFOLD = ("duration_s", "energy_mj", "time_us", "power_mw", "core_mhz", "mem_mhz")


def mix_up_units(content, rng):
    """A thousandfold or a thousandth of a quantity: in one place, in all windows, or everywhere at once."""
    measured = [path for path in leaves(content) if path[-1] in _THOUSANDFOLD and "request" not in path]
    name, factor = rng.choice(sorted({path[-1] for path in measured})), rng.choice([1000, 0.001])
    places = [path for path in measured if path[-1] == name]
    how = rng.choice(["one", "windows", "everywhere"])
    chosen = [path for path in places if "windows" in path] if how == "windows" else places
    chosen = [rng.choice(places)] if how == "one" or not chosen else chosen
    for path in chosen:
        value = at(content, path)
        put(content, path, [each * factor for each in value] if isinstance(value, list) else value * factor)


def damaged(content, damage, rng):
    """The text of a file with this damage; None where this file cannot have it."""
    content = copy.deepcopy(content)
    text = json.dumps(content)
    if damage == "truncated":
        return text[: rng.randrange(len(text) - 1)]
    if damage == "schema":
        put(content, ("schema",), rng.choice(["kernel-dvfs/point/2", "kernel-dvfs/lease/9", "", "other", None, 1]))
        return json.dumps(content)
    if damage == "unit":
        if "device" not in content:
            return None
        mix_up_units(content, rng)
        return json.dumps(content)
    if damage == "twice":
        groups = [(), *(path for path in leaves(content) if isinstance(at(content, path), dict) and at(content, path))]
        group = at(content, rng.choice(groups))
        name = rng.choice(list(group))
        group["twice"] = group[name]
        return json.dumps(content).replace('"twice"', json.dumps(name))
    path = rng.choice([path for path in leaves(content) if path != ("schema",)])
    if damage == "NaN":
        path = rng.choice([path for path in leaves(content) if type(at(content, path)) in (int, float)])
        put(content, path, rng.choice([float("nan"), float("inf"), -float("inf")]))
    else:
        put(content, path, another_type(at(content, path), rng))
    return json.dumps(content)


@pytest.mark.parametrize("kind", FILES)
def test_the_whole_file_is_accepted(files, kind):
    content, reader = files[kind]
    reader(json.dumps(content) + "\n")


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("kind", FILES)
def test_no_damaged_file_is_accepted(files, kind, damage, fuzz, fuzz_seed):
    content, reader = files[kind]
    rng, tried = random.Random(f"{kind} {damage}{fuzz_seed}"), 0
    for _ in range(fuzz):
        text = damaged(content, damage, rng)
        if text is None:
            continue
        tried += 1
        try:
            reader(text)
        except InputError as refused:
            assert "\n" not in str(refused)
        else:
            pytest.fail(f"taken for a good {kind}: {text}")
    # two of the kinds hold no quantity whose unit could be told
    assert tried == (0 if (damage, kind) in (("unit", "setup"), ("unit", "lease")) else fuzz)


@pytest.mark.parametrize("factor", [2, 0.5, 1.000001])
def test_energy_and_power_changed_together_everywhere_are_found_by_the_checksum(setup, tmp_path, factor):
    path, bench = str(tmp_path / "r0.json"), Bench(setup, TARGET)
    record.write_point(path, setup, bench, TARGET, "sweep", 0, bench.point(PAIR))
    content = json.loads((tmp_path / "r0.json").read_text())
    record.read_point(path, setup, TARGET, PAIR)
    for each in leaves(content):
        if each[-1] in ("energy_mj", "energy_sd_mj", "power_mw"):
            put(content, each, at(content, each) * factor)
    (tmp_path / "r0.json").write_text(json.dumps(content))
    with pytest.raises(InputError, match=r"was changed since it was written|no power of this GPU"):
        record.read_point(path, setup, TARGET, PAIR)


def test_a_bit_that_flips_anywhere_in_a_record_is_found(setup, tmp_path):
    path, bench = tmp_path / "r0.json", Bench(setup, TARGET)
    record.write_point(str(path), setup, bench, TARGET, "sweep", 0, bench.point(PAIR))
    whole, rng = path.read_bytes(), random.Random("bits")
    for _ in range(2000):
        data = bytearray(whole)
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        path.write_bytes(data)
        try:
            found = record.read_point(str(path), setup, TARGET, PAIR)
        except InputError:
            continue
        path.write_bytes(whole)
        assert found == record.read_point(str(path), setup, TARGET, PAIR), "white space, or a digit past a float's last"
