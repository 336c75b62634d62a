"""The native layer and the formulas of the workload count the same work, and a formula that is wrong is named."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
from test_workload_tensors import workloads

from kernel_dvfs.native import agreement
from kernel_dvfs.workload import formulas
from kernel_dvfs.workload.models import MODELS
from kernel_dvfs.workload.shapes import expected_distinct_tokens
from kernel_dvfs.workload.workload import of_model
from kernel_dvfs_clocks.errors import InputError

BOARD = {"sm_count": 80, "threads_per_sm": 1536}
OPTIONS = {
    "model": "gpt3-xl",
    "batch": 40,
    "tensor_parallel": 1,
    "bias_split": "table1",
    "row_parallel_bias": "sequence",
    "pass_boundary": "llmc",
    "token_ids_zipf": None,
}


def works(**options):
    return {name: about["work"] for name, about in of_model(OPTIONS | options, *BOARD.values()).kernels.items()}


def agreed(cpu, **options):
    return agreement.agreement(cpu, OPTIONS | options, BOARD, works(**options))


# --- what the layer counts, by hand -----------------------------------------------------------------------------------


def test_a_product_is_two_operations_a_pair_and_each_operand_once(cpu):
    settings = {"count": 3, "M": 5, "N": 7, "K": 11, "layout": "NT", "has_bias": 1, "accumulate": 1}
    found = cpu.work("gemm", settings)
    assert (found["flop"], found["tensor_flop"]) == (2310, 2310)
    # 3 x (5 x 11 + 11 x 7) factors, 7 biases and 105 sums so far, of 2 bytes
    assert (found["read_byte"], found["write_byte"], found["resident_byte"]) == (1016, 210, 1226)


def test_a_causal_softmax_is_a_triangle_and_fills_its_sectors(cpu):
    found = cpu.work("softmax_forward", {"N": 2, "T": 21, "scale": 0.5})
    # 2 x 231 scores; rows 1 to 15 are filled up to 16 columns, rows 17 to 20 up to 21: 120 and 10 zeros a square
    assert (found["flop"], found["sfu_op"], found["read_byte"], found["write_byte"]) == (4620, 924, 924, 924)
    assert found["spare_write_byte"] == 2 * 2 * (120 + 10) and found["resident_byte"] == 2 * 2 * 2 * 441


def test_padding_of_a_vocabulary_is_neither_read_nor_written(cpu):
    found = cpu.work("classifier", {"M": 3, "V": 13, "Vp": 16, "dloss": 0.5})
    # logits 2 bytes, target and loss 4 bytes a token each
    assert (found["read_byte"], found["write_byte"]) == (3 * (26 + 8), 3 * (26 + 4))


def test_of_a_table_only_the_rows_of_tokens_that_occur_move(cpu):
    ids = np.array([4, 1, 4, 4, 6, 1], np.int32)
    found = cpu.work("embedding_forward", {"M": 6, "T": 3, "C": 10, "V": 9}, {"ids": ids})
    # 6 ids, 3 rows of tokens and 3 of positions
    assert found["read_byte"] == 6 * 4 + 3 * 20 + 3 * 20 and found["write_byte"] == 120
    found = cpu.work("wte_backward", {"M": 6, "V": 9, "C": 300, "seed": 1}, {"ids": ids})
    # two groups of channels, each with 3 buckets of 16 bytes and 6 tokens
    assert found["read_byte"] == 6 * 600 + 3 * 600 + 2 * (3 * 16 + 6 * 4) and found["write_byte"] == 1800


def test_who_looks_tokens_up_must_say_which(cpu):
    with pytest.raises(cpu.ShapeError, match="tensor 'ids' is missing"):
        cpu.work("embedding_forward", {"M": 6, "T": 3, "C": 10, "V": 9})


# --- and what a study counts ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", [*MODELS, "gpt3-xl-flash"])
def test_every_row_of_every_model_is_counted_the_same(cpu, model):
    for rows, _ in workloads(model):
        tokens = expected_distinct_tokens(MODELS[model.removesuffix("-flash")].vocab, int(rows[0].settings["M"]))
        assert [each["row"] for each in agreement.compared(cpu, rows, tokens)] == [row.id for row in rows]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"model": "gpt3-xl-flash"},
        {"tensor_parallel": 8, "row_parallel_bias": "gathered", "token_ids_zipf": 1.0},
        # some of its bias gradients are split on this board, and all are where a model is small
        {"bias_split": "llmc", "model": "gpt3-125m", "batch": 5},
    ],
)
def test_each_kernel_of_a_study_is_compared_and_run_once(cpu, options):
    rows, ran = agreed(cpu, **options)
    assert [row["row"] for row in rows] == list(works(**options)) and {row["row"] for row in rows} <= ran.keys()
    lengths = [length for shapes in ran.values() for shape in shapes.values() for length in shape]
    assert lengths and max(lengths) < 1500, "small shapes"


def wrong(monkeypatch, name, **factors):
    """Plant a formula whose results are by some factors too large."""
    right = getattr(formulas, name)

    def planted(*sizes):
        work = right(*sizes)
        more = {field: getattr(work, field) * factor for field, factor in factors.items()}
        return formulas.Work(**{field: getattr(work, field) for field in formulas.Work.__slots__} | more)

    monkeypatch.setattr(formulas, name, planted)


@pytest.mark.parametrize(
    ("name", "factors", "said"),
    [
        ("gelu_forward", {"flop": 2}, "row forward_gelu (gelu_forward): flop is 6,039,797,760 by the study's formula"),
        ("softmax_backward", {"read_byte": 0.5}, "row backward_attention_softmax (softmax_backward): read_byte is"),
        ("wte_backward", {"write_byte": 1.01}, "row embedding_backward_wte (wte_backward): write_byte is"),
        ("layernorm_forward", {"resident_byte": 2}, "row embedding_layernorm (layernorm_forward): resident_byte is"),
        ("classifier", {"sfu_op": 2}, "row loss_softmax (classifier): sfu_op is"),
    ],
)
def test_a_wrong_formula_ends_it_with_a_line_that_names_the_row(cpu, monkeypatch, name, factors, said):
    wrong(monkeypatch, name, **factors)
    with pytest.raises(InputError) as refused:
        agreed(cpu)
    (line,) = refused.value.args[0].splitlines()
    assert said in line and "by the layer (native/include/kdvfs/work.hpp) at " in line and "mend" in line


def test_a_setup_with_other_work_than_the_formulas_is_named(cpu):
    given = works()
    family, tensor_flop, fp32_flop, *rest = given["forward_gelu"]
    with pytest.raises(InputError, match="row forward_gelu: the setup has 0, 7, "):
        agreement.agreement(cpu, OPTIONS, BOARD, given | {"forward_gelu": [family, tensor_flop, 7, *rest]})
    assert fp32_flop != 7


def test_a_kernel_that_writes_less_than_it_counts_is_named(cpu):
    def lazy(op, settings, tensors):
        results = cpu.run(op, settings, tensors)
        if op == "gelu_backward":
            results["dinp"][-1, -1] = tensors["dinp"][-1, -1]
        return results

    with pytest.raises(InputError, match=r"row backward_gelu \(gelu_backward\) wrote .* the layer counts"):
        agreed(SimpleNamespace(work=cpu.work, tensors=cpu.tensors, run=lazy))


def test_without_the_layer_the_file_says_why(tmp_path):
    (tmp_path / "native/cpu").mkdir(parents=True)
    record = {
        "schema": "kernel-dvfs/build/1",
        "status": "unavailable",
        "reason": "no C compiler: get one",
    }
    (tmp_path / "native/cpu/build.json").write_text(json.dumps(record))
    found = agreement.of_study(str(tmp_path), OPTIONS, BOARD, works())
    assert (found["status"], found["rows"], found["ran"]) == ("unavailable", [], {})
    assert agreement.sentence(found) == (
        "not built here (no C compiler: get one), so shapes, FLOP and bytes were counted once only"
    )


def test_the_file_of_an_agreement_names_the_compiler_and_is_read_back(native_results, tmp_path):
    found = agreement.of_study(str(native_results("cpu")), OPTIONS, BOARD, works())
    path = tmp_path / "native_rows.json"
    path.write_text(json.dumps(found))
    assert agreement.read(str(path)) == found and found["compiler"] in agreement.sentence(found)
    assert "46 kernels" in agreement.sentence(found)
    path.write_text(path.read_text()[:300])
    with pytest.raises(InputError, match="truncated"):
        agreement.read(str(path))
