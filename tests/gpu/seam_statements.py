"""Statements that hold for every GPU behind the seam (measurement.seam), and the two kinds that they are made of.

A process finds its driver when it starts, so `python seam_statements.py UUID` makes the statements about a real GPU and
prints {statement: what went wrong, or nothing} as JSON. About a simulated one any process can make them.
"""

import json
import math
import sys
import traceback

from kernel_dvfs.gpu.noise import Key
from kernel_dvfs.gpu.spec import resolve
from kernel_dvfs.measurement.setup import Setup
from kernel_dvfs.measurement.simulated import SimulatedGpu
from kernel_dvfs.measurement.target import MeasurementTarget
from kernel_dvfs.measurement.window import RecordDevice, Window
from kernel_dvfs_clocks.clocks import AUTO, BASELINE, Pair
from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_clocks.shape import fault, fields

KERNEL, PASS = MeasurementTarget("kernel", "gelu"), MeasurementTarget("pass", "forward")
WORK = {"gelu": ["gelu", 0.0, 3e9, 7e8, 1.3e9], "gemm": ["gemm", 1e12, 0.0, 0.0, 9e8]}
TARGETS = {
    "kernel": {name: {"work": work} for name, work in WORK.items()},
    "pass": {"forward": [["gelu", 2], ["gemm", 1]]},
}
SETTINGS = {
    **{"seed": 1, "warmup_s": 0.5, "window_s": 2.0, "windows": 2, "clocks": "lock", "lock": "range"},
    **{"after": {}, "share": False},
}
CLOCKS = Pair(1200, 2201)  # the H200, simulated or faked, lists both; no kernel is held by the power cap there
WINDOW_S = 2.0
KEY = Key("sweep", "seam", "kernel/gelu", 0)


def setup_of(gpu: dict) -> Setup:
    return Setup("0" * 12, gpu, {"name": "seam"}, TARGETS, SETTINGS)


def window_at(gpu, load, pair, key=KEY) -> Window:
    with gpu.locked(pair, key):
        gpu.warm_up(load, 0.5)
        return gpu.window(load, WINDOW_S, key, 0)


# --- the statements: each takes a GPU and a setup that it can serve ---------------------------------------------------


def it_says_what_it_is(gpu, setup):
    device = gpu.device()
    assert {"kind", "name", "uuid", "driver", "power_limit_mw", "energy_scope"} <= device.keys()
    assert device["kind"] in ("simulated", "nvml") and device["energy_scope"] in ("board", "module")
    assert device["counter_period_ms"] > device["counter_read_ms"] > 0
    assert gpu.device() == device, "it is the same GPU every time"
    assert json.loads(json.dumps(device)) == device, "a record can hold it"


def a_window_has_the_fields_of_the_seam(gpu, setup):
    window = window_at(gpu, gpu.prepare(setup, KERNEL), CLOCKS)
    assert fault(window, Window) == fault(gpu.device(), RecordDevice) == ""
    assert window.keys() == fields(Window).keys() - {"with_beginning", "beginning"}, "and no others"
    assert json.loads(json.dumps(window)) == window, "a record can hold it"


def a_window_lasts_as_long_as_asked_to_a_read_of_the_counter(gpu, setup):
    window = window_at(gpu, gpu.prepare(setup, KERNEL), CLOCKS)
    device = gpu.device()
    assert window["duration_s"] >= WINDOW_S - device["counter_read_ms"] / 1000
    assert window["duration_s"] < WINDOW_S + 2 * device["counter_period_ms"] / 1000


def a_window_counts_whole_runs_of_the_load(gpu, setup):
    for target in (KERNEL, PASS):
        window = window_at(gpu, gpu.prepare(setup, target), CLOCKS)
        assert window["launches"] >= 1
        run_s = 1e-6 * window["time_us"]
        assert math.isclose(window["launches"] * run_s, window["duration_s"], rel_tol=0.02, abs_tol=run_s)


def a_pass_takes_the_time_of_its_kernels(gpu, setup):
    times = {
        target: window_at(gpu, gpu.prepare(setup, target), CLOCKS)["time_us"]
        for target in (KERNEL, MeasurementTarget("kernel", "gemm"), PASS)
    }
    of_kernels = 2 * times[KERNEL] + times[MeasurementTarget("kernel", "gemm")]
    assert math.isclose(times[PASS], of_kernels, rel_tol=0.03)


def requested_clocks_are_reached(gpu, setup):
    window = window_at(gpu, gpu.prepare(setup, KERNEL), CLOCKS)
    assert window["core_mhz"] == sorted(window["core_mhz"]) and window["mem_mhz"] == sorted(window["mem_mhz"])
    assert math.isclose(window["core_mhz"][1], CLOCKS.core_mhz, rel_tol=0.01)
    assert window["mem_mhz"][1] == CLOCKS.mem_mhz


def a_lower_core_clock_takes_less_power(gpu, setup):
    load = gpu.prepare(setup, KERNEL)
    slow, fast = (window_at(gpu, load, Pair(mhz, 3201)) for mhz in (900, 1800))
    assert slow["energy_mj"] / slow["duration_s"] < 0.95 * fast["energy_mj"] / fast["duration_s"]


