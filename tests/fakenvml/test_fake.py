"""The fake NVML behaves as a driver does where the project relies on it, under every binding that users may have."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import forked
import pytest

VIRTUAL = {"time": "virtual"}


@pytest.fixture
def run():
    """`run(boards, code)` runs Python code in a process of its own that has NVML open as `n` and a board as `h`; what
    it prints as JSON."""

    def call(boards, code, **environment):
        head = "import json, pynvml as n\nn.nvmlInit()\nh = n.nvmlDeviceGetHandleByIndex(0)\n"
        command = [sys.executable, "-c", head + code]
        done = subprocess.run(
            command, env=boards.environment(**environment), capture_output=True, text=True, check=True, timeout=60
        )
        return json.loads(done.stdout)

    return call


def test_virtual_time_is_the_same_on_every_machine(boards):
    made = boards(**VIRTUAL)
    assert float(made.get("now_s")) == 1 and float(made.get("energy_mj")) == 0
    assert float(made.get("temperature_c")) == 25, "it has not warmed up for as long as the machine runs"


def test_without_a_state_file_there_is_no_driver(fake_library, tmp_path):
    code = "import pynvml\ntry: pynvml.nvmlInit()\nexcept pynvml.NVMLError as error: print(error.value)"
    environment = {"LD_LIBRARY_PATH": str(fake_library.parent)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert done.stdout == "9\n"


EVERY_CALL = """
def field(id):
    value = n.nvmlDeviceGetFieldValues(h, [id])[0]
    return value.value.ullVal if value.nvmlReturn == 0 else f"code {value.nvmlReturn}"
uuid = n.nvmlDeviceGetUUID(h)
pci = n.nvmlDeviceGetPciInfo(h)
n.nvmlDeviceSetMemoryLockedClocks(h, 2201, 2201)
n.nvmlDeviceSetGpuLockedClocks(h, 345, 1500)
text = lambda value: value.decode() if isinstance(value, bytes) else value
temperature = getattr(n, "nvmlDeviceGetTemperatureV", n.nvmlDeviceGetTemperature)
print(json.dumps({
    "uuid": text(uuid), "name": text(n.nvmlDeviceGetName(h)), "driver": text(n.nvmlSystemGetDriverVersion()),
    "nvml": text(n.nvmlSystemGetNVMLVersion()), "vbios": text(n.nvmlDeviceGetVbiosVersion(h)),
    "pci": text(pci.busId), "same": n.nvmlDeviceGetIndex(n.nvmlDeviceGetHandleByUUID(uuid)) ==
        n.nvmlDeviceGetIndex(n.nvmlDeviceGetHandleByPciBusId(pci.busId)) == n.nvmlDeviceGetIndex(h),
    "mem": n.nvmlDeviceGetSupportedMemoryClocks(h), "core": len(n.nvmlDeviceGetSupportedGraphicsClocks(h, 3201)),
    "limit": n.nvmlDeviceGetEnforcedPowerLimit(h), "ecc": n.nvmlDeviceGetEccMode(h), "mig": n.nvmlDeviceGetMigMode(h),
    "persistence": n.nvmlDeviceGetPersistenceMode(h), "capability": n.nvmlDeviceGetCudaComputeCapability(h),
    "temperature": temperature(h, 0), "reasons": n.nvmlDeviceGetCurrentClocksEventReasons(h),
    "compute": [p.pid for p in n.nvmlDeviceGetComputeRunningProcesses_v3(h)],
    "graphics": [p.pid for p in n.nvmlDeviceGetGraphicsRunningProcesses_v3(h)],
    "fields": [field(74), field(75), field(76), field(251), field(269), field(9999)],
    "energy": n.nvmlDeviceGetTotalEnergyConsumption(h) > 0, "clock": n.nvmlDeviceGetClockInfo(h, n.NVML_CLOCK_MEM),
}))
"""


@pytest.mark.parametrize(
    "version",
    [
        "installed",
        "12.535",
        *(pytest.param(each, marks=pytest.mark.nightly) for each in ("12.560", "13.580", "13.615")),
    ],
)
def test_every_binding_reads_the_same(boards, run, binding, version):
    made = boards(**VIRTUAL, foreign_compute=2, foreign_graphics=1, mem_lag_ms=0)
    said = run(made, EVERY_CALL, **({} if version == "installed" else {"PYTHONPATH": str(binding(version))}))
    assert said == {
        "uuid": made.uuid,
        "name": "Simulated H200 on a fake NVML",
        "driver": "580.00 (fake NVML)",
        "nvml": "13.580.00 (fake NVML)",
        "vbios": "fa.4e.00.00.01",
        "pci": "00000000:01:00.0",
        "same": True,
        "mem": [3201, 2201],
        "core": 110,
        "limit": 700000,
        "ecc": [1, 1],
        "mig": [0, 0],
        "persistence": 1,
        "capability": [9, 0],
        "temperature": 25,
        "reasons": 1,
        "compute": [1, 2],
        "graphics": [101],
        "fields": [0, 0, 0, 0, "code 3", "code 3"],
        "energy": True,
        "clock": 2201,
    }
    assert made.locks == ("345-1500", "2201-2201"), "locks outlive the process"


def test_the_moved_throttle_fields_are_where_the_driver_has_them(boards, run):
    code = "print(json.dumps([n.nvmlDeviceGetFieldValues(h, [i])[0].nvmlReturn for i in (251, 269)]))"
    assert run(boards(new_field_ids=1), code) == [3, 0]


def test_the_counter_shows_the_energy_at_its_last_edge_however_rarely_it_is_read(boards, run):
    made = boards(**VIRTUAL, utilisation=1, read_ms=0)
    code = """
