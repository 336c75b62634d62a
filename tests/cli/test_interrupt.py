"""Ctrl-C is one line and the exit code that a shell expects, whatever a command was doing."""

import kernel_dvfs.cli.main as program
from kernel_dvfs.cli import Command


def test_ctrl_c_is_one_line(monkeypatch, capsys):
    def run(options):
        raise KeyboardInterrupt

    monkeypatch.setitem(program.COMMANDS, "devices", Command("", lambda parser: None, run))
    assert program.main(["devices"]) == 130
    assert capsys.readouterr().err == "error: interrupted\n"
