"""The configuration: shipped values pass, everything impossible is one line that says what is allowed."""

from dataclasses import replace
from itertools import pairwise

import pytest

from kernel_dvfs.plan import config as configuration
from kernel_dvfs.plan.study import plan
from kernel_dvfs_clocks.errors import InputError


@pytest.fixture(scope="module")
def refused(config, root, tmp_path_factory):
    """The line that a changed configuration is refused with."""

    def line(**changed):
        values = config(**changed)
        with pytest.raises(InputError) as error:
            configuration.check(values, root / "workflow/schemas/config.schema.yaml")
            plan(values, str(tmp_path_factory.mktemp("results")))
        assert "\n" not in str(error.value) and str(error.value).startswith("config: ")
        return str(error.value)

    return line


def test_the_shipped_configuration_is_possible(config, root, tmp_path):
    values = config()
    configuration.check(values, root / "workflow/schemas/config.schema.yaml")
    study = plan(values, str(tmp_path))
    assert study.folder == f"{tmp_path}/sim-rtx-3080-ti/gpt3-xl-b40-tp1"
    assert (len(study.kernels), study.passes, len(study.pairs)) == (46, ("forward", "backward"), 57)


def test_the_papers_configuration_is_one_sweep_of_its_grid_and_no_margin(config, root, tmp_path):
    values = config(**configuration.load(str(root / "config/paper.yaml")))
    configuration.check(values, root / "workflow/schemas/config.schema.yaml")
    study = plan(values, str(tmp_path))
    assert not study.is_by_clock and study.limits_percent == [0] and len(study.schedules) == 18
    assert {study.repeats_at(*pair) for pair in study.pairs} == {1}
    cores = sorted({pair.core_mhz for pair in study.pairs} - {"auto"})
    assert [high - low for low, high in pairwise(cores)] == [210] * (len(cores) - 1) and len(study.pairs) == 57


def test_every_key_is_commented_and_in_the_schema(root):
    import yaml

    schema = yaml.safe_load((root / "workflow/schemas/config.schema.yaml").read_text())
    text = (root / "config.yaml").read_text()
    assert set(yaml.safe_load(text)) == set(schema["properties"]) == set(schema["required"])
    lines = text.splitlines()
    for key in schema["properties"]:
        at = next(number for number, line in enumerate(lines) if line.startswith(f"{key}:"))
        above = next(line for line in reversed(lines[:at]) if not line[:1].isalpha())
        assert above.startswith("#"), key
        assert schema["properties"][key].get("description"), key


@pytest.mark.parametrize(
    ("key", "value", "named"),
    [
        ("pipeline", {}, ["pipeline", "key 'profile' is missing"]),
        ("batch", 0, ["batch", "0", "from 1"]),
        ("batch", 2.5, ["batch", "2.5", "whole number"]),
        ("batch", "many", ["batch", "many"]),
        ("limits_percent", [0, -1], ["limits_percent.1", "-1", "from 0"]),
        ("limits_percent", 5, ["limits_percent = 5", "a list"]),
        ("limits_percent", [1, 1.0], ["limits_percent = [1, 1.0]", "different"]),
        ("limits_percent", [*range(21)], ["limits_percent", "at most 20"]),
        ("by_clock", {"minutes": -1, "worth_percent": 0, "over_percent": 10}, ["by_clock.minutes", "-1", "0 (off)"]),
        ("by_clock", {"minutes": 1e5, "worth_percent": 0, "over_percent": 10}, ["by_clock.minutes", "10000"]),
        ("by_clock", {"minutes": None, "worth_percent": 0, "over_percent": 10}, ["by_clock.minutes", "a number"]),
        ("by_clock", {"minutes": 9, "worth_percent": -0.5, "over_percent": 10}, ["by_clock.worth_percent", "-0.5"]),
        ("by_clock", {"minutes": 9, "worth_percent": 0, "over_percent": 0}, ["over_percent", "from 0.001 to 50"]),
        ("by_clock", {"minutes": 9, "worth_percent": 0, "over_percent": 50.5}, ["over_percent", "from 0.001 to 50"]),
        ("by_clock", {"minutes": 9, "over_percent": 10}, ["by_clock", "'worth_percent' is missing"]),
        ("by_clock", 30, ["by_clock = 30", "a mapping with minutes, worth_percent and over_percent"]),
        ("tensor_parallel", 3, ["3", "16 heads", "1, 2, 4, 8, 16"]),
        ("tensor_parallel_degrees", [1, 3], ["tensor_parallel_degrees = 3", "1, 2, 4, 8, 16"]),
        ("window_s", float("inf"), ["window_s", "finite"]),
        ("limits_percent", [1e-7], ["limits_percent", "decimals"]),
        ("gpu_overrides", {"governer": {"cap_w": 3}}, ["top level", "governer"]),
        ("data_parallel_batches", [40, 0], ["data_parallel_batches.1", "0", "from 1"]),
        ("data_parallel_batches", [40, 40], ["data_parallel_batches"]),
        ("gpu", "rtx_9999", ["rtx_9999", "rtx_3080_ti"]),
        ("gpu", {"kind": "table"}, ["gpu", "path"]),
        ("gpu", {"kind": "table", "path": "missing.csv"}, ["missing.csv"]),
        ("model", "gpt5", ["gpt5", "gpt3-xl"]),
        ("grid", {"core_mhz": [1471], "mem_mhz": "all", "auto": True}, ["1471", "steps of 15"]),
        ("grid", {"core_mhz": "all", "mem_mhz": [5000], "auto": True}, ["5000", "5001"]),
        ("grid", {"core_mhz": "some", "mem_mhz": "all", "auto": True}, ["grid.core_mhz", "some"]),
        ("grid", {"core_mhz": {"stride": 3}, "mem_mhz": "all", "auto": True}, ["grid.core_mhz"]),
        ("ties", "loose", ["ties", "tied or untied"]),
        ("weights", "heavy", ["weights", "equal-time"]),
        ("window_s", 0, ["window_s", "0.1"]),
        ("gpu_overrides", {"governor": {"cap_w": -1}}, ["cap_w", "-1"]),
        ("native", {"cpu": "maybe", "cuda": "off"}, ["native.cpu", "maybe"]),
        ("validation_repeats", 1, ["validation_repeats", "from 2"]),
    ],
)
def test_an_impossible_value_is_refused_with_key_value_and_what_is_allowed(refused, key, value, named):
    line = refused(**{key: value})
    assert all(word in line for word in named), line