import ctypes
lib = ctypes.CDLL("libnvidia-ml.so.1")
uuid = n.nvmlDeviceGetUUID(h).encode()
lib.fakenvml_sleep(uuid, ctypes.c_double(1.0))
shown = []
for _ in range(400):
    lib.fakenvml_sleep(uuid, ctypes.c_double(0.130))
    shown.append(n.nvmlDeviceGetTotalEnergyConsumption(h))
print(json.dumps([b - a for a, b in zip(shown, shown[1:])]))
"""
    steps = run(made, code)
    period = sum(steps) / len(steps) / 1.3
    # 130 ms hold one or two periods of 100 ms, never anything between
    assert {round(step / period) for step in steps} == {1, 2}
    assert all(abs(step / period - round(step / period)) < 0.1 for step in steps)


def test_clocks_follow_a_request_after_a_while(boards, run):
    made = boards(**VIRTUAL, utilisation=0.1, core_lag_ms=50, mem_lag_ms=200)
    code = """
import ctypes
lib, uuid = ctypes.CDLL("libnvidia-ml.so.1"), n.nvmlDeviceGetUUID(h).encode()
n.nvmlDeviceSetMemoryLockedClocks(h, 2201, 2201)
n.nvmlDeviceSetGpuLockedClocks(h, 345, 900)
seen = []
for _ in range(3):
    seen.append([n.nvmlDeviceGetClockInfo(h, 1), n.nvmlDeviceGetClockInfo(h, 2)])
    lib.fakenvml_sleep(uuid, ctypes.c_double(0.120))
print(json.dumps(seen))
"""
    assert run(made, code) == [[1980, 3201], [900, 3201], [900, 2201]]


def test_the_power_limit_takes_the_core_clock_and_counts_the_time(boards, run):
    made = boards(**VIRTUAL, utilisation=1, limit_mw=300000)
    code = """
