"""The sizes one rank works with, by the letters of the formulas; knows no kernel.

Tensor parallelism in the manner of Megatron-LM with sequence parallelism: attention heads and the hidden
layer of the MLP are split over the ranks; embedding, layernorms, residuals and loss split the tokens instead.
"""

from collections import namedtuple

from kernel_dvfs.errors import InputError
from kernel_dvfs.workload import models
from kernel_dvfs.workload.checks import one_of, whole_number
from kernel_dvfs.workload.token_ids import expected_distinct_tokens

ROW_PARALLEL_BIAS = ("sequence", "gathered")


class Shape(namedtuple("Shape", "B T C HS V Vp M Ms Mb T_tp C_tp C3_tp C4_tp heads tri U")):
    """Sizes on one rank. All are counts; all but U are ints.

    B batch; T sequence; C channels; HS head size; V, Vp vocabulary and padded vocabulary;
    M = B·T tokens; Ms = M/tp tokens of a sequence-parallel rank; Mb tokens in the bias gradient of a
    row-parallel layer (Ms or M); T_tp = T/tp; C_tp, C3_tp, C4_tp = C/tp, 3C/tp, 4C/tp;
    heads = B·NH/tp attention heads over the whole batch; tri = T(T+1)/2 elements on and below a
    diagonal; U expected number of different tokens among Ms (float).
    """

    __slots__ = ()


def rank_shape(model, batch, tensor_parallel, row_parallel_bias="sequence", zipf_exponent=None):
    """Shape of one rank for a model (name or Model), batch and tensor-parallel degree.

    `row_parallel_bias`: the bias gradients of the row-parallel layers sum over this rank's tokens
    ("sequence") or over all of them ("gathered"). `zipf_exponent`: see expected_distinct_tokens.
    Raises InputError on an unknown model or mode, batch < 1, or a degree that does not split the model.
    """
    model = models.model(model)
    whole_number("batch", batch)
    tp = whole_number("tensor_parallel", tensor_parallel)
    one_of("row_parallel_bias", row_parallel_bias, ROW_PARALLEL_BIAS)
    degrees = models.tensor_parallel_degrees(model)
    if tp not in degrees:
        raise InputError(
            f"tensor_parallel {tp} does not divide the {model.heads} heads and {model.sequence} positions "
            f"of {model.name}: allowed are {', '.join(map(str, degrees))}"
        )
    B, T, C = batch, model.sequence, model.channels
    M, Ms = B * T, B * T // tp
    return Shape(
        B=B,
        T=T,
        C=C,
        HS=C // model.heads,
        V=model.vocab,
        Vp=model.padded_vocab,
        M=M,
        Ms=Ms,
        Mb=Ms if row_parallel_bias == "sequence" else M,
        T_tp=T // tp,
        C_tp=C // tp,
        C3_tp=3 * C // tp,
        C4_tp=4 * C // tp,
        heads=B * model.heads // tp,
        tri=T * (T + 1) // 2,
        U=expected_distinct_tokens(model.vocab, Ms, zipf_exponent),
    )
