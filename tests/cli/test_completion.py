"""A shell completes the commands, their second words and their options."""

import os
import pty
import shutil
import subprocess
from select import select
from types import SimpleNamespace

import pytest

from kernel_dvfs.cli.arguments import arguments_of
from kernel_dvfs.cli.completion import script
from kernel_dvfs.cli.main import commands, every_command, main


@pytest.fixture(scope="module")
def completed():
    """`completed("study", "--d")`: what bash offers for the last of these words."""
    bash = shutil.which("bash") or pytest.skip("no bash")
    made = script("bash", every_command())
    ask = 'COMP_WORDS=(kernel-dvfs "$@"); COMP_CWORD=$#; _kernel_dvfs; echo "${COMPREPLY[@]}"'

    def of(*words):
        done = subprocess.run([bash, "-c", f"{made}{ask}", "bash", *words], capture_output=True, text=True, check=True)
        assert not done.stderr
        return done.stdout.split()

    return of


def test_the_first_word_is_a_command_or_a_group(completed):
    listed = {name for name, each in commands().items() if each.listed}
    assert listed <= {*completed("")} and {"pipeline", "serving"} <= {*completed("")}
    assert completed("stu") == ["study"] and not completed("nothing", "")


@pytest.mark.parametrize("name", [name for name, each in every_command().items() if each.listed])
def test_every_option_of_every_command_is_offered(completed, name):
    flags = {flag for each in arguments_of(every_command()[name]).actions for flag in each.option_strings}
    assert {*completed(*name.split(), "--")} == {each for each in flags if each.startswith("--")} | {"--help", "--log"}


def test_what_a_group_and_command_takes_depends_on_the_words_before(completed):
    assert completed("measure", "a") == ["again", "aggregate"]
    assert completed("measure", "again", "a") == [] == completed("measure", "--target", "a")
    assert completed("measure", "again", "--sc") == ["--schedules"]
    assert completed("study", "mine.csv", "--dr") == completed("study", "--dr") == ["--dry-run"]
    assert "serve" not in completed("measure", ""), "only rules call it"


def test_a_command_whose_packages_are_not_installed_is_completed_by_its_name():
    def lacks(parser):
        raise ModuleNotFoundError("No module named 'numpy'", name="numpy")

    made = script("bash", every_command() | {"heavy": SimpleNamespace(listed=True, add_arguments=lacks)})
    assert " heavy " in made and "    heavy/*) words='--help --log' ;;" in made and "--pair" in made


def test_the_script_is_printed_for_shells_that_it_is_for(capsys, refused):
    with pytest.raises(SystemExit) as ended:
        main(["--completion", "zsh"])
    assert ended.value.code == 0 and "bashcompinit\n_kernel_dvfs() {" in capsys.readouterr().out
    assert "choose from bash, zsh" in refused("--completion", "fish")


@pytest.mark.parametrize("begun", [True, False], ids=["with compinit", "without"])
def test_zsh_completes_what_is_typed(tmp_path, begun):
    zsh = shutil.which("zsh") or pytest.skip("no zsh")
    (tmp_path / "completion").write_text(script("zsh", every_command()), encoding="utf-8")
    compinit = "autoload -U compinit; compinit -u -D\n" * begun
    (tmp_path / ".zshrc").write_text(f"PS1='ready> '\n{compinit}source {tmp_path}/completion\n", encoding="utf-8")
    ours, theirs = pty.openpty()
    shell = subprocess.Popen(
        [zsh, "-d", "-i"],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={"ZDOTDIR": str(tmp_path), "TERM": "dumb", "PATH": os.environ["PATH"]},
        start_new_session=True,
    )
    os.close(theirs)
    shown = b""

    def answers() -> bool:
        """Whether it wrote something within a minute, and did not end."""
        nonlocal shown
        try:
            wrote = os.read(ours, 4096) if select([ours], [], [], 60)[0] else b""
        except OSError:  # it has ended
            wrote = b""
        shown += wrote
        return bool(wrote)

    try:
        while b"ready> " not in shown and answers():
            pass
        os.write(ours, b"kernel-dvfs stu\t--dr\t\x15exit\n")  # the line is taken back, then the shell ends
        while answers():
            pass
    finally:
        os.close(ours)
        shell.kill()
        shell.wait()
    said = shown.decode(errors="replace")
    assert "kernel-dvfs study " in said and "--dry-run" in said and "not found" not in said, said
