"""Thousands of damaged command lines over damaged files: each command does what it is asked or refuses it in one line.

In this process, each within a time limit; `--fuzz N` sets how many. A fault that a command does not expect (a traceback
for the user) or a command that does not end is a failure, with the words that bring it back.
"""

import json
import os
import random
import signal
import time
import traceback
from argparse import SUPPRESS
from collections import Counter

import pytest

from kernel_dvfs.cli.arguments import arguments_of
from kernel_dvfs.cli.main import every_command, parsed
from kernel_dvfs_clocks.errors import InputError, leaves, lines
from kernel_dvfs_clocks.package import remedy

LIMIT_S = 20  # of CPU time, so that a busy machine is no fault of a command
# they start other programs (a compiler, a GPU's process, a command of the user's), or look at the machine; what they
# read is tried here, what they start is not
STARTS = {
    "build": ["--cpu", "off", "--cuda", "off", "--graph", "off", "--pipeline", "off"],
    "capture": ["missing.py:make"],
    "apply": ["--pair", "1470,auto", "--", "true"],
    "reset": ["--uuid", "GPU-1"],
    "devices": [],
    "identify": [],
    "measure serve": ["--gpu", "missing.json"],
    "measure kernels": ["-o", "out"],
    "broker": ["--allow", "root"],
}
# what these commands would start is left out, or ours; a whole study, a browser: no such thing
ALWAYS = {"apply": ["--", "true"], "broker": ["--unit"], "demo": ["--missing"], "build": STARTS["build"]}
# what is written or deleted must be within the test's folder
_LEFT_OUT = ("-h", "-o", "--log", "--force", "--delete-bad", "--out", "--keep")
# no absolute path and none that leads upwards: some of these words name what is written
WORDS = (
    *("", " ", "0", "-1", "1", "2", "3.5", "1e3", "1e15", "1e308", "1e400", "nan", "inf", "-inf", "0x10", "1_0", "٣"),
    *("9" * 20, "9" * 5000, "auto", "auto,auto", "auto-auto", "1470,auto", "1470-auto,auto-auto", "1,2,3", "1e9,1e9"),
    *("{}", "[]", "null", "{", '{"a": NaN}', '{"a": 1e999}', "[" * 5000, "true", '"x"', "a=b", "servers=1e9", "=", ","),
    *("kernel", "pass", "global", "profile", "missing", "out", "records", "study", "-", "--", "-o", "--help"),
    *("a b", "$(touch x)", "\x1b[31m", "a\nb", "caf\udce9", "é", "x" * 300, "x" * 5000, "forward_gelu", "kernel/x"),
)


