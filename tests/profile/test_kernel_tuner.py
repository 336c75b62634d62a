"""Kernel Tuner's files become profiles: its clocks are ours, its failures counted, its variants settings."""

import json

import pytest

from kernel_dvfs.profile.table import import_table, import_to_profile
from kernel_dvfs_clocks.errors import InputError


def entry(time_ms, energy_j=None, **values):
    energy = {} if energy_j is None else {"nvml_energy": energy_j}
    return values | {"time": time_ms, "times": [time_ms]} | energy | {"compile_time": 400.0, "GFLOP/s": 100.0}


def cache(names, entries, **other):
    keyed = {",".join(str(values[name]) for name in names if name in values): values for values in entries}
    return {
        "device_name": "GPU One",
        "kernel_name": "vector_add",
        "problem_size": 4096,
        "tune_params_keys": list(names),
        "tune_params": {name: [values[name] for values in entries if name in values] for name in names},
        "objective": "time",
        "cache": keyed,
    } | other


CLOCKS = ("block_size_x", "nvml_gr_clock", "nvml_mem_clock")


def clock_entry(core, mem, time_ms, energy_j=None, block=128, **values):
    own = {"block_size_x": block, "nvml_gr_clock": core, "nvml_mem_clock": mem}
    return entry(time_ms, energy_j, **own, **values)


ENTRIES = [
    clock_entry(1080, 7001, 3.0, 0.25, core_freq=1080.0),
    clock_entry(1560, 7001, 2.0, 0.30, core_freq=1545.0),
    clock_entry(1560, 405, 20.0, 0.90),
    clock_entry(1800, 405, "RuntimeFailedConfig"),
    clock_entry(2100, 7001, "InvalidConfig"),
]


@pytest.fixture
def write(tmp_path):
    def write(content, name="vector_add.json"):
        path = tmp_path / name
        path.write_text(content if isinstance(content, str) else json.dumps(content, indent=0))
        return path

    return write


def test_a_cache_becomes_a_profile_in_seconds_and_joules(write, tmp_path):
    imported = import_to_profile(write(cache(CLOCKS, ENTRIES)), tmp_path / "p.parquet", reference="highest")
    columns = imported.columns
    assert columns["target"] == ["vector_add"] * 3
    assert columns["core_mhz"] == [1080.0, 1560.0, 1560.0]
    assert columns["mem_mhz"] == [7001.0, 7001.0, 405.0]
    assert columns["time_s"] == pytest.approx([0.003, 0.002, 0.020])
    assert columns["energy_j"] == [0.25, 0.30, 0.90]
    assert columns["reached_core_mhz"] == [1080.0, 1545.0, None]
    assert columns["is_baseline"] == [False, True, False]
    assert imported.settings == ["core_mhz", "mem_mhz"]
    assert imported.gpu == {"kind": "table", "name": "GPU One", "slug": "table-vector-add"}


def test_failed_configurations_are_left_out_and_counted(write):
    entries = [*ENTRIES, clock_entry(300, 7001, 1e20), clock_entry(330, 7001, 1.0, 1.0, __error__="Timeout")]
    imported = import_table(write(cache(CLOCKS, entries)), reference="highest")
    assert len(imported.columns["n"]) == 3
    assert len(imported.notices) == 1 and "4 of 7 configurations failed" in imported.notices[0]


def test_a_cache_has_no_baseline_until_the_user_names_one(write):
    path = write(cache(CLOCKS, ENTRIES))
    with pytest.raises(InputError, match=r"vector_add\.json, configuration 128,1080,7001: .*no baseline.*highest"):
        import_table(path)
    imported = import_table(path, reference="1560,405")
    assert imported.columns["is_baseline"] == [False, False, True]


@pytest.mark.parametrize("cut", ["}}", "}", ",", ",\n"])
def test_a_cache_still_open_for_appending_is_read(write, cut):
    text = json.dumps(cache(CLOCKS, ENTRIES))
    whole = import_table(write(text, "whole.json"), name="x", reference="highest").columns
    text = text.removesuffix(cut) if cut.startswith("}") else text.removesuffix("}}") + cut
    # Kernel Tuner leaves off both braces, never one
    text = text.removesuffix("}") if cut == "}" else text
    assert import_table(write(text), name="x", reference="highest").columns == whole


def test_variants_of_the_code_are_settings_of_one_kernel(write):
    entries = [
        clock_entry(1560, 7001, 2.0, 0.30, block=128),
        clock_entry(1560, 7001, 1.5, 0.28, block=256),
        clock_entry(1080, 7001, 2.5, 0.20, block=256),
    ]
    imported = import_table(write(cache(CLOCKS, entries)), reference="highest")
    assert imported.settings == ["core_mhz", "mem_mhz", "block_size_x"]
    assert imported.columns["block_size_x"] == [128.0, 256.0, 256.0]
    assert imported.columns["is_baseline"] == [False, True, False]  # the faster variant at the highest clocks