import ctypes
ctypes.CDLL("libnvidia-ml.so.1").fakenvml_sleep(n.nvmlDeviceGetUUID(h).encode(), ctypes.c_double(2.0))
print(json.dumps([n.nvmlDeviceGetClockInfo(h, 1), n.nvmlDeviceGetPowerUsage(h),
    n.nvmlDeviceGetCurrentClocksEventReasons(h), n.nvmlDeviceGetFieldValues(h, [74])[0].value.ullVal]))
"""
    clock, power, reasons, cap_ns = run(made, code)
    assert 345 < clock < 1500 and 270000 < power <= 300000
    assert reasons == 0x4 and cap_ns == pytest.approx(2e9, rel=0.01)


def test_the_rtx_3080_ti_folds_memory_405_at_a_higher_core_clock(boards, run):
    code = """
seen = []
for core in (420, 630):
    n.nvmlDeviceSetMemoryLockedClocks(h, 405, 405)
    n.nvmlDeviceSetGpuLockedClocks(h, 210, core)
    seen.append(n.nvmlDeviceGetClockInfo(h, 2))
print(json.dumps(seen))
"""
    assert run(boards("rtx_3080_ti", **VIRTUAL, core_lag_ms=0, mem_lag_ms=0), code) == [405, 810]


def code_of(call):
    """Code that prints the number of the NVML error that a call ends in, 0 for none."""
    return f"try:\n    {call}\n    print(0)\nexcept n.NVMLError as error:\n    print(error.value)\n"


SET_CORE = "n.nvmlDeviceSetGpuLockedClocks(h, 345, 900)"


@pytest.mark.parametrize(
    ("knobs", "call", "code"),
    [
        ({}, SET_CORE, 0),
        ({"deny": 1}, SET_CORE, 4),
        ({"deny": 1}, "n.nvmlDeviceResetMemoryLockedClocks(h)", 4),
        ({"fail": "nvmlDeviceGetTemperatureV:3"}, "n.nvmlDeviceGetTemperature(h, 0)", 0),
        ({"fail": "nvmlDeviceGetTemperature:3"}, "n.nvmlDeviceGetTemperature(h, 0)", 3),
        ({"fail": "nvmlDeviceGetName:3"}, "n.nvmlDeviceGetName(h)", 3),
        ({"fail": "nvmlDeviceGetUUID:15"}, "n.nvmlDeviceGetUUID(h)", 15),
        ({"fail": "nvmlDeviceGetName:15:1"}, "n.nvmlDeviceGetName(h), n.nvmlDeviceGetName(h)", 15),
        ({"fail": "nvmlDeviceGetName:15:1"}, "n.nvmlDeviceGetName(h)", 0),
        ({"fail": "*:15:2"}, "n.nvmlDeviceGetName(h), n.nvmlDeviceGetUUID(h), n.nvmlDeviceGetMigMode(h)", 15),
        ({}, "n.nvmlDeviceGetHandleByIndex(1)", 2),
        ({}, "n.nvmlDeviceGetHandleByUUID('GPU-0')", 6),
        ({}, "n.nvmlDeviceGetSupportedGraphicsClocks(h, 3200)", 6),
    ],
)
def test_faults_strike_the_call_that_they_name(boards, run, knobs, call, code):
    assert run(boards(**knobs), code_of(call)) == code


def test_a_fault_that_strikes_once_is_over_after_that(boards, run):
    made = boards(fail="nvmlDeviceGetName:999:0:1")
    call = code_of("n.nvmlDeviceGetName(h)")
    assert run(made, call) == 999 and run(made, call) == 0


def test_ignored_requests_succeed_without_effect(boards, run):
    made = boards(**VIRTUAL, ignore="mem", mem_lag_ms=0, core_lag_ms=0, utilisation=0.1)
    code = f"{SET_CORE}; n.nvmlDeviceSetMemoryLockedClocks(h, 2201, 2201)\n"
    code += "print(json.dumps([n.nvmlDeviceGetClockInfo(h, 1), n.nvmlDeviceGetClockInfo(h, 2)]))"
    assert run(made, code) == [900, 3201]


COUNTER = """
import ctypes
lib, uuid = ctypes.CDLL("libnvidia-ml.so.1"), n.nvmlDeviceGetUUID(h).encode()
seen = []
for _ in range(4):
    seen.append(n.nvmlDeviceGetTotalEnergyConsumption(h))
    lib.fakenvml_sleep(uuid, ctypes.c_double(1.0))
