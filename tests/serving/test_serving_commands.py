"""The serving commands: one group, small runs, and bad options as one line."""

import pytest

from kernel_dvfs.cli.main import main
from kernel_dvfs.cli.serving import COMMANDS


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_of_a_command_shows_an_example(command, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["serving", command, "--help"])
    assert stopped.value.code == 0
    assert f"example: kernel-dvfs serving {command}" in " ".join(capsys.readouterr().out.split())


def test_the_help_of_the_group_lists_its_commands_with_what_they_do(capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["serving", "--help"])
    said = " ".join(capsys.readouterr().out.split())
    listed = {name: command for name, command in COMMANDS.items() if command.listed}
    assert stopped.value.code == 0 and all(f"{name} {command.help}" in said for name, command in listed.items())


@pytest.mark.parametrize(
    "words,said",
    [
        (["serving"], "kernel-dvfs serving: a command is expected"),
        (["serving", "replays"], "kernel-dvfs serving: unknown command"),
        (["serving", "replay"], "kernel-dvfs serving replay --help"),
        (["serving", "experiment"], "kernel-dvfs serving experiment --help"),
    ],
)
def test_an_unknown_or_incomplete_command_is_told_by_its_full_name(words, said, refused):
    assert said in refused(*words)


def test_a_profile_by_command(tmp_path):
    path = tmp_path / "profile.csv"
    asked = ["--tp", "8", "--core-mhz", "1200", "--classes", "SS", "--requests", "40", "-o", str(path)]
    assert main(["serving", "profile", *asked]) == 0
    assert path.read_text().splitlines()[1].startswith("model,gpu,tp,core_mhz,class,tps,power_w")


@pytest.mark.parametrize(
    "asked,said",
    [
        (["--core-mhz", "5000"], "no core clock 5000 MHz"),
        (["--core-mhz", "1200,x"], "--core-mhz 1200,x: expected different whole numbers"),
        (["--core-mhz", "1200", "--classes", "SS,QQ"], "no class 'QQ'"),
        (["--core-mhz", "1200", "--gpu", "rtx_3080_ti"], "no interconnect"),
        (["--core-mhz", "1200", "--model", "gpt3-xl"], "allowed: llama2-7b, llama2-13b"),
        (["--core-mhz", "1200", "--tp", "3"], "tp 3 does not split"),
        (["--core-mhz", "1200", "--requests", "3"], "--requests: expected a whole number from 20"),
        (["--core-mhz", "1200", "--chunk-tokens", "256"], "must hold more tokens than the batch"),
    ],
)
def test_bad_options_are_one_line_and_leave_nothing(asked, said, tmp_path, capsys):
    assert main(["serving", "profile", *asked, "-o", str(tmp_path / "p.csv")]) == 2
    text = capsys.readouterr().err
    assert said in text and text.startswith("error: ") and text.count("\n") == 1
    assert not list(tmp_path.iterdir())
