"""Every command explains itself with an example, and errors are one line with exit code 2."""

import os
import runpy
import subprocess
import sys
from types import ModuleType

import pytest

from kernel_dvfs.cli.main import COMMANDS, commands, every_command, group, groups, main
from kernel_dvfs.cli.output import OPTIONS, annotation_of, options_of
from kernel_dvfs.command import Command
from kernel_dvfs.registry import outputs


@pytest.mark.parametrize("command", every_command())
def test_help_shows_an_example(command, capsys):
    with pytest.raises(SystemExit) as stopped:
        main([*command.split(), "--help"])
    assert stopped.value.code == 0
    assert "example: kernel-dvfs " + command in " ".join(capsys.readouterr().out.split())


def test_help_lists_what_users_call_and_the_groups(capsys):
    with pytest.raises(SystemExit):
        main(["--help"])
    shown = capsys.readouterr().out
    assert all(f"\n  {command} " in shown for command in commands())
    assert all(f"\n  {name} ... " in shown for name in groups())


@pytest.mark.parametrize("name", sorted(set(groups()) - set(commands())))
def test_help_of_a_group_lists_its_commands_without_those_that_only_rules_call(name, capsys):
    with pytest.raises(SystemExit) as stopped:
        main([name, "--help"])
    shown = capsys.readouterr().out
    assert stopped.value.code == 0
    commands = group(name)
    listed = {word for word, command in commands.items() if command.listed}
    assert {word for word in commands if f"\n  {word} " in shown} == listed
    assert all(f"{word} {commands[word].help}" in " ".join(shown.split()) for word in listed)


@pytest.mark.parametrize("output", outputs("gpu").of("table").values(), ids=lambda output: output.name)
def test_every_option_of_every_table_has_a_kind(output):
    assert {annotation_of(option) for option in options_of(output).values()} <= set(OPTIONS)


def test_ctrl_c_is_one_line_and_the_exit_code_that_a_shell_expects(monkeypatch, capsys):
    def run(options):
        raise KeyboardInterrupt

    monkeypatch.setitem(COMMANDS, "devices", Command("", lambda parser: None, run))
    assert main(["devices"]) == 130
    assert capsys.readouterr().err == "error: interrupted\n"


def test_the_module_runs_as_a_program(root):
    words = ["choose", "missing.parquet", "--scope", "global", "--objective", "edp", "-o", "x"]
    done = subprocess.run(
        [sys.executable, "-m", "kernel_dvfs", *words],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(root / "workflow")},
    )
    assert done.returncode == 2
    assert done.stderr.startswith("error: ") and done.stderr.count("\n") == 1 and "missing.parquet" in done.stderr


def test_ctrl_c_while_modules_are_imported_prints_no_traceback(monkeypatch, capsys):
    class Imported(ModuleType):
        def __getattr__(self, name):
            raise KeyboardInterrupt

    monkeypatch.setitem(sys.modules, "kernel_dvfs.cli.main", Imported("kernel_dvfs.cli.main"))
    with pytest.raises(SystemExit) as ended:
        runpy.run_module("kernel_dvfs", run_name="__main__")
    assert ended.value.code == 130 and capsys.readouterr().err == ""


def test_too_little_memory_is_a_line(root):
    """As batch systems limit it: a library that a command needs cannot be mapped any more."""
    code = """
import resource, sys
import numpy
from kernel_dvfs.cli.main import main
pages = int(open("/proc/self/statm").read().split()[0])
resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + (4 << 20),) * 2)
sys.exit(main(["choose", "profile.parquet"]))
"""
    # from wherever the tests run, whatever is installed
    environment = os.environ | {"PYTHONPATH": str(root / "workflow")}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert done.returncode == 2 and done.stderr.count("\n") == 1, done.stderr
    assert done.stderr.startswith("error: a limit of ") and "(ulimit -v) is too low here" in done.stderr


@pytest.mark.parametrize("mib", [24, 33, 40, 66, 90])
@pytest.mark.parametrize("words", [("choose", "profile.parquet"), ("devices",), ("tune", "--", "true")], ids="".join)
def test_a_limit_on_memory_that_is_too_low_is_a_line_wherever_it_is_met(mib, words, root):
    done = subprocess.run(
        ["sh", "-c", f'ulimit -v {mib << 10}; exec "$@"', "sh", sys.executable, "-m", "kernel_dvfs", *words],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(root / "workflow")},
        timeout=120,
    )
    # what a library of numbers says by itself, before it ends the process, is a line too
    assert done.returncode in (0, 1, 2) and (done.stdout or done.returncode), done.stderr
    assert done.stderr.count("\n") <= 1 and "Traceback" not in done.stderr, done.stderr
    assert (
        mib >= 64
        or done.stderr == f"error: a limit of {mib} MiB on memory (ulimit -v) is too low: 64 MiB at least; raise it\n"
    )
