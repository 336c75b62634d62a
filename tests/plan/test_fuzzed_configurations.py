"""Thousands of damaged configurations: each is refused in one line, or it plans, measures and is read back.

`--fuzz N` sets how many; they are drawn from a seed, so a failure comes again.
"""

import copy
import json
import random
import time
import traceback

import pytest

from kernel_dvfs.gpu.spec import resolve
from kernel_dvfs.measurement import record
from kernel_dvfs.measurement.campaign import Bench
from kernel_dvfs.measurement.setup import read
from kernel_dvfs.measurement.target import MeasurementTarget
from kernel_dvfs.outputs import asked_by
from kernel_dvfs.plan import config as configuration
from kernel_dvfs.plan import study as planning
from kernel_dvfs.registry import outputs
from kernel_dvfs_clocks.clocks import BASELINE
from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_pipeline.study_plan import plan_pipeline
from kernel_dvfs_serving.study_plan import plan_serving

LIMIT_S = 20  # of CPU time: no configuration may take longer
# values that a slip of the keyboard, a template or another tool may leave anywhere
ODD = (
    *(None, True, False, 0, -1, 1, 2, 3, 7, 1.0, 2.0, 0.5, -0.5, 1e-7, 1e-300, 1e15, 1e300, 10**6, 10**9, 10**20),
    *(float("nan"), float("inf"), -float("inf"), "", " ", "auto", "all", "null", "1", "1e3", "0x10", "1_000", "on"),
    *("a b", "../x", "$(touch x)", "a;b", "a\nb", "\x1b[2J", "caf\udce9", "\0", "{x}", "-o", "é", "x" * 300),
    *([], {}, [1], [1.0], [None], [[]], [1, 1], ["a"], {"a": 1}, {1: 2}, [0.5, 0.5000001], list(range(1, 2000))),
)


def places(node, path=()):
    """Paths of every value in a tree."""
    for key, child in node.items() if isinstance(node, dict) else enumerate(node):
        yield (*path, key)
        if isinstance(child, dict | list):
            yield from places(child, (*path, key))


def at(node, path):
    for step in path:
        node = node[step]
    return node


def near(value, rng):
    """What is nearly right: another type, another size, one more or one less."""
    if isinstance(value, bool):
        return rng.choice([int(value), str(value), not value])
    if isinstance(value, int | float):
        factor = rng.choice([0.5, 0.9, 1.0000001, 1.1, 2, -1, 1e-6, 1e6, 1e12])
        scaled = type(value)(value * factor)
        return rng.choice(
            [scaled, scaled, scaled, value + 1, value - 1, value + 0.5, float(value), str(value), [value]]
        )
    if isinstance(value, str):
        return rng.choice([value.upper(), f"{value} ", value[:-1], [value], {value: value}])
    if isinstance(value, list):
        return rng.choice(
            [value * 2, value[:1], value[::-1], [*value, 1e-9], [*map(float_of, value)], [*value, None], [value]]
        )
    if isinstance(value, dict):
        return rng.choice([list(value), {**value, "more": 1}, {str(key).upper(): each for key, each in value.items()}])
    return rng.choice([0, "null", [], {}])


def float_of(value):
    return float(value) if isinstance(value, int | float) else value


def mutated(config, spec, rng):
    """A copy with one to three changes, in the configuration or in figures of the GPU that it replaces."""
    config = copy.deepcopy(config)
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        if rng.random() < 0.15:
            name = rng.choice([key for key in spec if isinstance(spec[key], dict)])
            path = rng.choice(list(places(spec[name])))
            group = copy.deepcopy(spec[name])
            at(group, path[:-1])[path[-1]] = rng.choice([rng.choice(ODD), *[near(at(group, path), rng)] * 3])
            config["gpu_overrides"] = {name: group}
            continue
        path = rng.choice(list(places(config)))
        parent = at(config, path[:-1])
        how = rng.random()
        if how < 0.6:
            parent[path[-1]] = near(parent[path[-1]], rng)
        elif how < 0.85:
            parent[path[-1]] = copy.deepcopy(rng.choice(ODD))
        elif how < 0.92:
            del parent[path[-1]]
        elif isinstance(parent, dict):
            parent[rng.choice(["", 5, None, "batch", "Batch", "gpu_"])] = 1
    return config


def carry_out(config, schema, folder):
    """What becomes of an accepted configuration: every name that rules ask for, and a point measured and read back."""
    configuration.check(config, schema)
    study = planning.plan(config, folder)
    for planned in (study.schedule_files(), study.iteration_files(), study.setups()):
        assert len({str(each) for each in planned}) == len(planned), "two files of one name"
    variants = [each.setup.path for each in study.variants.values()]
    assert len(set(variants)) == len(variants), "two variants of one setup"
    study.pairs, study.validation(study.headline), planning.notices(study), study.deployable_options()
    json.dumps(study.by_clock_options(), allow_nan=False)
    pipeline, serving = plan_pipeline(config, folder), plan_serving(config, folder)
    for kind, own in (("gpu", study), ("pipeline", pipeline), ("serving", serving)):
        for path, asked in asked_by(outputs(kind), own).items():
            assert (
                asked.files[0].startswith(path) and asked.inputs is not None and json.loads(asked.options) is not None
            )
    json.dumps([pipeline.options, serving.options], allow_nan=False)
    pipeline.plans()
    if study.setup is None:
        return
    setup = read(study.setup.write())
    for pair in (BASELINE, study.pairs[-1]):
        target = MeasurementTarget("kernel", study.kernels[0])
        path = f"{folder}/kernel/{target.name}/{pair[0]}-{pair[1]}/r0.json"
        bench = Bench(setup, target)
        record.write_point(path, setup, bench, target, "sweep", 0, bench.point(pair))
        record.read_point(path, setup, target, pair)


