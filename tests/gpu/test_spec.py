import csv

import pytest
import yaml

from kernel_dvfs.gpu import spec
from kernel_dvfs.gpu.governor import settle
from kernel_dvfs.gpu.kernel import LaunchWork, family_of, parameters
from kernel_dvfs.workload.rows import kernel_rows
from kernel_dvfs.workload.traffic import dense_products
from kernel_dvfs_clocks.clocks import BASELINE
from kernel_dvfs_clocks.errors import InputError


@pytest.mark.parametrize(
    "name", ["rtx_3080_ti", "rtx_a4000", "a100_pcie", "a100_sxm", "h100_sxm", "h200_sxm", "b200_sxm", "gb200"]
)
def test_a_shipped_gpu_resolves_and_every_figure_says_its_source(name, root):
    resolved = spec.resolve(name)
    assert resolved["id"] == name.replace("_", "-")
    assert set(resolved["families"]) >= {"gemm", "attention_gemm", "softmax", "layernorm", "permute", "bias"}
    text = (root / f"workflow/kernel_dvfs/gpu/specs/{name}.yaml").read_text()
    assert text.count("source:") == text.count("value:") > (1 if "\nbase:" in text else 30)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder of specs of its own: folder(name, text) writes one."""
    monkeypatch.setattr(spec, "_FOLDER", tmp_path)
    spec._read.cache_clear()
    yield lambda name, text: (tmp_path / f"{name}.yaml").write_text(text)
    spec._read.cache_clear()


def test_a_spec_has_what_its_base_says_and_replaces_single_figures(folder):
    folder(
        "old", "name: Old\nmemory: {eta: {value: {1: 1, 2: 1}, source: published}, l2_mb: {value: 6, source: measured}}"
    )
    folder("middle", "base: old\nname: Middle\nmemory: {eta: {value: {3: 1}, source: assumed, note: guess}}")
    folder("new", "base: middle\nname: New\nsm_count: {value: 4, source: published}")
    # a figure of several numbers is one figure; what is inherited keeps its source and its note
    assert spec._read("new") == {
        "name": "New",
        "memory": {
            "eta": {"value": {3: 1}, "source": "assumed", "note": "guess"},
            "l2_mb": {"value": 6, "source": "measured"},
        },
        "sm_count": {"value": 4, "source": "published"},
    }
    assert spec._read("old")["memory"]["eta"]["value"] == {1: 1, 2: 1}


def test_a_base_that_is_not_there_or_leads_back_is_refused_in_one_line(folder):
    folder("longer", "base: longe")
    folder("a", "base: b")
    folder("b", "base: a")
    folder("alone", "base: alone")
    for name, said in (
        (
            "longer",
            r"longer.yaml: base 'longe': no such spec \(did you mean 'longer'\?\); allowed: a, alone, b, longer",
        ),
        ("a", "a.yaml: a -> b -> a: base leads in a circle"),
        ("alone", "alone.yaml: alone -> alone: base leads in a circle"),
    ):
        with pytest.raises(InputError, match=said) as refused:
            spec.resolve(name)
        assert "\n" not in str(refused.value)


def test_the_h100_is_the_h200_but_for_its_memory():
    h100, h200 = (spec.served(name) for name in ("h100_sxm", "h200_sxm"))
    differs = {key for key in h200 if h100[key] != h200[key]}
    assert differs == {"id", "name", "clocks", "memory"} and h100.keys() == h200.keys()
    assert {key for key in h200["clocks"] if h100["clocks"][key] != h200["clocks"][key]} == {"mem_mhz", "auto_mem_mhz"}
    assert (h100["memory"]["gb_per_s"], h100["clocks"]["auto_mem_mhz"]) == (3350, 2619)


def test_families_hold_no_kernel_of_their_own():
    """Physics only: a family has the five efficiencies and nothing else, and there are far fewer than kernels."""
    families = spec.resolve("rtx_3080_ti")["families"]
    assert len(families) <= 16
    fields = {"tensor_efficiency", "dram_efficiency", "sm_byte_per_clock", "overlap", "latency_us"}
    assert all(set(family) == fields for family in families.values())


def test_only_a_gpu_that_says_so_tells_a_backward_family_from_the_forward_one():
    backward = LaunchWork("flash_attention_backward", 1e12, 0, 0, 1e8)
    h200, a100 = (spec.resolve(name) for name in ("h200_sxm", "a100_sxm"))
    having = [name for name in spec.names() if backward.family in spec.resolve(name)["families"]]
    assert having == ["b200_sxm", "gb200", "h100_sxm", "h200_sxm"]
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


def test_a_board_says_what_judges_its_savings_or_that_nothing_does():
    assert "33 kernels" in spec.savings_of("RTX 3080 Ti") and "left out" in spec.savings_of("H100 SXM")
    for name in ("H100 SXM", "H200 SXM"):  # one product tells no saving of many kernels
        assert spec.NOT_JUDGED in spec.savings_of(name) != spec.NOT_JUDGED
    assert spec.NOT_JUDGED not in spec.savings_of("RTX 3080 Ti") + spec.savings_of("A100 SXM")
    for name in ("RTX A4000", "B200 SXM", "GB200", "a board of somebody's own"):
        assert spec.savings_of(name) == spec.NOT_JUDGED
    assert "savings" not in spec.resolve("h100_sxm"), "no reason to measure again"


def test_a_product_in_fewer_bits_is_faster_moves_less_and_costs_less():
    work = LaunchWork("gemm", 1e12, 0, 0, 1e8)
    bf16, nvfp4 = (spec.resolve("b200_sxm", {"families": {"gemm": {"precision": name}}}) for name in ("bf16", "nvfp4"))
    plain, few = (parameters(each, work) for each in (bf16, nvfp4))
    assert few.core_s_ghz == pytest.approx(plain.core_s_ghz / 4) and few.memory_s == plain.memory_s
    by_byte = bf16["energy_pj"]["stream_byte"] * 1e8 * 1e-12
    assert few.core_j - by_byte == pytest.approx(0.505 * (plain.core_j - by_byte))
    rows = [row for row in kernel_rows() if row.family == "gemm"]
    ratio = [dense_products(rows, nvfp4)[row.id][0] / dense_products(rows, bf16)[row.id][0] for row in rows]
    assert min(ratio) > 0.28 and max(ratio) < 1, "results stay in bf16"
    with pytest.raises(InputError, match=r"families.gemm.precision: no fp4 here; allowed: bf16, fp8, nvfp4"):
        spec.resolve("b200_sxm", {"families": {"gemm": {"precision": "fp4"}}})


# pJ of the whole board for a FLOP of large products at auto: ai-dynamo/aiconfigurator (Apache-2.0); the GB200's took no
# part in the fit
@pytest.mark.parametrize(
    ("gpu", "precision", "board_pj", "within"),
    [("b200_sxm", "bf16", 0.72, 0.03), ("b200_sxm", "nvfp4", 0.26, 0.03), ("gb200", "bf16", 0.79, 0.06)],
)
def test_large_products_on_blackwell_cost_what_public_tables_say(gpu, precision, board_pj, within):
    own = spec.resolve(gpu, {"families": {"gemm": {"precision": precision}}})
    byte = (2 * (own["precisions"][precision]["byte"] if precision != "bf16" else 2) + 2) * 8192**2
    work = LaunchWork("gemm", 2 * 8192**3, 0, 0, byte, 0.97)
    state = settle(own, [(parameters(own, work), 1)], BASELINE, own["thermal"]["reference_c"])
    assert state.capped and 1e12 * state.power_w * state.time_s / work.tensor_flop == pytest.approx(
        board_pj, rel=within
    )


def test_an_unknown_gpu_is_refused_with_the_known_ones():
    with pytest.raises(InputError, match="rtx_3080_ti"):
        spec.resolve("rtx_9999")


def test_an_override_replaces_one_figure_and_leaves_the_rest():
    plain = spec.resolve("rtx_3080_ti")
    other = spec.resolve("rtx_3080_ti", {"energy_pj": {"tensor_bf16_flop": 1.0}})
    assert other["energy_pj"].pop("tensor_bf16_flop") == 1.0
    assert plain["energy_pj"].pop("tensor_bf16_flop") != 1.0
    assert other == plain


def test_an_override_of_the_default_family_holds_where_a_family_has_no_figure_of_its_own():
    plain, other = (
        spec.resolve("h200_sxm", over)["families"] for over in ({}, {"families": {"default": {"dram_efficiency": 0.5}}})
    )
    changed = {family for family in plain if other[family] != plain[family]}
    assert {"softmax", "residual"} <= changed and not changed & {"bias", "gemm", "attention_gemm"}
    assert all(other[family] == plain[family] | {"dram_efficiency": 0.5} for family in changed)


@pytest.mark.parametrize(
    "override",
    [
        {"families": {"gem": {"overlap": 3}}},
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