@pytest.mark.parametrize(("minutes", "is_by_clock"), [(0, False), (0.5, True), (30, True)])
def test_minutes_of_the_board_are_a_budget_and_none_is_the_best_of_one_sweep(
    config, root, tmp_path, minutes, is_by_clock
):
    values = config(by_clock={"minutes": minutes, "worth_percent": 0.05, "over_percent": 2.5})
    configuration.check(values, root / "workflow/schemas/config.schema.yaml")
    study = plan(values, str(tmp_path))
    assert study.is_by_clock == is_by_clock
    told = {name: study.by_clock_options()[name] for name in ("minutes", "worth_percent", "over_percent")}
    assert told == {"minutes": minutes, "worth_percent": 0.05, "over_percent": 2.5}


@pytest.mark.parametrize(("clocks", "is_by_clock"), [("lock", True), ("external", False), ("auto-only", False)])
def test_what_sets_no_clocks_of_its_own_is_not_studied_by_clock(config, tmp_path, clocks, is_by_clock):
    study = plan(config(), str(tmp_path))
    real = replace(study, kind="nvml", options=study.options | {"clocks": clocks})
    assert real.is_by_clock == is_by_clock and bool(real.walk_file("", "global", "waste", "")) == is_by_clock


@pytest.mark.parametrize("key", ["refine", "search", "guided", "skip_capped", "temperature", "band_c"])
def test_a_key_of_an_earlier_version_is_unknown(refused, key):
    assert f"unknown key '{key}'" in refused(**{key: 1})


def test_an_unknown_key_is_refused_with_the_one_that_was_meant(refused):
    assert "did you mean 'batch'" in refused(batchs=3)
    assert "unknown key 'grid.core'" in refused(grid={"core": 1, "core_mhz": "all", "mem_mhz": "all", "auto": True})
    assert "did you mean 'limits_percent'?" in refused(slack_percent=2)
    assert "did you mean 'batch'?" in refused(batch_size=20)


def test_a_missing_key_is_named(config, root):
    values = config()
    del values["seed"]
    with pytest.raises(InputError, match="seed"):
        configuration.check(values, root / "workflow/schemas/config.schema.yaml")


def test_text_from_a_command_line_gets_its_type(config, root):
    values = config(grid={"core_mhz": ["1470"], "mem_mhz": "all", "auto": "true"}, batch="20")
    configuration.check(values, root / "workflow/schemas/config.schema.yaml")
    assert values["grid"] == {"core_mhz": [1470], "mem_mhz": "all", "auto": True} and values["batch"] == 20


@pytest.mark.parametrize("model", ["gpt3-125m", "gpt3-350m", "gpt3-6.7b", "gpt3-13b", "gpt3-175b"])
def test_every_model_runs_with_the_shipped_settings(config, tmp_path, model):
    study = plan(config(model=model), str(tmp_path))
    assert study.degrees[0] == 1 and len(study.kernels) == 46


def test_a_refused_configuration_leaves_no_trace(refused, config, tmp_path):
    with pytest.raises(InputError):
        plan(config(tensor_parallel_degrees=[1, 3]), str(tmp_path))
    assert not list(tmp_path.iterdir())


def test_a_bare_on_or_off_is_what_it_says(config, root):
    values = config(native={"cpu": True, "cuda": False})
    configuration.check(values, root / "workflow/schemas/config.schema.yaml")
    assert values["native"] == {"cpu": "on", "cuda": "off"}


def bomb(levels):
    """Ten times as much a level, as aliases of YAML make it."""
    made = ["x"] * 10
    for _ in range(levels):
        made = [made] * 10
    return made


@pytest.mark.parametrize("key", ["by_clock", "unknown"])
@pytest.mark.parametrize("as_text", [False, True])
def test_what_nobody_could_go_through_is_refused_at_once(refused, key, as_text):
    aliases = [f"&a{k} [{', '.join([f'*a{k - 1}'] * 10)}]" for k in range(1, 12)]
    text = f"[&a0 [{', '.join('x' * 10)}], {', '.join(aliases)}]"
    said = refused(**{key: text if as_text else bomb(12)})
    # what is no YAML that is taken stays a text
    assert ("holds itself, or more than 100000 values" in said) != as_text and "\n" not in said
