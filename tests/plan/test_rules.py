"""Names that come from users and files reach the shell quoted."""

import re

import pytest

from kernel_dvfs.errors import InputError
from kernel_dvfs.gpu.nvml.known import known_facts

# files, folders and what a shared gpu.json says; all else in a shell line is a number, a choice or words of ours
NAMES = re.compile(r"\{\{?((?:input|output|log)(?:\[\d\]|\.\w+)?|params\.(?:folder|uuid|step|name|text))(:q)?\}")


def shell_lines(root):
    for path in sorted((root / "workflow/rules").glob("*.smk")):
        inside = False
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if line.strip() == "shell:":
                inside = True
            elif inside and line.lstrip().startswith(('"', 'f"')):
                yield f"{path.name}:{number}", line
            else:
                inside = False


def test_every_name_in_a_shell_line_is_quoted(root):
    lines = list(shell_lines(root))
    assert len(lines) > 40
    found = [(where, name) for where, line in lines for name, quoted in NAMES.findall(line) if not quoted]
    # names of tables and figures are those of modules
    assert [each for each in found if each[1] != "params.name"] == []


@pytest.mark.parametrize(
    "wrong", [{"slug": "$(touch X)"}, {"slug": "../../x"}, {"uuid": "GPU-1; touch X"}, {"slug": ""}]
)
def test_a_gpu_file_from_elsewhere_that_is_no_name_is_refused(tmp_path, wrong, monkeypatch):
    import json

    monkeypatch.setenv("KERNEL_DVFS_SLURM", "--gres=gpu:1")
    folder = tmp_path / "nvidia-h200-1"
    folder.mkdir()
    (folder / "gpu.json").write_text(json.dumps({"uuid": "GPU-1", "slug": "nvidia-h200-1"} | wrong))
    with pytest.raises(InputError, match="damaged; delete it"):
        known_facts("", str(tmp_path))
