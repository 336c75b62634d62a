"""Every command explains itself with an example, and errors are one line with exit code 2."""

import subprocess
import sys
from inspect import signature

import pytest
from kernel_dvfs.cli.table import KINDS, kind_of

from kernel_dvfs.cli import Command
from kernel_dvfs.cli.main import COMMANDS, GROUPS, every_command, group, main
from kernel_dvfs.outputs import modules
from kernel_dvfs.report import tables


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
    assert all(f"\n  {command} " in shown for command in COMMANDS)
    assert all(f"\n  {name} ... " in shown for name in GROUPS)


@pytest.mark.parametrize("name", sorted(set(GROUPS) - set(COMMANDS)))
def test_help_of_a_group_lists_its_commands_without_those_that_only_rules_call(name, capsys):
    with pytest.raises(SystemExit) as stopped:
        main([name, "--help"])
    shown = capsys.readouterr().out
    assert stopped.value.code == 0
    commands = group(name)
    listed = {word for word, command in commands.items() if command.listed}
    assert {word for word in commands if f"\n  {word} " in shown} == listed
    assert all(f"{word} {commands[word].help}" in " ".join(shown.split()) for word in listed)


@pytest.mark.parametrize("table", modules(tables).values())
def test_every_option_of_every_table_has_a_kind(table):
    options = list(signature(table.make).parameters.values())[1:]
    assert {kind_of(option) for option in options} <= set(KINDS)


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
