"""`kernel-dvfs calibrate` finds what of a fake board differs from its type's spec, and writes what a study takes."""

import json

import pytest
import yaml

from kernel_dvfs.gpu import spec
from kernel_dvfs.plan.study import plan

TRUE = {
    "energy_pj": {"dram_byte": 85},
    "families": {"default": {"dram_efficiency": 0.89}, "bias": {"dram_efficiency": 0.95}},
}


def test_the_figures_of_the_board_are_found_and_a_study_takes_them(lab, config, tmp_path):
    made = lab("h200")
    done = made.command("calibrate", "--gpu", "nvml:0", "-o", "board.yaml", FAKE_FIGURES=json.dumps(TRUE))
    assert done.returncode == 0, done.stderr
    written = (made.folder / "board.yaml").read_text()
    found = yaml.safe_load(written)
    assert found["gpu"] == "h200_sxm" and written.startswith("# Simulated H200 on a fake NVML (GPU-fa4e0000-")
    own = found["gpu_overrides"]
    # the fake draws the standing power of a warm board, however cold it says it is
    assert own["energy_pj"]["dram_byte"] == pytest.approx(85, rel=0.03)
    assert own["families"]["default"]["dram_efficiency"] == pytest.approx(0.89, rel=0.005)
    assert own["families"]["bias"]["dram_efficiency"] == pytest.approx(0.95, rel=0.005)
    study = plan(config(**found), str(tmp_path))
    assert json.loads(study.setup.text)["gpu"]["spec"]["families"]["gelu"]["dram_efficiency"] == pytest.approx(
        0.89, rel=0.005
    )
    # what was found beside what the spec says, and what to do with it
    first, second = done.stdout.splitlines()
    assert "pJ (h200_sxm: 64.5); copies reach 0.89 of 4800 GB/s (0.831), reads 0.9" in first
    assert second.endswith("snakemake --cores 1 all --configfile board.yaml")
    # nothing was set
    assert made.boards.get("sets") == "0"
    assert made.restored()


@pytest.mark.parametrize(
    "profile, words, knobs, said",
    [
        ("h200", ("--like", "h100_sxm"), {}, "dram_copy: the memory ran at 3201 MHz, that of H100 SXM at 2619"),
        ("h200", ("--like", "h200_sx"), {}, "no such simulated GPU (did you mean 'h200_sxm'?)"),
        ("h200", (), {"foreign_compute": 1}, "compute on it"),
        ("h200", ("--gpu", "nvml:3"), {}, "no such GPU here"),
    ],
)
def test_refusals_are_one_line_and_write_nothing(lab, profile, words, knobs, said):
    made = lab(profile, **knobs)
    done = made.command("calibrate", *words, "-o", "board.yaml")
    errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert done.returncode == 2 and len(errors) == 1 and said in errors[0], done.stderr
    assert "Traceback" not in done.stderr and not (made.folder / "board.yaml").exists()


@pytest.mark.parametrize(
    "board, name",
    [
        ("NVIDIA H100 80GB HBM3", "h100_sxm"),
        ("NVIDIA H100 PCIe", None),
        ("NVIDIA H200", "h200_sxm"),
        ("NVIDIA A100-SXM4-40GB", "a100_sxm"),
        ("NVIDIA A100-PCIE-40GB", "a100_pcie"),
        ("NVIDIA GeForce RTX 3080 Ti", "rtx_3080_ti"),
        ("NVIDIA GeForce RTX 3080", None),
        ("NVIDIA RTX A4000", "rtx_a4000"),
        ("NVIDIA A40", None),
    ],
)
def test_the_type_of_a_board_is_found_by_its_name(board, name):
    assert spec.of_board(board) == name
