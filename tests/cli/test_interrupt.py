"""Ctrl-C is one line at most and the exit code that a shell expects, whatever a command was doing."""

import runpy
import sys
from types import ModuleType

import pytest

import kernel_dvfs.cli.main as program
from kernel_dvfs.cli import Command


def test_ctrl_c_is_one_line(monkeypatch, capsys):
    def run(options):
        raise KeyboardInterrupt

    monkeypatch.setitem(program.COMMANDS, "devices", Command("", lambda parser: None, run))
    assert program.main(["devices"]) == 130
    assert capsys.readouterr().err == "error: interrupted\n"


def test_ctrl_c_while_modules_are_imported_prints_no_traceback(monkeypatch, capsys):
    class Imported(ModuleType):
        def __getattr__(self, name):
            raise KeyboardInterrupt

    monkeypatch.setitem(sys.modules, "kernel_dvfs.cli.main", Imported("kernel_dvfs.cli.main"))
    with pytest.raises(SystemExit) as ended:
        runpy.run_module("kernel_dvfs", run_name="__main__")
    assert ended.value.code == 130 and capsys.readouterr().err == ""
