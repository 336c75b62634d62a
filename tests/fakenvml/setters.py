"""Stand-ins for what sets clocks where we may not: they have the right on the fake boards, and speak as the originals.

Each is made from documented behaviour, named in its text; none of the originals has been run. `program(NAME)` starts
the one of that name: nvidia-smi, sudo, dcgmi, zeusd (zeusd.py), slurmstepd.
"""

import importlib.util
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

NO_PERMISSION, _NOT_SUPPORTED = 4, 3


def boards():
    """pynvml on the fake boards; in a process that has the right, if its environment says so."""
    import pynvml

    pynvml.nvmlInit()
    return pynvml


def with_the_right():
    os.environ["FAKENVML_ROOT"] = "1"


# --- nvidia-smi: nvidia-smi(1), options -lgc, -lmc, -rgc, -rmc; exit codes of its section RETURN VALUE ----------------


def nvidia_smi(words):
    if len(words) not in (3, 4) or words[0] != "-i" or words[2] not in ("-lgc", "-lmc", "-rgc", "-rmc"):
        print(f"Invalid combination of input arguments. Please run 'nvidia-smi -h' for help: {words}")
        return 2
    nvml = boards()
    handle = nvml.nvmlDeviceGetHandleByUUID(words[1])
    bus_id, option = nvml.nvmlDeviceGetPciInfo(handle).busId, words[2]
    word, said = ("GPU", "gpuClock") if option.endswith("gc") else ("Memory", "memClock")
    name = "Gpu" if word == "GPU" else "Memory"
    try:
        if option.startswith("-l"):
            low, _, high = words[3].partition(",")
            getattr(nvml, f"nvmlDeviceSet{name}LockedClocks")(handle, int(low), int(high or low))
            print(f'{word} clocks set to "({said}Min {low}, {said}Max {high or low})" for GPU {bus_id}')
        else:
            getattr(nvml, f"nvmlDeviceReset{name}LockedClocks")(handle)
            print(f"All done.\nReset {word} locked clocks for GPU {bus_id}")
    except nvml.NVMLError as error:
        if error.value == _NOT_SUPPORTED:
            # and it ends well
            print(
                f"Setting locked {word} clocks is not supported for GPU {bus_id}.\nTreating as warning and moving on."
            )
        else:
            print(f"The current user does not have permission to change clocks for GPU {bus_id}: {error}.")
            print("Terminating early due to previous errors.")
            return error.value
    print("All done.")
    return 0


# --- sudo: sudo(8), -k, -n and -l; sudoers(5), regular expressions for arguments since 1.9.10;
# release notes: -ll of a command names the matching rule since 1.9.15; plugins/sudoers/display.c: how


def sudo(words):
    is_new, is_free = "old" not in (how := os.environ.get("KERNEL_DVFS_TEST_SUDO", "")), "password" not in how
    lists = words[2:3] == ["-ll"]
    program, *arguments = words[2 + lists :]
    # without -k: the password was given a while ago
    if words[:1] == ["-k"] and not (_allows(program, " ".join(arguments)) and (is_free or lists)):
        print("sudo: a password is required", file=sys.stderr)
        return 1
    if lists and is_new:
        options = "!authenticate" if is_free else "setenv"
        print(
            f"\nSudoers entry: /etc/sudoers.d/kernel-dvfs\n    RunAsUsers: root\n    Options: {options}\n    Commands:"
        )
    if lists:
        print(shlex.join([program, *arguments]))
        return 0
    with_the_right()
    return subprocess.run([program, *arguments]).returncode


def _allows(program, arguments):
    """Whether the lines in KERNEL_DVFS_TEST_SUDOERS let the caller run that: the whole of it must match."""
    path = Path(os.environ["KERNEL_DVFS_TEST_SUDOERS"])
    text = path.read_text().replace("\\\n", " ") if path.exists() else ""
    alias, _, commands = text.partition("\n")[0].partition("=")
    if "NOPASSWD: " + alias.removeprefix("Cmnd_Alias").strip() not in text:
        return False
    for command in re.split(r" *, +", commands.strip()):
        allowed, _, pattern = command.partition(" ")
        assert pattern.startswith("^") and pattern.endswith("$"), "sudoers takes only such for a regular expression"
        if allowed == program and re.fullmatch(pattern[1:-1], arguments):
            return True
    return False


# --- dcgmi: docs.nvidia.com/datacenter/dcgm, "dcgmi config", "dcgmi group", "dcgmi discovery"; dcgmi/Config.cpp -------


