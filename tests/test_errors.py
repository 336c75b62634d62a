"""A mistake gets a way out: what was meant, and what to do with files of another version."""

import pytest

from kernel_dvfs.gpu.spec import resolve
from kernel_dvfs.report.results import Results
from kernel_dvfs_clocks.errors import InputError, lines, meant, unread


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


@pytest.mark.parametrize("other", ["rtx3090", "rtx_4090", "h100_pcie", "h20_sxm"])  # all of them exist
def test_a_gpu_that_is_nearly_known_is_named_and_the_other_ways_too(other):
    with pytest.raises(InputError, match=r"did you mean .rtx_3080_ti.*; nvml for a GPU of this machine; .kind: table"):
        resolve("rtx_3080ti")
    assert meant("entirely else", ["rtx_3080_ti"]) == ""
    # a beginning is enough; what only shares letters is no help
    assert meant("h200", ["rtx_3080_ti", "h200_sxm"]) == " (did you mean 'h200_sxm'?)"
    with pytest.raises(InputError, match="no such simulated GPU; allowed: "):
        resolve(other)
    assert meant("rtx3090", ["rtx_3080_ti", "rtx_a4000"]) == meant("slack", ["lock", "ties"]) == ""


def test_a_package_that_is_missing_is_told_with_the_extra_that_brings_it():
    missing = ExceptionGroup("", [ModuleNotFoundError("No module named 'mpmath'", name="mpmath"), InputError("other")])
    assert lines(missing) == ["this needs mpmath: pip install 'kernel-dvfs[tables]'", "other"]
    assert lines(ModuleNotFoundError("No module named 'mine'", name="mine")) == ["No module named 'mine'"]