def test_a_power_limit_is_the_power_cap_and_clocks_not_tuned_are_auto(write):
    names = ("nvml_pwr_limit", "use_shared", "n")
    entries = [
        entry(1.0, 2.0, nvml_pwr_limit=300, use_shared=True, n=1),
        entry(2.0, 1.5, nvml_pwr_limit=150, use_shared=False, n=2),
    ]
    path = write(cache(names, entries))
    imported = import_table(path, reference="highest")
    assert imported.columns["power_cap_w"] == [300.0, 150.0]
    assert imported.columns["use_shared"] == [1.0, 0.0]
    assert imported.columns["n_parameter"] == [1.0, 2.0] and imported.columns["n"] == [1, 1]
    assert imported.columns["core_mhz"] == imported.columns["mem_mhz"] == [None, None]
    assert imported.columns["is_baseline"] == [True, False]
    with pytest.raises(InputError, match="several baselines"):
        import_table(path)


def test_energy_is_power_times_time_where_only_power_was_observed(write):
    entries = [clock_entry(1080, 7001, 4.0, nvml_power=50.0), clock_entry(1560, 7001, 2.0, nvml_power=120.0)]
    imported = import_table(write(cache(CLOCKS, entries)), reference="highest")
    assert imported.columns["energy_j"] == pytest.approx([0.2, 0.24])
    assert "nvml_power x time" in imported.notices[0]


def test_t4_results_are_read_like_a_cache(write):
    results = []
    for values in ENTRIES:
        measurements = [{"name": name, "value": values[name], "unit": ""} for name in values if name not in CLOCKS]
        failed = isinstance(values["time"], str)
        results.append(
            {
                "configuration": {name: values[name] for name in CLOCKS},
                "invalidity": "runtime" if failed else "correct",
                "measurements": measurements,
                "times": {},
                "correctness": 1,
            }
        )
    t4 = import_table(write({"results": results, "schema_version": "1.0.0"}), reference="highest")
    plain = import_table(write(cache(CLOCKS, ENTRIES)), reference="highest")
    assert t4.columns == plain.columns  # the file is called after the kernel
    assert any("2 of 5" in notice for notice in t4.notices)
    # a wrong result has a time, and a failed one may not say so
    wrong = results[0] | {"configuration": dict(zip(CLOCKS, (256, 1080, 7001))), "invalidity": "correctness"}
    slow = dict(zip(CLOCKS, (512, 1080, 7001)))
    slow = results[0] | {"configuration": slow, "measurements": [{"name": "time", "value": 1e20}]}
    more = import_table(write({"results": [*results, wrong, slow], "schema_version": "1.0.0"}), reference="highest")
    assert more.columns == t4.columns and any("4 of 7" in notice for notice in more.notices)


@pytest.mark.parametrize(
    ("content", "pattern"),
    [
        ("", "line 1, character 1: not JSON"),
        ('{"cache": {\n"1": {"time": }', "line 2, character .*: not JSON"),
        ('{"cache":\n' + 5000 * "9" + "}", "line 1, character 1: not JSON"),  # more digits than Python reads
        ("[1]", "not a Kernel Tuner file"),
        ({"a": 1}, "neither a Kernel Tuner cache"),
        (cache(CLOCKS, ENTRIES, device_name=None), "no device_name"),
        (cache(CLOCKS, ENTRIES, kernel_name=""), "no kernel_name"),
        (cache(CLOCKS, ENTRIES, tune_params_keys=None, tune_params=None), "no tune_params_keys"),
        (cache(CLOCKS, ENTRIES, cache={"1": 2}), "configuration 1: not an object"),
        (cache(CLOCKS, ENTRIES, cache={}), "no configuration was measured"),
        (cache(CLOCKS, ENTRIES[3:]), r"no configuration was measured \(2 failed\)"),
        (cache(("block_size_x",), [entry(1.0, 1.0, block_size_x=32)]), "no clock among .*nvml_gr_clock"),
        (
            cache(CLOCKS, [clock_entry(1080, 7001, 1.0)]),
            "configuration 128,1080,7001: no energy in a known unit",
        ),
        (
            cache(CLOCKS, [clock_entry(1080, 7001, -1.0, 1.0)]),
            "configuration 128,1080,7001, column time: '-1.0'",
        ),
        (
            cache(CLOCKS, [clock_entry(1080, 7001, None, 1.0)]),
            "configuration 128,1080,7001, column time: is empty",
        ),
        (cache(CLOCKS, [clock_entry(1080, 7001, 1.0, "much")]), "column nvml_energy: 'much' is not a number"),
        (cache(CLOCKS, [clock_entry("high", 7001, 1.0, 1.0)]), "column nvml_gr_clock: unknown clock 'high'"),
        (
            cache(CLOCKS, [clock_entry(1080, 7001, 1.0, nvml_power="x")]),
            "column nvml_power: 'x' is not a number",
        ),
        (cache((*CLOCKS, "tile"), ENTRIES), "configuration 128,1080,7001: no value of tile"),
        ({"results": [1]}, "result 1: not a T4 result"),
        ({"results": []}, "no configuration was measured"),
        ("[" * 100_000, "not a Kernel Tuner file|not JSON"),
    ],
)
def test_a_file_that_is_none_gets_one_line(write, content, pattern):
    path = write(content)
    with pytest.raises(InputError, match=pattern) as caught:
        import_table(path, reference="highest")
    assert str(caught.value).startswith(str(path))


