"""A product's algorithm is chosen once: what an earlier process chose is taken, a new choice is kept for the next."""

from types import SimpleNamespace

import pytest

from kernel_dvfs.measurement.real.gemm_algorithms import GemmAlgorithms
from kernel_dvfs.native.plans import row_plan
from kernel_dvfs.workload.rows import kernel_rows

ROWS = {row.id: row for row in kernel_rows("gpt3-xl-flash", batch=1)}
MARKS = ("algorithm_id", "tile_id", "stages_id", "split_k", "reduction_scheme", "swizzle", "custom_option")
INFO = dict.fromkeys((*MARKS, "inner_shape_id", "cluster_shape_id"), 7)


@pytest.fixture
def cuda():
    """An extension whose plans say what they were asked for; `asked` lists their options."""
    asked = []

    def plan(arena, op, settings, tensors, **options):
        asked.append(options)
        chosen = {"pinned": b"chosen", "algorithm_chosen_by": "timed"}
        return SimpleNamespace(info=lambda: INFO | chosen, op=op, settings=settings, tensors=tensors)

    return SimpleNamespace(Plan=plan, asked=asked)


def asked_of(cuda, row_id, path, **options):
    """The options of a new process's plan."""
    row_plan(cuda, None, ROWS[row_id], "gpt3-xl-flash", choices=GemmAlgorithms(str(path), 130100), **options)
    return cuda.asked[-1]


def test_a_choice_is_kept_by_shape_for_later_processes(cuda, tmp_path):
    path = tmp_path / "algorithms.json"
    assert asked_of(cuda, "forward_qkv_gemm", path, algorithm="timed") == {"algorithm": "timed"}
    assert asked_of(cuda, "forward_qkv_gemm", path, algorithm="timed") == {"algorithm": b"chosen"}
    assert asked_of(cuda, "forward_fc_gemm", path, algorithm="timed") == {"algorithm": "timed"}, "another shape"


def test_only_timed_products_are_kept(cuda, tmp_path):
    path = tmp_path / "algorithms.json"
    assert asked_of(cuda, "forward_qkv_gemm", path) == {"algorithm": "heuristic"}
    assert asked_of(cuda, "forward_attention", path, algorithm="timed", seed=3) == {"seed": 3}
    assert not path.exists()
    row_plan(cuda, None, ROWS["forward_qkv_gemm"], "gpt3-xl-flash", algorithm="timed")
    assert cuda.asked[-1] == {"algorithm": "timed"}


def test_a_fused_row_is_bound_to_the_projections_tensors(cuda):
    plan = row_plan(cuda, None, ROWS["backward_attention"], "gpt3-xl-flash")
    names = {tensor: binding["name"] for tensor, binding in plan.tensors.items()}
    assert (plan.op, names) == (
        "attention_backward",
        {"qkv": "qkv", "out": "atty", "lse": "lse", "dout": "datty", "dqkv": "dqkv"},
    )