@pytest.fixture(scope="module")
def folder(setup_of, study_options, tmp_path_factory, root):
    """Small whole files of every kind that a command reads."""
    from kernel_dvfs.cli.main import main
    from kernel_dvfs.measurement.setup import store
    from kernel_dvfs_pipeline.study import KEYS

    folder = tmp_path_factory.mktemp("whole")
    setup = setup_of(model="gpt3-125m", batch=4)
    path = store(str(folder), setup.gpu, setup.workload, setup.targets, setup.measurement)
    os.rename(path, folder / "setup.json")
    os.symlink("setup.json", path)  # its name is its content's, so this one is refused, and the link is not
    os.chdir(folder)
    table = "kernel,core_mhz,mem_mhz,time_us,energy_uj\n"
    table += "".join(f"k{k},{core},5000,{100 * k * 1500 / core},{core * k}\n" for k in (1, 2) for core in (900, 1500))
    (folder / "table.csv").write_text(table)
    stages = "stage,instruction,core_mhz,mem_mhz,time_s,energy_j\n"
    for stage in (0, 1):
        for name, factor in (("forward", 1), ("backward", 2)):
            for mhz in (700, 1000, 1400):
                stages += f"{stage},{name},{mhz},,{factor * 0.05 * 1400 / mhz},{factor * (10 + mhz / 100)}\n"
    (folder / "stages.csv").write_text(stages)
    (folder / "trace.csv").write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n0.5,100,20\n1.5,2000,300\n3,30,3\n")
    (folder / "order.json").write_text(json.dumps(list(setup.targets["kernel"])[:5]))
    (folder / "slow.csv").write_text("iteration,pipeline,slowdown\n1,0,1.2\n3,1,1.5\n")
    (folder / "kernels").write_text("0" * 64 + "\n")
    (folder / "config.yaml").write_text((root / "config.yaml").read_text())
    pairs = "auto-auto,1470-auto,1050-auto"
    own = os.path.basename(path)
    pipeline = study_options | {"stages": 2, "microbatches": [2], "total_microbatches": 4, "tensor_parallel": 1}
    pipeline |= {"straggler": [1.1], "kernels": 5, "switch_latency_s": [0]}
    assert set(pipeline) == set(KEYS)
    whole = [
        ["measure", "sweep", "--gpu", own, "--pairs", pairs, "--auto-repeats", "2", "-o", "profile.parquet"],
        ["choose", "profile.parquet", "--scope", "global", "--objective", "waste", "-o", "schedule.json"],
        ["import", "table.csv", "--reference", "1500,5000", "-o", "table.parquet"],
        ["pipeline", "profile", "stages.csv", "study", "--options", json.dumps(pipeline | {"name": "x"})],
        [
            "pipeline",
            "plan",
            "stages.csv",
            "--microbatches",
            "2",
            "--blocking-w",
            "80",
            "--price",
            "50",
            "-o",
            "plan.json",
        ],
        [
            "serving",
            "profile",
            "--tp",
            "8",
            "--core-mhz",
            "1200",
            "--classes",
            "SS",
            "--requests",
            "30",
            "-o",
            "serving.csv",
        ],
    ]
    for repeat in ("0", "1"):
        for pair in ("auto,auto", "1470,auto"):
            out = f"records/kernel/forward_gelu/{pair.replace(',', '-')}/r{repeat}.json"
            whole.append(
                ["measure", "--gpu", own, "--target", "forward_gelu", "--clocks", pair, "--repeat", repeat, "-o", out]
            )
    for words in whole:
        assert main(words) == 0, words
    (folder / "setup-name").write_text(own)
    return folder


def bases(folder):
    """{command: words that it carries out, or nearly}."""
    own, profile = (folder / "setup-name").read_text(), "profile.parquet"
    pairs, study = "auto-auto,1470-auto,1050-auto", "study"
    visitable = "auto-auto,2100-9251,1470-9251,1050-9251"
    by_clock = {"pairs": visitable, "limits_percent": [0], "minutes": 9, "worth_percent": 0.02}
    by_clock |= {"over_percent": 10, "ties": "tied", "seed": 1}
    serving = '{"profile": "serving.csv", "trace": null, "trace_sha256": null}'
    shape = ["stages.csv", "--microbatches", "2", "--blocking-w", "80", "--kernels", "4"]
    out = ["-o", "out/x"]
    return STARTS | {
        "import": ["table.csv", "--reference", "1500,5000", *out],
        "study": ["table.csv", "--reference", "1500,5000", *out],
        "choose": [profile, "--scope", "local", "--objective", "waste", "--slack", "5", *out],
        "report": ["results", "-o", "out/x.html"],
        "output": [study, "emulation", "figures/timeline", "--options", "{}"],
        "measure": ["--gpu", own, "--target", "forward_gelu", "--clocks", "1470,auto", "--repeat", "3", *out],
        "measure compare": [
            "--gpu",
            own,
            "--schedule",
            "schedule.json",
            "--target",
            "forward_gelu",
            "--last",
            "1",
            *out,
        ],
        "measure sweep": ["--gpu", own, "--pairs", "auto-auto,1470-auto", "--auto-repeats", "1", *out],
        "measure by-clock": ["--gpu", own, "--records", "out/records", "--options", json.dumps(by_clock), *out],
        "measure again": ["--gpu", own, "--schedules", "schedule.json", "--repeat", "1", *out],
        "measure aggregate": ["--gpu", own, "--records", "records", "--pairs", pairs, "--auto-repeats", "2", *out],
        "measure step": ["step.json", "--profile", profile, *out],
        "measure records": ["records", "--gpu", own],
        "pipeline profile": ["stages.csv", "out/study", "--options", "{}", "--scale-time", "2"],
        "pipeline frontier": [*shape, "--schedule", "gpipe", *out],
        "pipeline plan": [*shape, "--time", "9", "--switch-latency", "0.001", *out],
        "pipeline solve": [study, "2", "plans"],
        "pipeline replay": [*shape, "--stragglers", "slow.csv", "--pipelines", "2", *out],
        "pipeline export": ["plan.json", "--format", "csv", *out],
        "serving profile": ["--tp", "8", "--core-mhz", "1200", "--classes", "SS", "--requests", "20", *out],
        "serving trace": ["trace.csv"],
        "serving replay": ["trace.csv", "--profile", "serving.csv", "--set", "margin=1.2", *out],
        "serving anchors": [*out],
        "serving table1": [*out, "--requests", "20"],
        "serving study": ["out/serving", "--options", serving],
        "serving experiment": ["systems", "out/serving"],
        "study deployable": [profile, "--latencies", "0.01", "--stalls", "0", *out],
        "study compare-gpus": ["results"],
    }