print(json.dumps(seen))
"""


def test_the_counter_can_freeze_and_fall(boards, run):
    frozen = run(boards(**VIRTUAL, utilisation=1, counter="freeze@1.5"), COUNTER)
    assert frozen[0] < frozen[1] < frozen[2] == frozen[3]
    fell = run(boards(**VIRTUAL, utilisation=1, counter="reset@1.5"), COUNTER)
    assert fell[0] < fell[1] > fell[2] < fell[3]


def test_heat_slows_the_core_down_and_is_counted_as_thermal(boards, run):
    made = boards(**VIRTUAL, utilisation=0.2, forced_c=95)
    code = """
import ctypes
ctypes.CDLL("libnvidia-ml.so.1").fakenvml_sleep(n.nvmlDeviceGetUUID(h).encode(), ctypes.c_double(1.0))
print(json.dumps([n.nvmlDeviceGetTemperature(h, 0), n.nvmlDeviceGetClockInfo(h, 1),
    n.nvmlDeviceGetCurrentClocksEventReasons(h), n.nvmlDeviceGetFieldValues(h, [75])[0].value.ullVal > 9e8]))
"""
    assert run(made, code) == [95, 1155, 0x20, True]


@pytest.mark.parametrize(("persistence", "locks"), [(1, ("345-900", "none")), (0, ("none", "none"))])
def test_without_persistence_the_driver_goes_with_its_last_client(boards, run, persistence, locks):
    made = boards(persistence=persistence)
    assert run(made, f"{SET_CORE}\nprint(1)") == 1
    run(made, "print(1)")  # the next client finds the driver loaded again
    assert made.locks == locks


def test_two_processes_that_start_at_once_fill_the_state_once(boards, tmp_path):
    made = boards()
    made.path = tmp_path / "not there yet"
    code = f"import pynvml as n\nn.nvmlInit()\nh = n.nvmlDeviceGetHandleByIndex(0)\n{SET_CORE}\n"
    several = [subprocess.Popen([sys.executable, "-c", code], env=made.environment()) for _ in range(4)]
    assert [each.wait(timeout=30) for each in several] == [0] * 4
    assert (made.get("sets"), made.locks) == ("4", ("345-900", "none"))


def test_several_boards_are_apart(boards, run):
    made = boards("h200,rtx_3080_ti")
    code = """
b = n.nvmlDeviceGetHandleByIndex(1)
n.nvmlDeviceSetGpuLockedClocks(b, 210, 1050)
text = lambda value: value.decode() if isinstance(value, bytes) else value
print(json.dumps([n.nvmlDeviceGetCount(), text(n.nvmlDeviceGetUUID(h)), text(n.nvmlDeviceGetUUID(b))]))
"""
    count, first, second = run(made, code)
    assert count == 2 and first != second == made.get("uuid", 1)
    assert (made.locks, made.get("core_lock", 1)) == (("none", "none"), "210-1050")


def test_a_forked_child_keeps_the_lock_of_the_state_to_itself(boards, run):
    code = """
import os
child = os.fork()
for _ in range(300):
    n.nvmlDeviceGetClockInfo(h, 1)
if child:
    print(json.dumps(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])))
else:
    os._exit(0)