def a_change_of_clocks_takes_a_time(gpu, setup):
    with gpu.locked(BASELINE, KEY):
        pass
    with gpu.locked(CLOCKS, KEY) as latency_s:
        assert 0 <= latency_s < 5


def a_clock_that_the_gpu_lacks_is_refused_before_anything_is_requested(gpu, setup):
    load = gpu.prepare(setup, KERNEL)
    for pair in (Pair(1501, AUTO), Pair(AUTO, 1234)):
        try:
            gpu.locked(pair, KEY)
        except InputError as refused:
            assert "allowed" in str(refused)
        else:
            raise AssertionError(f"{pair} was not refused")
    assert window_at(gpu, load, CLOCKS)["mem_mhz"][1] == CLOCKS.mem_mhz


def after_an_error_nothing_is_locked(gpu, setup):
    load = gpu.prepare(setup, KERNEL)
    try:
        with gpu.locked(Pair(900, 2201), KEY):
            raise RuntimeError("on purpose")
    except RuntimeError:
        pass
    window = window_at(gpu, load, BASELINE)
    assert window["core_mhz"][1] > 1000 and window["mem_mhz"][1] == 3201


def a_load_warms_the_gpu(gpu, setup):
    load = gpu.prepare(setup, PASS)
    with gpu.locked(BASELINE, KEY):
        cold = gpu.window(_started(gpu, load), WINDOW_S, KEY, 0)["temp_c"][0]
        gpu.warm_up(load, 20)
        assert gpu.window(load, WINDOW_S, KEY, 1)["temp_c"][0] > cold


def _started(gpu, load):
    gpu.warm_up(load, 0.1)
    return load


def a_copy_measures_like_the_gpu_itself(gpu, setup):
    load = gpu.prepare(setup, KERNEL)
    own, copied = window_at(gpu, load, CLOCKS), window_at(gpu.copy(), load, CLOCKS)
    assert gpu.copy().device() == gpu.device()
    assert math.isclose(own["time_us"], copied["time_us"], rel_tol=0.01)


def nothing_came_from_outside(gpu, setup):
    windows = [window_at(gpu, gpu.prepare(setup, KERNEL), CLOCKS)]
    assert gpu.disturbances(windows) == []


def a_request_can_be_recorded(gpu, setup):
    for pair in (BASELINE, CLOCKS):
        request = gpu.request(pair)
        assert json.loads(json.dumps(request)) == request
        assert not request.keys() & {"policy", "core_mhz", "mem_mhz", "switch_s"}, "the protocol fills these in"


STATEMENTS = (
    it_says_what_it_is,
    a_window_has_the_fields_of_the_seam,
    a_window_lasts_as_long_as_asked_to_a_read_of_the_counter,
    a_window_counts_whole_runs_of_the_load,
    a_pass_takes_the_time_of_its_kernels,
    requested_clocks_are_reached,
    a_lower_core_clock_takes_less_power,
    a_change_of_clocks_takes_a_time,
    a_clock_that_the_gpu_lacks_is_refused_before_anything_is_requested,
    after_an_error_nothing_is_locked,
    a_load_warms_the_gpu,
    a_copy_measures_like_the_gpu_itself,
    nothing_came_from_outside,
    a_request_can_be_recorded,
)


def verdicts(gpu, setup) -> dict[str, str]:
    """{statement: the traceback of what went wrong, or nothing}, one after the other on one GPU."""
    found = {}
    for statement in STATEMENTS:
        try:
            statement(gpu, setup)
            found[statement.__name__] = ""
        except Exception:
            found[statement.__name__] = traceback.format_exc()
    return found


# --- the two kinds ----------------------------------------------------------------------------------------------------


def of_simulated() -> dict[str, str]:
    spec = resolve("h200_sxm")
    return verdicts(SimulatedGpu(spec, seed=1), setup_of({"kind": "simulated", "spec": spec}))


def of_real(uuid: str) -> dict[str, str]:
    """Of the GPU of the NVML that this process finds, opened as a session opens it."""
    from kernel_dvfs.measurement.real import preflight
    from kernel_dvfs.measurement.real.gpu import RealGpu
    from kernel_dvfs.measurement.real.loads import open_loads
    from kernel_dvfs_clocks.guard import Guard
    from kernel_dvfs_clocks.nvml.facts import facts

    with Guard(uuid) as guard:
        setup = setup_of({"kind": "nvml"} | facts(guard.nvml, guard.board))
        loads = open_loads(guard.nvml, uuid)
        counter = preflight.check_counter(guard.board, loads.now_s, loads.sleep)
        own_processes = guard.board.compute_processes()
        gpu = RealGpu(guard, setup.gpu, SETTINGS, loads, counter, own_processes, lambda: True, print)
        try:
            return verdicts(gpu, setup)
        finally:
            gpu.stop()


if __name__ == "__main__":
    print(json.dumps(of_real(sys.argv[1])))
