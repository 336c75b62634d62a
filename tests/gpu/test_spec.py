import csv

import pytest
import yaml

from kernel_dvfs.errors import InputError
from kernel_dvfs.gpu import spec
from kernel_dvfs.gpu.kernel import Work, family_of


@pytest.mark.parametrize("name", ["rtx_3080_ti", "rtx_a4000", "a100_pcie", "a100_sxm", "h100_sxm", "h200_sxm"])
def test_a_shipped_gpu_resolves_and_every_figure_says_its_source(name, root):
    resolved = spec.resolve(name)
    assert resolved["id"] == name.replace("_", "-")
    assert set(resolved["families"]) >= {"gemm", "attention_gemm", "softmax", "layernorm", "permute", "bias"}
    text = (root / f"workflow/kernel_dvfs/gpu/specs/{name}.yaml").read_text()
    assert text.count("source:") == text.count("value:") > 30


def test_families_hold_no_kernel_of_their_own():
    """Physics only: a family has the five efficiencies and nothing else, and there are far fewer than kernels."""
    families = spec.resolve("rtx_3080_ti")["families"]
    assert len(families) <= 16
    fields = {"tensor_efficiency", "dram_efficiency", "sm_byte_per_clock", "overlap", "latency_us"}
    assert all(set(family) == fields for family in families.values())


def test_only_a_gpu_that_says_so_tells_a_backward_family_from_the_forward_one():
    backward = Work("flash_attention_backward", 1e12, 0, 0, 1e8)
    h200, a100 = (spec.resolve(name) for name in ("h200_sxm", "a100_sxm"))
    assert [name for name in spec.names() if backward.family in spec.resolve(name)["families"]] == ["h200_sxm"]
    assert family_of(a100, backward) == a100["families"]["flash_attention"]
    own, forward = family_of(h200, backward), h200["families"]["flash_attention"]
    assert own == forward | {"tensor_efficiency": own["tensor_efficiency"]}


def test_the_h200_has_the_efficiencies_that_fused_attention_had_there(root):
    with open(root / "experiments/results/gpu_flash_rows_h200.csv", encoding="utf-8") as file:
        measured = {row["row"]: row["of_peak_at_clock"] for row in csv.DictReader(file)}
    families = spec.resolve("h200_sxm")["families"]
    for row, family in (("forward_attention", ""), ("backward_attention", "_backward")):
        assert families[f"flash_attention{family}"]["tensor_efficiency"] == pytest.approx(
            float(measured[row]), abs=1e-3
        )


def test_an_unknown_gpu_is_refused_with_the_known_ones():
    with pytest.raises(InputError, match="rtx_3080_ti"):
        spec.resolve("rtx_9999")


def test_an_override_replaces_one_figure_and_leaves_the_rest():
    plain = spec.resolve("rtx_3080_ti")
    other = spec.resolve("rtx_3080_ti", {"energy_pj": {"tensor_bf16_flop": 1.0}})
    assert other["energy_pj"].pop("tensor_bf16_flop") == 1.0
    assert plain["energy_pj"].pop("tensor_bf16_flop") == 0.9
    assert other == plain


@pytest.mark.parametrize(
    "override",
    [
        {"governor": {"cap_w": -1}},
        {"governer": {"cap_w": 300}},
        {"memory": {"eta": {"fast": 1}}},
        {"clocks": {"mem_mhz": [405, 12000]}},
        {"core": {"v_over_v0": [[1470, 1.0], [1050, 1.1]]}},
    ],
)
def test_an_impossible_override_is_refused_in_one_line(override):
    with pytest.raises(InputError) as refused:
        spec.resolve("rtx_3080_ti", override)
    assert "\n" not in str(refused.value)


def test_a_figure_without_a_source_is_refused():
    tree = yaml.safe_load("cap_w: {value: 345}")
    with pytest.raises(InputError, match="source"):
        spec._strip(tree, "rtx")
    with pytest.raises(InputError, match="bare figure"):
        spec._strip({"cap_w": 345}, "rtx")