@pytest.mark.slow
def test_many_configurations_are_refused_in_one_line_or_carried_out(config, root, tmp_path, fuzz, fuzz_seed):
    schema, spec = root / "workflow/schemas/config.schema.yaml", resolve("rtx_3080_ti")
    # what is measured takes its time from these
    base = config(data_parallel_batches=[20], tensor_parallel_degrees=[2], windows=2)
    rng, failed, accepted, slowest_s = random.Random("configurations" + fuzz_seed), [], 0, 0.0
    for number in range(fuzz):
        changed = mutated(base, spec, rng)
        shown, began_s = repr(changed), time.process_time()
        try:
            carry_out(changed, schema, str(tmp_path / str(number % 10)))
            accepted += 1
        except InputError as error:
            if "\n" in str(error) or not str(error) or "\x1b" in str(error):
                failed.append(f"{number}: not one line: {str(error)!r}")
        except Exception:
            failed.append(f"{number}: {differences(base, shown)}\n{traceback.format_exc(limit=-4)}")
        took_s = time.process_time() - began_s
        slowest_s = max(slowest_s, took_s)
        if took_s > LIMIT_S:
            failed.append(f"{number}: {took_s:.0f} s: {differences(base, shown)}")
    print(f"{fuzz} configurations: {accepted} carried out, slowest {slowest_s:.1f} s, {len(failed)} failed")
    assert not failed, f"{len(failed)} of {fuzz}\n" + "\n".join(failed[:20])
    assert 0.02 * fuzz < accepted < 0.7 * fuzz, "a harness that changes nothing, or everything, shows nothing"


def differences(base, shown):
    """What was changed, for the message."""
    changed = eval(shown, {"nan": float("nan"), "inf": float("inf")})
    return {key: changed.get(key, "(gone)") for key in {*base, *changed} if changed.get(key, "(gone)") != base.get(key)}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("seed", 1.0),
        ("auto_repeats", 2.0),
        ("grid", {"core_mhz": [1470.0], "mem_mhz": "all", "auto": True}),
        ("grid", {"core_mhz": {"step": 210.0}, "mem_mhz": "all", "auto": True}),
        ("native", {"cpu": ["auto"], "cuda": "auto"}),
        ("auto_repeats", 100_000),
        ("windows", 10**9),
    ],
)
def test_what_used_to_pass_and_crash_later_is_refused_in_one_line(config, root, key, value):
    with pytest.raises(InputError, match=f"^config: {key}") as refused:
        configuration.check(config(**{key: value}), root / "workflow/schemas/config.schema.yaml")
    assert "allowed: " in str(refused.value)


def test_two_tensor_energies_that_differ_in_the_seventh_digit_are_two_variants(config, tmp_path):
    study = planning.plan(config(tensor_energy_pj=[0.5, 0.5000001, 2]), str(tmp_path))
    assert study.variants_of("tensor-energy") == ["tensor-energy-0.5", "tensor-energy-0.5000001", "tensor-energy-2"]
    known = planning.plan(config(), str(tmp_path))
    assert known.variants_of("tensor-energy") == ["tensor-energy-0.5", "tensor-energy-0.75"], "as they were"


def test_two_latencies_that_differ_in_the_seventh_digit_are_two_schedules(config, tmp_path):
    changes = config()["clock_changes"] | {"latency_s": [0.001, 0.0010000001, 0.01, 0.0007]}
    study = planning.plan(config(clock_changes=changes), str(tmp_path))
    names = [path.rpartition("/")[2] for path in study.iteration_files()]
    assert names == ["iteration-1ms.json", "iteration-1.0000001ms.json", "iteration-10ms.json", "iteration-0.7ms.json"]


SENSOR = {"counter_period_s": 0.1, "period_jitter": 0.01, "read_s": 0.0041}


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        ({"families": {"gemm": None}}, "families.gemm: None is not"),
        ({"families": {"gemm": ["overlap"]}}, r"families.gemm: \['overlap'\] is not"),
        ({"families": []}, r"families: \[\] is not"),
        ({"sensor": SENSOR | {"read_s": 1e6}}, "sensor.read_s is 1000000.0, must be below counter_period_s"),
        ({"sensor": SENSOR | {"period_jitter": 0.4}}, "sensor.period_jitter: 0.4 is greater than"),
    ],
)
def test_figures_that_no_gpu_has_are_refused_in_one_line(overrides, said):
    with pytest.raises(InputError, match=f"^GPU spec rtx_3080_ti: {said}"):
        resolve("rtx_3080_ti", overrides)