# they take seconds where nothing is wrong with them, so they are tried less often
SLOW = (
    "serving anchors",
    "serving table1",
)
SLOW += (
    "serving profile",
    "measure by-clock",
    "pipeline frontier",
    "pipeline plan",
    "pipeline solve",
    "study deployable",
)


def options_of(command):
    """The options of a command, with what they take: {flag: number of values}."""
    return {
        action.option_strings[0]: action.nargs
        for action in arguments_of(every_command()[command]).actions
        if action.option_strings and action.help != SUPPRESS and action.option_strings[0] not in _LEFT_OUT
    }


def damaged_file(path, rng):
    """A damaged copy of a file, or what may lie in its place."""
    with open(path, "rb") as file:
        data = bytearray(file.read())
    copy = f"damaged/{rng.randrange(10**9)}-{os.path.basename(path)}"
    os.makedirs("damaged", exist_ok=True)
    how = rng.choice(["cut", "flip", "flip", "byte", "empty", "line", "number", "number", "folder", "swap"])
    if how == "folder":
        os.makedirs(copy)
        return copy
    if how == "empty":
        data = bytearray()
    elif how == "cut" and data:
        del data[rng.randrange(len(data)) :]
    elif how == "flip" and data:
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    elif how == "byte" and data:
        data[rng.randrange(len(data))] = rng.choice(b'\0\n,\xff{}[]"-e9')
    elif how == "line":
        rows = bytes(data).split(b"\n")
        rows.insert(rng.randrange(len(rows) + 1), rng.choice([rng.choice(rows), b"", b"1,2,3", b"\xff,,,", b"{}"]))
        data = bytearray(b"\n".join(rows))
    elif how == "number":
        places = [place for place, byte in enumerate(data) if 48 <= byte <= 57]
        if places:
            at = rng.choice(places)
            data[at : at + 1] = rng.choice([b"1e15", b"-1", b"nan", b"1e999", b"0", b"9" * 30, b"null", b'"x"', b""])
    elif how == "swap":
        others = [name for name in os.listdir(".") if os.path.isfile(name)]
        with open(rng.choice(sorted(others)), "rb") as file:
            data = bytearray(file.read())
    with open(copy, "wb") as file:
        file.write(data)
    return copy


