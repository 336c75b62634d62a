"""Every command against every fault of a board, on two of them: the sick one is refused or told of, the healthy one
stays usable, no clock stays locked, and nothing is locked at all where `apply` would refuse. Of a captured step that is
played: tests/deploy/test_play_step.py, by the same table."""

import json

import pytest

RIGHT, CORE, COUNTER = "nvmlDeviceSetMemoryLockedClocks", "nvmlDeviceSetGpuLockedClocks", "nvmlDeviceGetTotalEnergy"
READ = f"{COUNTER}Consumption"
TRUE = ("sleep", "0.1")
# commands that set clocks or print joules, on the sick board; a training that takes no step is never tuned
COMMANDS = {
    "apply": ("apply", "--pair", "900,2201", "--gpu", "1", "--", *TRUE),
    "apply, core alone": ("apply", "--pair", "900,auto", "--gpu", "1", "--", *TRUE),
    "tune": ("tune", "--progress", r"(\d+)", "--gpu", "1", "--", *TRUE),
    "latency": ("latency", "--core", "900", "1500", "--repeats", "1", "--gpu", "1", "-o", "l.json"),
    "counter": ("counter", "--seconds", "1", "--gpu", "1"),
}
SETS = set(COMMANDS) - {"counter"}
# {fault: (knobs of board 1, what refuses it, the commands that it refuses)}
REFUSED = {
    "lost": ({"lost": 1}, "the GPU is lost", {*COMMANDS}),
    "no handle": ({"fail": "nvmlDeviceGetHandleByUUID:15"}, "the GPU is lost", {*COMMANDS}),
    "lost later": ({"fail": "nvmlDeviceGetMigMode:15"}, "the GPU is lost", {*COMMANDS}),
    "MIG": ({"mig": 1}, "energy is counted per board", {*COMMANDS}),
    "a slice of MIG": ({"slice": 1}, "energy is counted per board", {*COMMANDS}),
    "no right": ({"deny": 1}, "no permission", SETS),
    "no counter": ({"fail": f"{READ}:3"}, "has no energy counter", {*COMMANDS}),
    "a counter that fails": ({"fail": f"{READ}:999"}, "an unknown fault of the driver", {*COMMANDS}),
    "a counter that stands": ({"counter": "freeze@0"}, "stood at", {*COMMANDS}),
    "others compute": ({"foreign_compute": 2}, "2 other process(es) compute on it", SETS),
    "no core lock": ({"fail": f"{CORE}:3"}, "core clocks cannot be locked", SETS),
    "no memory lock": ({"fail": f"{RIGHT}:3"}, "memory clocks cannot be locked", {"apply"}),
    "no clocks": ({"fail": "nvmlDeviceGetSupportedMemoryClocks:3"}, "lists no clocks", SETS),
    "before Volta": ({"capability": 6.1}, "GPUs before Volta", SETS),
    "Turing": ({"capability": 7.5}, "no memory clock 2201 MHz to lock", {"apply"}),
    "no core clocks at 2201": ({"no_core_at": 2201}, "no memory clock 2201 MHz", {"apply"}),
    "lists out of order": ({"unordered": 1}, "", set()),
    "328 core clocks": ({"step_mhz": 5}, "", set()),
    "power as a mean": ({"power_mean_ms": 1000}, "", set()),
    "persistence off": ({"persistence": 0}, "", set()),
    "no desktop, no limit": ({"fail": "nvmlDeviceGetEnforcedPowerLimit:3"}, "", set()),
}

# commands take their checks from the same place: by day these faults show that each does, the night tries all
BY_DAY = (
    "lost",
    "MIG",
    "a slice of MIG",
    "others compute",
    "no right",
    "a counter that stands",
    "no counter",
    "no memory lock",
    "before Volta",
)


def each_fault(names=tuple(REFUSED), by_day=BY_DAY):
    """Faults for a test that takes long: some by day, all by night."""
    return [pytest.param(name, marks=() if name in by_day else pytest.mark.nightly) for name in names]


def each_fault_of_commands():
    """(fault, commands): all commands by day for some faults, two commands for the others; by night all for all."""
    others = [name for name in REFUSED if name not in BY_DAY]
    return [
        *(pytest.param(name, tuple(COMMANDS), id=name) for name in BY_DAY),
        *(pytest.param(name, ("apply", "counter"), id=f"{name}, two commands") for name in others),
        *(pytest.param(name, tuple(COMMANDS), id=name, marks=pytest.mark.nightly) for name in others),
    ]


def two(lab, knobs, **more):
    quick = {"utilisation": 0.5, "period_ms": 20}
    made = lab("h200,h200", **quick, **more)
    made.boards.set(1, **{"time": more["time"]} | quick | knobs)
    return made


def is_free(made, board) -> bool:
    return [made.boards.get(f"{domain}_lock", board) for domain in ("core", "mem")] == ["none", "none"]


