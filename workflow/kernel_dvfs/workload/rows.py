"""The kernels of one training iteration on one rank, with their work: the table filled in with sizes.

Of the GPU it takes the two numbers that llm.c's split of the bias gradients depends on, and nothing else.
"""

from collections.abc import Callable
from dataclasses import dataclass

from kernel_dvfs.workload import formulas, models, operations
from kernel_dvfs.workload.shapes import BIAS_SPLITS, Shape, llmc_split, one_of, rank_shape, whole_number
from kernel_dvfs.workload.table1 import PER_LAYER, UNSPLIT, Bias, Entry, Product, entries
from kernel_dvfs_clocks.errors import InputError


@dataclass(frozen=True, slots=True)
class Row:
    """One kernel of an iteration; work is per launch, on one rank.

    All numbers are ints, except that the traffic of the two kernels that look up tokens (rows 1 and 46) is an expected
    value, a float.
    """

    # 1..46 as in Table 1 of the paper; None for the launches that bias_split "llmc" adds, and for fused attention
    number: int | None
    id: str  # unique
    section: str  # as printed in Table 1
    name: str  # as printed in Table 1; names repeat
    op: str  # the operation of the native layer that the row launches
    settings: operations.Settings  # what that operation is told to compute
    kind: str  # gemm | attention (fused) | elementwise_or_reduction
    # gemm | attention_gemm | flash_attention | flash_attention_backward | softmax | layernorm | residual | gelu |
    # permute | bias | bias_reduce | embedding
    family: str
    multiplicity: int  # launches per iteration
    replicate_group: str | None  # shared by rows that are the same launch
    tp_rule: str  # hidden_or_heads | sequence | unsplit: what tensor parallelism divides
    gemm: formulas.Gemm | None  # of a matrix product
    bias_split: int | None  # partial sums per column, of Bias and Bias reduce
    flop: float  # operations
    read_byte: float  # B of compulsory DRAM traffic
    write_byte: float  # B of compulsory DRAM traffic
    resident_byte: float  # B of buffers of a drift-free launch
    tensor_flop: float  # of `flop`, done by tensor cores
    fp32_flop: float  # the rest, done by FP32 lanes
    sfu_op: float  # special-function operations (ex2, rcp, tanh class)


def kernel_rows(
    model: str | models.Model = "gpt3-xl",
    batch: int = 40,
    tensor_parallel: int = 1,
    bias_split: str = "table1",
    row_parallel_bias: str = "sequence",
    sm_count: int | None = None,
    threads_per_sm: int | None = None,
    zipf_exponent: float | None = None,
) -> list[Row]:
    """Return rows of one training iteration (one micro-step, one rank, no communication), in order of execution.

    model: name in MODELS, or a Model; batch: sequences; tensor_parallel: degree, dividing the heads.
    bias_split: "table1", the 46 rows of the paper on every GPU; "llmc", as llm.c launches them on a GPU of
    `sm_count` multiprocessors holding `threads_per_sm` threads each (both ignored by "table1"): a Bias
    reduce exists exactly where the split is above 1, so the number of rows depends on the GPU.
    row_parallel_bias: bias gradients of row-parallel layers over this rank's tokens ("sequence") or all
    ("gathered"). zipf_exponent: None for uniform token ids, else Zipf's exponent.

    Raises InputError, one line, on an unknown model or mode, batch < 1, a degree that
    does not split the model, "llmc" without its two numbers.
    """
    model = models.model(model)
    shape = rank_shape(model, batch, tensor_parallel, row_parallel_bias, zipf_exponent)
    split_of = _split_rule(bias_split, shape, sm_count, threads_per_sm)
    rows = []
    for section, listed in entries(model.attention).items():
        multiplicity = model.layers if section in PER_LAYER else 1
        for entry in listed:
            split = split_of(entry.bias) if entry.bias else None
            if entry.op == "bias_reduce" and split == 1:
                continue  # nothing to add up: the gradient was finished by the Bias kernel
            rows.append(_row(entry, section, multiplicity, shape, split))
    return rows


def _split_rule(
    bias_split: str, shape: Shape, sm_count: int | None, threads_per_sm: int | None
) -> Callable[[Bias], int]:
    one_of("bias_split", bias_split, BIAS_SPLITS)
    if bias_split == "table1":
        return lambda bias: bias.table1_split
    if sm_count is None or threads_per_sm is None:
        raise InputError(
            "bias_split llmc depends on the GPU: give sm_count and threads_per_sm, or use bias_split table1"
        )
    whole_number("sm_count", sm_count)
    whole_number("threads_per_sm", threads_per_sm)
    return lambda bias: llmc_split(getattr(shape, bias.columns), sm_count, threads_per_sm)


def _row(entry: Entry, section: str, multiplicity: int, shape: Shape, split: int | None) -> Row:
    gemm = _sized(entry.gemm, shape) if entry.gemm else None
    tp_rule = entry.tp_rule
    sizes: tuple
    if gemm:
        sizes = (gemm,)
    elif entry.bias:
        sizes = (getattr(shape, entry.bias.rows), getattr(shape, entry.bias.columns), split)
        if entry.bias.rows == "Mb" and shape.Mb == shape.M != shape.Ms:
            tp_rule = UNSPLIT  # gathered: every rank sums over all tokens
    else:
        sizes = (shape,)
    work = getattr(formulas, entry.op)(*sizes)
    return Row(
        number=entry.number,
        id=entry.id,
        section=section,
        name=entry.name,
        op=entry.op,
        settings=getattr(operations, entry.op)(*sizes),
        kind="gemm" if gemm else "attention" if work.tensor_flop else "elementwise_or_reduction",
        family=entry.family,
        multiplicity=multiplicity,
        replicate_group=entry.replicate_group,
        tp_rule=tp_rule,
        gemm=gemm,
        bias_split=split,
        flop=work.flop,
        read_byte=work.read_byte,
        write_byte=work.write_byte,
        resident_byte=work.resident_byte,
        tensor_flop=work.tensor_flop,
        fp32_flop=work.flop - work.tensor_flop,
        sfu_op=work.sfu_op,
    )


def _sized(product: Product, shape: Shape) -> formulas.Gemm:
    """Return the product with numbers for the names of its sizes."""
    return formulas.Gemm(
        count=getattr(shape, product.count) if product.count else 1,
        m=getattr(shape, product.m),
        n=getattr(shape, product.n),
        k=getattr(shape, product.k),
        layout=product.layout,
        bias_epilogue=product.bias_epilogue,
        beta=product.beta,
    )
