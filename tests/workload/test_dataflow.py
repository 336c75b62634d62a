"""What one row writes the next ones read: an iteration with no tensor missing, none changed while it is repeated."""

from dataclasses import replace

import pytest

from kernel_dvfs.workload.dataflow import DATAFLOW, bindings
from kernel_dvfs.workload.models import MODELS
from kernel_dvfs.workload.rows import kernel_rows
from kernel_dvfs_clocks.errors import InputError

H200 = {"bias_split": "llmc", "sm_count": 132, "threads_per_sm": 2048}
FLASH = "gpt3-xl-flash"
OPTIONS = [
    {},
    {"tensor_parallel": 4},
    H200,
    {"tensor_parallel": 4, "row_parallel_bias": "gathered"},
    {"model": FLASH},
    {"model": FLASH, "tensor_parallel": 4},
]

LINEAR = {"wqkv", "bqkv", "wo", "bo", "wfc", "bfc", "wp", "bp"}
PARAMETERS = LINEAR | {"wte", "wpe"} | {f"{ln}_{part}" for ln in ("ln1", "ln2", "lnf") for part in ("gamma", "beta")}
ACCUMULATORS = {f"d{name}_in" for name in PARAMETERS - {"wpe", "wte"}} | {"dwpe_in", "dwte_in", "dres3_in", "losses_in"}

OUTPUTS = {
    "embedding_forward": {"out"},
    "layernorm_forward": {"out", "mean", "rstd"},
    "residual_layernorm": {"sum", "out", "mean", "rstd"},
    "permute_qkv_forward": {"q", "k", "v"},
    "permute_heads_forward": {"out"},
    "softmax_forward": {"att"},
    "attention_forward": {"out", "lse"},
    "attention_backward": {"dqkv"},
    "gelu_forward": {"out"},
    "classifier": {"dlogits", "losses_out"},
    "layernorm_backward": {"dinp_out", "dgamma_out", "dbeta_out"},
    "gelu_backward": {"dinp"},
    "bias_backward": {"dbias_out", "partials"},
    "bias_reduce": {"dbias_out"},
    "permute_heads_backward": {"dinp"},
    "softmax_backward": {"dpre"},
    "permute_qkv_backward": {"dinp"},
    "wpe_backward": {"dwpe_out"},
    "wte_backward": {"dwte_out"},
    "gemm": {"d"},
}


def flow(row, model="gpt3-xl", degree=1):
    """Names that a row reads and those that it writes."""
    bound = {tensor: binding["name"] for tensor, binding in bindings(row, model, degree).items()}
    written = {name for tensor, name in bound.items() if tensor in OUTPUTS[row.op]}
    return {name for tensor, name in bound.items() if tensor not in OUTPUTS[row.op]}, written


def fills(model="gpt3-xl", **options):
    """{name: fill} of all tensors of an iteration."""
    found = {}
    for row in kernel_rows(model, **options):
        for binding in bindings(row, model, options.get("tensor_parallel", 1)).values():
            assert found.setdefault(binding["name"], binding["fill"]) == binding["fill"], "one tensor, one fill"
    return found


def test_every_row_has_its_tensors_on_every_gpu():
    assert set(DATAFLOW) == {row.id for model in ("gpt3-xl", FLASH) for row in kernel_rows(model, **H200)}


@pytest.mark.parametrize("options", OPTIONS)
def test_no_row_changes_what_it_reads(options):
    for row in kernel_rows(**options):
        read, written = flow(row, degree=options.get("tensor_parallel", 1))
        assert not read & written, row.id
        assert len(read) + len(written) == len(bindings(row, "gpt3-xl")), "each tensor of a row has a name of its own"


@pytest.mark.parametrize("options", [{}, H200, {"model": FLASH}])
def test_an_iteration_needs_its_parameters_its_tokens_and_what_gradients_are_added_to(options):
    given, known = set(), set()
    for row in kernel_rows(**options):
        read, written = flow(row)
        given |= read - known
        known |= read | written
    assert given == PARAMETERS | ACCUMULATORS | {"ids", "targets"}


@pytest.mark.parametrize("options", [{}, H200, {"model": FLASH}])
def test_an_iteration_leaves_the_losses_and_a_gradient_for_every_parameter(options):
    flows = [flow(row) for row in kernel_rows(**options)]
    left = set.union(*(written for _, written in flows)) - set.union(*(read for read, _ in flows))
    assert left == {f"d{name}" for name in PARAMETERS} | {"losses"}


def test_a_tensor_is_computed_once_but_for_the_recomputed_gelu():
    seen = []
    for row in kernel_rows(**H200):
        seen += flow(row)[1]
    assert sorted(name for name in set(seen) if seen.count(name) > 1) == ["fg"]


