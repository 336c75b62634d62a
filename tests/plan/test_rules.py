"""Names that come from users and files reach the shell quoted."""

import re

import pytest

from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_clocks.nvml.facts import known_facts, node_of

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
    assert len(lines) > 20
    found = [(where, name) for where, line in lines for name, quoted in NAMES.findall(line) if not quoted]
    # names of tables and figures are those of modules
    assert [each for each in found if each[1] != "params.name"] == []


@pytest.mark.parametrize(
    "wrong",
    [
        *({"slug": "$(touch X)"}, {"slug": "../../x"}, {"uuid": "GPU-1; touch X"}, {"slug": ""}, {"slug": None}),
        *({"clocks": {}}, {"clocks": {"core_mhz": {"listed": {"a": [1]}}, "mem_mhz": []}}, {"sm_count": 0}),
        *({"clocks": {"core_mhz": {"listed": {"9": [1]}}, "mem_mhz": [5]}}, {"clocks": None}, {"name": 5}),
    ],
)
def test_a_gpu_file_from_elsewhere_that_is_damaged_is_refused(tmp_path, wrong, monkeypatch):
    import json

    whole = {
        "name": "H200",
        "uuid": "GPU-1",
        "slug": "nvidia-h200-1",
        "pci_bus_id": "0",
        "driver": "580",
        "vbios": None,
    }
    whole |= {"power_limit_mw": 700000, "ecc": True, "compute_capability": "9.0", "sm_count": 132}
    whole |= {"threads_per_sm": 2048, "energy_scope": "board"}
    whole |= {"clocks": {"core_mhz": {"listed": {"2201": [345, 360]}}, "mem_mhz": [2201]}}
    monkeypatch.setenv("KERNEL_DVFS_SLURM", "--gres=gpu:1")
    folder = tmp_path / "nvidia-h200-1"
    folder.mkdir()
    file = folder / "gpu.json"
    file.write_text(json.dumps(whole))
    assert known_facts("", str(tmp_path)) == whole
    cases = {json.dumps(whole | wrong): rf"{next(iter(wrong))}\S* is .*, expected |clocks.core_mhz is missing"}
    cases |= {"": r"truncated or not JSON \(", "[]": r"it is \[\], expected a group of fields", "{}": "name is missing"}
    for text, told in cases.items():
        file.write_text(text)
        with pytest.raises(InputError, match=rf"gpu\.json: ({told}).*; delete it, and look at the GPU again"):
            known_facts("", str(tmp_path))


OPTIONS = ['{"node": "n7 --export=ALL,LD_PRELOAD=/tmp/x.so"}', '{"node": "--wrap=true"}', '{"node": "n7\\t-D/"}']


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"node": 5}', "null", *OPTIONS])
def test_a_note_of_a_gpu_s_node_that_is_damaged_or_more_than_a_name_names_none(tmp_path, text):
    """Its name becomes an option of sbatch, which knows options that run code."""
    (tmp_path / "nvidia-h200-1").mkdir()
    (tmp_path / "nvidia-h200-1/node.json").write_text(text)
    assert node_of("nvidia-h200-1", str(tmp_path)) == ""
