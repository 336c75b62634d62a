"""Which rows of which small models show that the kernels are right: every row, tails, tensor parallelism, both
splits of the bias gradients, heads and widths of all models. Small enough for the C reference."""

from kernel_dvfs.workload.models import Model
from kernel_dvfs.workload.rows import kernel_rows


def _small(name, channels, heads, sequence=64, vocab=1003, padded_vocab=1024):
    return Model(name, 1, channels, heads, vocab, padded_vocab, sequence)


TINY = _small("tiny", channels=256, heads=2)
XL_WIDE = _small("xl-wide", channels=2048, heads=16, sequence=128)
# (model, batch, degrees, operations to leave out)
_CASES = (
    (TINY, 2, (1, 2), ()),
    # a vocabulary that ends in the middle of a pack, a sequence that is no power of two, 3 sequences
    (_small("odd", channels=264, heads=3, sequence=72, vocab=509, padded_vocab=512), 3, (1,), ()),
    (XL_WIDE, 2, (1, 2, 4, 8, 16), ()),
    # head sizes 64, 96, 80 and the widest rows; their products differ from the above in size only
    (_small("125m-wide", channels=768, heads=12), 1, (1,), ("gemm",)),
    (_small("760m-wide", channels=1536, heads=16), 1, (1,), ("gemm",)),
    (_small("2.7b-wide", channels=2560, heads=32), 1, (1,), ("gemm",)),
    (_small("13b-wide", channels=5120, heads=40), 1, (1,), ("gemm",)),
    (_small("175b-wide", channels=12288, heads=96), 1, (1,), ("gemm",)),
    # the whole vocabulary and a full row of attention
    (_small("long", channels=256, heads=2, sequence=1024, vocab=50257, padded_vocab=50304), 1, (1,), ("gemm",)),
)


def cases(sm_count, threads_per_sm):
    """(model, batch, degree, split, row) of every check, split "table1" and "llmc" for this GPU's size."""
    for model, batch, degrees, left_out in _CASES:
        for degree in degrees:
            # llm.c's split asks for more partial sums than a rank of a small model has tokens
            for split in ("table1", "llmc") if degree == 1 else ("table1",):
                rows = kernel_rows(
                    model, batch, degree, bias_split=split, sm_count=sm_count, threads_per_sm=threads_per_sm
                )
                for row in rows:
                    of_split = row.family in ("bias", "bias_reduce")
                    if row.op not in left_out and (split == "table1" or of_split):
                        yield model, batch, degree, split, row