"""
    made = boards()
    before = int(made.get("calls"))
    assert run(made, code) == 0
    assert int(made.get("calls")) - before == 600, "no call was lost in a race"


def test_nothing_here_is_a_real_library():
    assert not list(Path(__file__).parent.glob("*.so*"))


@pytest.mark.parametrize("name", forked.IMPORTED)
def test_what_forked_programs_find_imported_is_there(name):
    """The process that they come from passes over what it cannot import."""
    assert importlib.util.find_spec(name)


def test_a_lost_board_has_no_handle_and_the_next_one_has(boards, run):
    made = boards("h200,h200", **VIRTUAL)
    made.set(1, lost=1)
    code = "def code(call, *words):\n    try: call(*words)\n    except n.NVMLError as error: return error.value\n"
    code += f"uuid = {made.get('uuid', 1)!r}\nprint(json.dumps([n.nvmlDeviceGetCount(), code(n.nvmlDeviceGetName, h), "
    code += "code(n.nvmlDeviceGetHandleByIndex, 1), code(n.nvmlDeviceGetHandleByUUID, uuid)]))"
    assert run(made, code) == [2, None, 15, 15]


LISTS = "print(json.dumps([n.nvmlDeviceGetSupportedMemoryClocks(h), n.nvmlDeviceGetSupportedGraphicsClocks(h, 3201), "
LISTS += "n.nvmlDeviceGetSupportedGraphicsClocks(h, 2201)]))"


def test_lists_of_clocks_may_be_long_empty_or_in_no_order(boards, run):
    plain = list(range(1980, 344, -15))
    assert run(boards(**VIRTUAL), LISTS) == [[3201, 2201], plain, plain]
    mem, top, low = run(boards(**VIRTUAL, unordered=1, no_core_at=2201), LISTS)
    assert sorted(top) == sorted(plain) and top not in (plain, plain[::-1]) and (sorted(mem), low) == ([2201, 3201], [])
    assert len(run(boards(**VIRTUAL, step_mhz=5), LISTS)[1]) == 328


READS = """
import ctypes, os
fake = ctypes.CDLL("libnvidia-ml.so.1")
def at(seconds):
    fake.fakenvml_sleep(n.nvmlDeviceGetUUID(h).encode(), ctypes.c_double(seconds))
    return n.nvmlDeviceGetTotalEnergyConsumption(h) / 1000, n.nvmlDeviceGetPowerUsage(h) / 1000
print(json.dumps([at(0.01), at(2.0), at(2.0)]))
"""


@pytest.mark.parametrize(
    ("knobs", "first_j", "second_j"),
    [
        ({}, 2, 2),
        ({"counter_factor": 3}, 6, 6),
        ({"counter": "jump@1:-50000"}, 2 - 50 / 139, 2),
        ({"counter": "jump@3:90000"}, 2, 2 + 90 / 139),
    ],
)
def test_a_counter_may_be_off_by_a_factor_leap_or_fall(boards, run, knobs, first_j, second_j):
    """Of an idle board: 75 W and 20 W/GHz of its memory, 139 W; the counter moves every 100 ms."""
    (begin, power_w), (middle, _), (end, _) = run(boards(**VIRTUAL, jitter_ms=0, **knobs), READS)
    assert power_w == pytest.approx(139, abs=0.1)
    assert (middle - begin, end - middle) == pytest.approx((139 * first_j, 139 * second_j), abs=15)


def test_power_may_be_a_mean_and_a_driver_unloaded(boards, run):
    made = boards(**VIRTUAL, power_mean_ms=1000)
    assert [power_w for _, power_w in run(made, READS)] == pytest.approx([139] * 3, abs=0.1)
    made.set(utilisation=0.5)
    seen = [(574 - power_w) / (574 - 139) for _, power_w in run(made, READS)]
    assert seen == pytest.approx([1, 0.135, 0.018], abs=0.02), "a reading that lags by a second"
    run(made, "n.nvmlDeviceSetGpuLockedClocks(h, 345, 900)\nprint(0)")
    assert made.locks[0] == "345-900"
    made.set(unload=1)
    assert made.locks == ("none", "none")