def test_a_declared_parameter_is_a_setting_and_an_unknown_one_an_error(write):
    path = write(cache(CLOCKS, ENTRIES))
    imported = import_table(path, settings=["block_size_x"], reference="highest")
    assert imported.columns["block_size_x"] == [128.0] * 3
    with pytest.raises(InputError, match="column block_size_z: declared a setting"):
        import_table(path, settings=["block_size_z"], reference="highest")


def test_our_observer_s_energy_goes_before_a_power_reading_and_a_disturbed_configuration_is_left_out(tmp_path):
    entries = [clock_entry(core, 7001, 2.0, 1.5) for core in (1080, 1290, 1500)]
    for number, entry in enumerate(entries):
        entry |= {"energy_j": 0.25 + number, "verdict": ("ok", "disturbed", "throttled")[number]}
    path = tmp_path / "cache.json"
    path.write_text(json.dumps(cache(CLOCKS, entries)))
    found = import_table(path, reference="highest")
    assert found.columns["energy_j"] == [0.25, 2.25]
    assert any("1 of 3 configurations were disturbed" in notice for notice in found.notices), found.notices


def test_a_power_is_in_watts(write):
    entries = [clock_entry(1110, 7001, 4.0, nvml_power=55.0), clock_entry(1590, 7001, 2.2, nvml_power=125.0)]
    imported = import_table(write(cache(CLOCKS, entries)), reference="highest")
    assert "nvml_power in W" in imported.read[2]


@pytest.mark.parametrize("nothing", [None, float("nan"), 0.0])
def test_a_configuration_whose_sensor_gave_nothing_is_left_out_and_counted(write, nothing):
    entries = [clock_entry(1110, 7001, 4.0, 0.22), clock_entry(1590, 7001, 2.2, 0.27), clock_entry(1350, 7001, 2.9)]
    entries[2]["nvml_energy"] = nothing
    imported = import_table(write(cache(CLOCKS, entries)), reference="highest")
    assert imported.columns["core_mhz"] == [1110, 1590]
    assert any("1 of 3 configurations have no nvml_energy" in notice for notice in imported.notices)
    with pytest.raises(InputError, match="nvml_energy is missing, NaN or 0 in every configuration"):
        import_table(write(cache(CLOCKS, entries[2:])), reference="highest")


def test_requests_that_ran_at_one_clock_are_told(write):
    asked = ((1410, 1410.0), (1605, 1524.0), (1800, 1529.0), (1995, 1545.0))
    entries = [clock_entry(core, 7001, 3e3 / ran, 0.3, core_freq=ran) for core, ran in asked]
    notices = import_table(write(cache(CLOCKS, entries)), reference="highest").notices
    told = [notice for notice in notices if "ran at one clock" in notice]
    assert len(told) == 1 and "vector_add asked for 1605 and 1800 MHz ran at one clock (1524, 1529 MHz)" in told[0]


def t4(time=None, unit=None, timeunit=None, runs=(), mhz=1590):
    measured = [{"name": "nvml_energy", "value": 0.3, "unit": ""}]
    measured += [{"name": "time", "value": time, "unit": unit}] if time else []
    result = {"configuration": {"nvml_gr_clock": mhz}, "invalidity": "correct", "measurements": measured}
    return {"metadata": {"timeunit": timeunit}, "results": [result | {"times": {"runtimes": list(runs)}}]}


@pytest.mark.parametrize(
    "content",
    [
        t4(2.5, "ms"),
        t4(2.5, "", "miliseconds"),
        t4(2.5, None, None),
        t4(0.0025, "s", "miliseconds"),
        t4(0.0025, "", "seconds"),
        t4(2500, "microseconds"),
        t4(None, None, "miliseconds", [2.25, 2.75]),
        t4(None, None, "seconds", [0.00225, 0.00275]),
    ],
)
def test_a_time_of_t4_is_in_the_unit_that_it_says(write, content):
    found = import_table(write(content), reference="highest").columns
    assert found["time_s"] == pytest.approx([0.0025])


def test_a_unit_of_t4_that_is_none_is_named(write):
    with pytest.raises(InputError, match="result 1: a time in 'fortnights'; expected s, ms, us, ns"):
        import_table(write(t4(2.5, "fortnights")), reference="highest")