def dcgmi(words):
    with_the_right()
    nvml = boards()
    state = Path(os.environ["KERNEL_DVFS_TEST_DCGM"])
    groups = json.loads(state.read_text()) if state.exists() else {}
    rule = "+--------+----------------------------------------------------------------------+"
    if words == ["discovery", "-l"]:
        print(f"{nvml.nvmlDeviceGetCount()} GPUs found.\n{rule}\n| GPU ID | Device Information |\n{rule}")
        for index in range(nvml.nvmlDeviceGetCount()):
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            print(f"| {index:<6} | Name: {nvml.nvmlDeviceGetName(handle):60} |")
            print(f"|        | PCI Bus ID: {nvml.nvmlDeviceGetPciInfo(handle).busId:50} |")
            print(f"|        | Device UUID: {nvml.nvmlDeviceGetUUID(handle):50} |\n{rule}")
        return 0
    if words == ["group", "-l"]:
        print(f"| GROUPS |\n| {len(groups)} groups found. |")
        for number, (name, entities) in groups.items():
            print(f"| -> {number} | |\n|    -> Group ID    | {number} |\n|    -> Group Name  | {name} |")
            print(f"|    -> Entities    | GPU {entities} |")
        return 0
    if words[:2] == ["group", "-c"] and words[3] == "-a":
        number = str(len(groups) + 2)  # 0 and 1 are its own
        groups[number] = words[2], words[4]
        state.write_text(json.dumps(groups))
        print(f'Successfully created group "{words[2]}" with a group ID of {number}')
        print("Add to group operation successful.")
        return 0
    assert words[:3] == ["config", "--set", "-g"] and words[4] == "-a", words
    trouble = "Error: Unable to set some of the configuration properties. Return:"
    if os.environ.get("KERNEL_DVFS_TEST_DCGM_ROOT") == "no":
        print(f"{trouble} Host engine is running as non-root")
        return 1
    mem, core = map(int, words[5].split(","))
    handle = nvml.nvmlDeviceGetHandleByIndex(int(groups[words[3]][1]))
    try:
        if mem == core == 0:
            nvml.nvmlDeviceResetMemoryLockedClocks(handle)
            nvml.nvmlDeviceResetGpuLockedClocks(handle)
        else:
            nvml.nvmlDeviceSetMemoryLockedClocks(handle, mem, mem)
            nvml.nvmlDeviceSetGpuLockedClocks(handle, core, core)
    except nvml.NVMLError as error:
        # half of it may be done, and stays
        print(f"{trouble} {'Setting not supported' if error.value == _NOT_SUPPORTED else 'Generic unspecified error'}")
        return 1
    print("Configuration successfully set.")
    return 0


# --- slurmstepd: srun(1) --gpu-freq; src/plugins/gpu/common/gpu_common.c: the next higher clock that exists -----------


def slurmstepd(words):
    """slurmstepd 1500,memory=2201 COMMAND ...: root's; sets the clocks of a step, runs it, resets them at its end."""
    asked = dict(each.rpartition("=")[::2] for each in words[0].split(","))
    environment = dict(os.environ)
    with_the_right()
    nvml = boards()
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    listed = nvml.nvmlDeviceGetSupportedMemoryClocks(handle)
    if "memory" in asked:
        mem = _next_higher(int(asked["memory"]), listed)
        nvml.nvmlDeviceSetMemoryLockedClocks(handle, mem, mem)
    if "" in asked:
        core = _next_higher(int(asked[""]), nvml.nvmlDeviceGetSupportedGraphicsClocks(handle, listed[0]))
        nvml.nvmlDeviceSetGpuLockedClocks(handle, core, core)
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ignored, lambda *_: None)  # not inherited by the step
    step = subprocess.Popen(words[1:], env=environment | {"SLURM_GPU_FREQ": words[0]}, start_new_session=True)
    code = step.wait()
    nvml.nvmlDeviceResetMemoryLockedClocks(handle)
    nvml.nvmlDeviceResetGpuLockedClocks(handle)
    return code


def _next_higher(mhz, listed):
    return min((each for each in listed if each >= mhz), default=max(listed))


def program(name: str) -> list[str]:
    """The words that start a stand-in. Without Python's site, which takes as long as all else of a short program."""
    beside = [str(Path(own).parent) for own in (__file__, importlib.util.find_spec("pynvml").origin)]
    return [sys.executable, "-S", "-c", f"import sys; sys.path += {beside}; import setters; setters.main()", name]


def install(folder: Path, *names: str) -> None:
    """Put programs of these names into a folder that a PATH may name."""
    folder.mkdir(exist_ok=True)
    for name in names:
        own = folder / name
        own.write_text(f'#!/bin/sh\nexec {shlex.join(program(name))} "$@"\n')
        own.chmod(0o755)


def main() -> None:
    """Be the program that `program` has named."""
    name, *words = sys.argv[1:]
    if name == "zeusd":
        from zeusd import zeusd as run
    else:
        run = {"nvidia-smi": nvidia_smi, "sudo": sudo, "dcgmi": dcgmi, "slurmstepd": slurmstepd}[name]
    sys.exit(run(words))