@pytest.mark.parametrize(("fault", "commands"), each_fault_of_commands())
def test_no_command_sets_a_clock_where_another_refuses_and_none_keeps_the_healthy_board(lab, fault, commands):
    knobs, why, refuses = REFUSED[fault]
    made = two(lab, knobs, time="real")
    for name in commands:
        sets = made.boards.get("sets", 1)
        done = made.command(*COMMANDS[name])
        assert "Traceback" not in done.stderr, done.stderr
        if name in refuses:
            errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
            assert done.returncode == 2 and len(errors) == 1 and why in errors[0], (name, done.stderr)
            assert "LockedClocks" in str(knobs) or made.boards.get("sets", 1) == sets, (name, "something was set")
        else:
            assert done.returncode == 0, (name, done.stderr)
        assert is_free(made, 1) and not list(made.locks.glob("*.json")), name
    healthy = made.command("apply", "--pair", "900,2201", "--gpu", "0", "--", *TRUE)
    assert healthy.returncode == 0 and is_free(made, 0), healthy.stderr
    done = made.command("reset", "--all")
    assert done.stdout.count("both locks reset") == 1 + (fault not in ("lost", "no handle", "no right")), done.stdout


@pytest.mark.parametrize("fault", each_fault(by_day=(*BY_DAY, "Turing", "no clocks")))
def test_devices_promises_only_what_it_has_tried(lab, fault):
    knobs, _, refuses = REFUSED[fault]
    made = two(lab, knobs, time="real")
    done = made.command("devices", "--json")
    first, second = json.loads(done.stdout)["gpus"]
    assert done.returncode == 0 and not done.stderr and first["estimates"] and not first["problem"]
    measures = "counter" not in refuses and fault != "before Volta"
    assert bool(second["estimates"]) == measures, "a length of what cannot be measured"
    if fault in ("Turing", "no clocks", "before Volta"):
        assert second["mem_mhz"] == []
    if fault == "no memory lock":
        assert "3201 MHz, listed; only trying shows" in made.command("devices").stdout


@pytest.mark.parametrize("fault", each_fault())
def test_a_measurement_is_refused_where_apply_is(lab, fault):
    knobs, why, refuses = REFUSED[fault]
    made = two(lab, knobs, time="virtual")
    if "apply" in refuses:
        made.refused(why, gpu="nvml:1", pair="900,2201")
        assert "LockedClocks" in str(knobs) or made.boards.get("sets", 1) == "0"
    else:
        done, record = made.measure(gpu="nvml:1", pair="900,2201")
        assert done.returncode == 0 and record["verdict"] == "ok", done.stderr
        made.stop_at(made.boards.get("uuid", 1))
    assert made.comes_to(lambda: is_free(made, 1))
    done, record = made.measure(gpu="nvml:0", pair="900,2201")
    assert done.returncode == 0 and record["verdict"] == "ok", done.stderr


@pytest.mark.parametrize("fault", each_fault(by_day=("lost", "MIG", "others compute", "no right", "no memory lock")))
def test_a_broker_refuses_what_apply_does_and_serves_the_healthy_board(lab, fault):
    knobs, why, refuses = REFUSED[fault]
    made = two(lab, knobs, time="real")
    made.offer("broker")
    words = ("apply", "--through", "broker", "--pair", "900,2201")
    done = made.command(*words, "--gpu", "1", "--", *TRUE)
    assert "Traceback" not in done.stderr, done.stderr
    # through it the right is the broker's, and what it cannot do it says by NVML's number
    if "apply" in refuses and fault != "no right":
        errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
        assert done.returncode == 2 and len(errors) == 1 and why in errors[0], done.stderr
    else:
        assert done.returncode == 0, done.stderr
    assert made.comes_to(lambda: is_free(made, 1))
    healthy = made.command(*words, "--gpu", "0", "--", *TRUE)
    assert healthy.returncode == 0 and made.comes_to(lambda: is_free(made, 0)), healthy.stderr
    log = made.boards.path.parent / "daemons.log"
    assert made.comes_to(lambda: "given back" in log.read_text())  # said after it is done
    assert "Traceback" not in log.read_text(), log.read_text()


def test_where_nvml_does_not_open_each_command_says_so_in_a_line(lab):
    made = lab("h200,h200", time="real")
    made.boards.set(init=18)
    for words in (*COMMANDS.values(), ("reset", "--all"), ("reset", "--all", "--after-job"), ("identify",)):
        done = made.command(*words)
        assert done.returncode == 2 and done.stderr.count("\n") == 1 and "differ in version" in done.stderr, done.stderr
    assert "differ in version" in made.command("devices").stdout


def test_a_board_whose_clocks_cannot_be_read_is_reset_all_the_same(lab):
    made = lab(time="real", fail="nvmlDeviceGetClockInfo:999")
    lock = "from kernel_dvfs_clocks.nvml.board import Board\nfrom kernel_dvfs_clocks.nvml.library import Library\n"
    lock += f"with Library() as nvml: Board(nvml, {made.boards.uuid!r}).lock_core(345, 900)"
    assert made.python(lock).returncode == 0 and not is_free(made, 0)
    made.boards.set(fail="nvmlDeviceGetSupportedMemoryClocks:999")
    done = made.command("reset", "--all")
    assert done.returncode == 0 and "core unknown -> unknown MHz" in done.stdout and is_free(made, 0), done.stderr