@pytest.mark.parametrize("options", [{"tensor_parallel": 2}, {"tensor_parallel": 16, "row_parallel_bias": "gathered"}])
def test_ranks_miss_exactly_what_collectives_bring(options):
    given, known = set(), set()
    for row in kernel_rows(**options):
        read, written = flow(row, degree=options["tensor_parallel"])
        given |= read - known
        known |= read | written
    missing = given - PARAMETERS - ACCUMULATORS - {"ids", "targets"}
    all_gather = {name for name in missing if name.endswith("_gathered")}
    assert all_gather == {"ln1_gathered", "ln2_gathered", "dres3_gathered", "dres2_gathered"}
    assert {name.removesuffix("_gathered") for name in all_gather} <= known - given
    reduce_scatter = missing - all_gather
    assert reduce_scatter == {"ao", "mo", "dln1", "dln2"}
    assert {f"{name}_partial" for name in reduce_scatter} <= known - given


def test_one_rank_alone_needs_no_collective():
    assert not [name for name in fills() if name.endswith(("_gathered", "_partial"))]


def test_a_gathered_bias_gradient_is_summed_over_gathered_tokens():
    rows = {
        mode: {row.id: row for row in kernel_rows(tensor_parallel=4, row_parallel_bias=mode)}
        for mode in ("sequence", "gathered")
    }
    for id, dout in (("backward_fcproj_bias", "dres3"), ("backward_attproj_bias", "dres2")):
        assert bindings(rows["sequence"][id], "gpt3-xl", 4)["dout"]["name"] == dout
        assert bindings(rows["gathered"][id], "gpt3-xl", 4)["dout"]["name"] == f"{dout}_gathered"
    assert bindings(rows["gathered"]["backward_fc_bias"], "gpt3-xl", 4)["dout"]["name"] == "dfch"


def test_a_split_bias_gradient_goes_through_partial_sums():
    table1, h200 = ({row.id: row for row in kernel_rows(**options)} for options in ({}, H200))
    whole, split = (set(bindings(rows["backward_fc_bias"], "gpt3-xl")) for rows in (table1, h200))
    assert whole == {"dout", "dbias_in", "dbias_out"}
    assert split == {"dout", "partials"}


@pytest.mark.parametrize("options", OPTIONS)
def test_tensors_hold_values_as_in_training(options):
    found = fills(**options)
    for name, fill in found.items():
        if fill["kind"] != "normal":
            continue
        if name.startswith("d"):
            assert (fill["mean"], fill["sd"]) == (0, 1e-3)
        elif name.endswith(("gamma", "rstd")):
            assert (fill["mean"], fill["sd"]) == (1, 0.02)
        elif name in PARAMETERS or name.endswith("mean"):
            assert (fill["mean"], fill["sd"]) == (0, 0.02)
        elif name == "lse":  # of 1024 unit normal scores
            assert (fill["mean"], fill["sd"]) == pytest.approx((7.43, 0.1), abs=0.01)
        elif name != "pre":
            assert (fill["mean"], fill["sd"]) == (0, 1)
    assert {name for name, fill in found.items() if fill["kind"] == "ids"} == {"ids", "targets"}
    squares = options.get("model") != FLASH
    assert {name for name, fill in found.items() if fill["kind"] == "causal"} == ({"att"} if squares else set())
    assert {name for name, fill in found.items() if fill["kind"] == "lower"} == ({"dpre"} if squares else set())
    kinds = {fill["kind"] for fill in found.values()}
    assert kinds <= {"normal", "lower", "ids", "causal"}, "nothing is filled with zeros"


def test_the_padding_of_the_vocabulary_is_zero_and_never_looked_up():
    small = replace(MODELS["gpt3-xl"], name="small", vocab=1003, padded_vocab=1024)
    padded = {
        name: (fill["rows"], fill["columns"])
        for name, fill in fills(small).items()
        if fill["kind"] == "normal" and (fill["rows"] or fill["columns"])
    }
    table, columns = (1003, 0), (0, 1003)
    assert padded == {
        **{"wte": table, "dwte_in": table, "dwte_of_logits": table, "dwte": table},
        **{"logits": columns, "dlogits": columns},
    }
    assert fills(small)["ids"] == fills(small)["targets"] == {"kind": "ids", "vocabulary": 1003}


@pytest.mark.parametrize("name", MODELS)
def test_scaled_scores_are_unit_normal(name):
    scale = next(row.settings["scale"] for row in kernel_rows(name, batch=1) if row.op == "softmax_forward")
    assert fills(name, batch=1)["pre"]["sd"] * scale == pytest.approx(1)


def test_an_unknown_model_is_refused():
    with pytest.raises(InputError, match="model 'gpt4' is unknown"):
        bindings(kernel_rows()[0], "gpt4")
