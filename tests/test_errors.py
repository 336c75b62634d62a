"""A mistake gets a way out: what was meant, and what to do with files of another version."""

import pytest

from kernel_dvfs.cli.main import main
from kernel_dvfs.errors import InputError, meant, unread
from kernel_dvfs.gpu.spec import resolve
from kernel_dvfs.report.results import Results


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ({"schema": "kernel-dvfs/setup/1"}, "of another version of kernel-dvfs (schema kernel-dvfs/setup/1, this one"),
        ({"schema": "kernel-dvfs/step/2"}, "not a kernel-dvfs/setup/2 file"),
        ({}, "not a kernel-dvfs/setup/2 file"),
        ([], "not a kernel-dvfs/setup/2 file"),
    ],
)
def test_a_file_of_another_version_is_told_from_one_of_another_kind(content, said):
    assert unread(content, "kernel-dvfs/setup/2").startswith(said)


def test_a_schedule_of_another_version_is_refused_with_what_to_delete(tmp_path):
    (tmp_path / "schedules").mkdir()
    (tmp_path / "schedules/s.json").write_text('{"schema": "kernel-dvfs/schedule/0"}')
    with pytest.raises(InputError, match=r"s\.json: of another version .*; delete it and run snakemake"):
        Results(tmp_path).schedule("s")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["chose"], "did you mean 'choose'?"),
        (["serving", "pln"], "did you mean 'plan'?"),
        (["choose", "p.parquet", "--scope", "globl", "-o", "s.json"], "did you mean 'global'?"),
        (["choose", "p.parquet", "--scoep", "global", "-o", "s.json"], "did you mean '--scope'?"),
        (["choose", "p.parquet", "--slak=3", "-o", "s.json"], "did you mean '--slack'?"),
        (["choose", "p.parquet", "q", "--hepl", "-o", "s.json"], "did you mean '--help'?"),
        (["study", "table", "strategis", "."], "did you mean 'strategies'?"),
    ],
)
def test_a_typo_suggests_what_was_meant_in_one_line(words, said, capsys):
    assert main(words) == 2
    told = capsys.readouterr().err
    assert said in told and len(told.splitlines()) == 1


def test_a_gpu_that_is_nearly_known_is_named_and_the_other_ways_too():
    with pytest.raises(InputError, match=r"did you mean .rtx_3080_ti.*; nvml for a GPU of this machine; .kind: table"):
        resolve("rtx_3080ti")
    assert meant("entirely else", ["rtx_3080_ti"]) == ""


def test_a_study_that_is_not_there_says_from_where_it_was_looked_for(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["report", "results/a/b"]) == 2
    assert f"in the folder that the study ran in (this is {tmp_path})" in capsys.readouterr().err