def mutated(words, flags, rng):
    words = list(words)
    for _ in range(rng.choice([0, 1, 1, 1, 1, 1, 2, 3])):
        how = rng.random()
        files = [place for place, word in enumerate(words) if os.path.isfile(word)]
        given = [place for place, word in enumerate(words) if place == 0 or words[place - 1] != "-o"]
        if how < 0.6 and files:
            place = rng.choice(files)
            words[place] = damaged_file(words[place], rng)
        elif how < 0.75 and given:
            words[rng.choice(given)] = rng.choice(WORDS)
        elif how < 0.9 and flags:
            flag = rng.choice(sorted(flags))
            words += [flag] if flags[flag] == 0 else [flag, rng.choice(WORDS)]
        elif how < 0.95 and words:
            del words[rng.randrange(len(words))]
        elif words:
            words.insert(rng.randrange(len(words)), rng.choice(WORDS))
    return words


class TooLongError(BaseException):
    """A command that does not end; no Exception, so that none takes it for a fault of its own."""


def carry_out(words):
    """What becomes of a command: done or refused. Raises what would be a traceback, and TooLongError."""

    def stop(*_):
        raise TooLongError

    # of its own work, and where it only waits; again and again, since a loop of a library may swallow one
    timers = {signal.ITIMER_PROF: (signal.SIGPROF, LIMIT_S), signal.ITIMER_REAL: (signal.SIGALRM, 6 * LIMIT_S)}
    before = {own: signal.signal(own, stop) for own, _ in timers.values()}
    for timer, (_, limit_s) in timers.items():
        signal.setitimer(timer, limit_s, 1)
    try:
        run, options = parsed(words)
        run(options)
        return "done"
    except SystemExit as end:
        assert not end.code, "only help ends a command so"
        return "help"
    except (InputError, ExceptionGroup) as error:
        if any(not isinstance(each, InputError) for each in leaves(error)):
            raise
        said = lines(error)
        assert said and all(line and line.isprintable() for line in said), f"not a line: {said!r}"
        return "refused"
    except ModuleNotFoundError as error:
        if not remedy(error):
            raise
        return "refused"  # main says it in a line: a package that only an extra brings
    except OSError:
        return "refused"  # main says it in a line
    finally:
        for timer in timers:
            signal.setitimer(timer, 0)
        for own, handler in before.items():
            signal.signal(own, handler)


@pytest.mark.slow
def test_many_commands_end_in_time_without_a_traceback(folder, fuzz, fuzz_seed, monkeypatch, capfd):
    monkeypatch.chdir(folder)
    # a broker of ours at the machine's own place would answer the tests that run beside this one
    monkeypatch.setenv("KERNEL_DVFS_BROKER_DIR", str(folder / "broker"))
    known = bases(folder)
    assert set(known) <= set(every_command())
    known = {command: known.get(command, []) for command in every_command()}
    flags = {command: options_of(command) for command in known}
    often = [command for command in known for _ in range(1 if command in SLOW else 6)]
    rng, failed, ends, slowest = random.Random("commands" + fuzz_seed), [], Counter(), (0.0, [])
    for number in range(fuzz):
        command = rng.choice(often)
        words = [*command.split(), *mutated(known[command], flags[command], rng)]
        if command in ALWAYS:
            words = [*words[: words.index("--") if "--" in words else None], *ALWAYS[command]]
        began_s = time.monotonic()
        try:
            ends[carry_out(words)] += 1
        except TooLongError:
            failed.append(f"{number}: no end: {words}")
        except Exception:
            failed.append(f"{number}: {[word[:200] for word in words]}\n{traceback.format_exc(limit=-3)}")
        took_s = time.monotonic() - began_s
        slowest = max(slowest, (took_s, words))
    capfd.readouterr()
    with capfd.disabled():
        print(f"\n{fuzz} commands: {dict(ends)}, slowest {slowest[0]:.1f} s ({slowest[1]}), {len(failed)} failed")
    assert not failed, f"{len(failed)} of {fuzz}\n" + "\n".join(failed[:60])
    assert ends["done"] >= fuzz / 50 and ends["refused"] > fuzz / 3
