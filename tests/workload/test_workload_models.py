"""The table of model shapes describes the models it names."""

from dataclasses import astuple, replace

import pytest

from kernel_dvfs.workload.models import FUSED, MODELS, UNFUSED, model, tensor_parallel_degrees
from kernel_dvfs.workload.rows import kernel_rows
from kernel_dvfs_clocks.errors import InputError


def parameter_count(shape):
    """Parameters of a model: tied token embedding (padded), T positions, L layers, last layernorm."""
    C = shape.channels
    layer = 12 * C * C + 13 * C  # weights 3C·C, C·C, 4C·C, C·4C; biases 9C; two layernorms of 2C
    return shape.padded_vocab * C + shape.sequence * C + shape.layers * layer + 2 * C


@pytest.mark.parametrize(
    "name, parameters",
    [
        ("gpt3-125m", 125e6),
        ("gpt3-350m", 350e6),
        ("gpt3-760m", 760e6),
        ("gpt3-xl", 1.3e9),
        ("gpt3-2.7b", 2.7e9),
        ("gpt3-6.7b", 6.7e9),
        ("gpt3-13b", 13e9),
        ("gpt3-175b", 175e9),
    ],
)
def test_each_model_has_as_many_parameters_as_its_name_says(name, parameters):
    assert parameter_count(MODELS[name]) == pytest.approx(parameters, rel=0.02)


def test_the_table_holds_the_gpt3_family_and_no_more():
    assert list(MODELS) == [
        "gpt3-125m", "gpt3-350m", "gpt3-760m", "gpt3-xl", "gpt3-2.7b", "gpt3-6.7b", "gpt3-13b", "gpt3-175b",
    ]  # fmt: skip
    for name, shape in MODELS.items():
        assert shape.name == name
        assert shape.channels % shape.heads == 0
        assert (shape.vocab, shape.padded_vocab, shape.sequence) == (50257, 50304, 1024)


def test_gpt3_xl_is_the_model_of_the_study():
    assert astuple(model("gpt3-xl"))[1:] == (24, 2048, 16, 50257, 50304, 1024, UNFUSED)
    assert parameter_count(model("gpt3-xl")) == 1_313_722_368


@pytest.mark.parametrize("name", MODELS)
def test_every_model_is_there_with_fused_attention(name):
    fused = model(f"{name}-flash")
    assert fused == replace(MODELS[name], name=f"{name}-flash", attention=FUSED)
    assert kernel_rows(fused, batch=2) == kernel_rows(f"{name}-flash", batch=2)


def test_a_model_that_is_none_is_refused_with_those_that_are():
    for unknown in ("gpt3-xl-flash-flash", "-flash", "flash", 3):
        with pytest.raises(
            InputError, match=r"is unknown: known are gpt3-125m, .* fused attention too \(gpt3-xl-flash"
        ):
            model(unknown)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("batch", [1, 8])
def test_training_takes_six_flop_per_parameter_and_token_plus_attention(name, batch):
    # forward, input gradient and weight gradient, 2 FLOP each; attention: 2 + 4 products of full squares
    shape, rows = MODELS[name], kernel_rows(name, batch=batch)
    tokens = batch * shape.sequence
    attention = 6 * shape.layers * 2 * tokens * shape.sequence * shape.channels
    expected = 6 * parameter_count(shape) * tokens + attention
    assert sum(row.multiplicity * row.flop for row in rows) == pytest.approx(expected, rel=0.01)
    assert sum(row.multiplicity for row in rows) == 37 * shape.layers + 9


@pytest.mark.parametrize("name", MODELS)
def test_tensor_parallel_ranks_share_the_matrix_work_evenly(name):
    def tensor_flop(degree):
        rows = kernel_rows(name, batch=2, tensor_parallel=degree)
        return sum(row.multiplicity * row.tensor_flop for row in rows)

    for degree in tensor_parallel_degrees(MODELS[name]):
        assert tensor_flop(degree) * degree == tensor_flop(1)


def test_degrees_divide_the_heads_and_the_sequence():
    assert tensor_parallel_degrees(MODELS["gpt3-xl"]) == [1, 2, 4, 8, 16]
    assert tensor_parallel_degrees(MODELS["gpt3-125m"]) == [1, 2, 4]
    assert tensor_parallel_degrees(MODELS["gpt3-175b"]) == [1, 2, 4, 8, 16, 32]


def test_a_shape_whose_heads_do_not_divide_its_channels_is_refused():
    with pytest.raises(InputError, match="40 heads do not divide 5140 channels"):
        model(replace(MODELS["gpt3-13b"], channels=5140))


@pytest.mark.parametrize("name", ["gpt2", None, 13])
def test_an_unknown_model_is_answered_with_the_known_ones(name):
    with pytest.raises(InputError, match=r"is unknown: known are gpt3-125m, .*, gpt3-175b"):
        model(name)
