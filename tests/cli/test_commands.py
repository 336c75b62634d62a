"""Every command explains itself with an example, and errors are one line with exit code 2."""

import subprocess
import sys

import pytest

from kernel_dvfs.cli.main import COMMANDS, GROUPS, every_command, group, main


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
    assert {word for word, command in group(name).items() if f"\n  {word} " in shown} == {
        word for word, command in group(name).items() if command.listed
    }


def test_a_slip_of_the_keyboard_is_told_what_was_meant(refused):
    assert "unknown command 'plam' (did you mean 'plan'?)" in refused("pipeline", "plam")


def test_an_unknown_command_or_option_is_one_line(refused):
    for arguments in (["mesure"], ["measure", "--gpuu", "x"], ["measure"], ["pipeline"], []):
        assert "--help" in refused(*arguments)


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
