"""How a refused command looks."""

import pytest

from kernel_dvfs.cli.main import main


@pytest.fixture
def refused(capsys):
    """`refused(words)` runs a command that must fail with one line, and returns that line."""

    def run(*words):
        assert main([str(word) for word in words]) == 2
        said = capsys.readouterr().err
        assert said.startswith("error: ") and said.count("\n") == 1
        return said

    return run
