"""Over how many partial sums llm.c splits a bias gradient on a given GPU; knows nothing else of the GPU.

llm.c fills the GPU with blocks: few column blocks leave room to split the rows over g blocks, whose fp32
partial sums a second launch ("Bias reduce") adds up. So the list of launches depends on the GPU.
"""

BIAS_SPLITS = ("table1", "llmc")


def llmc_split(columns, sm_count, threads_per_sm):
    """Partial sums g per column for a gradient of `columns` biases. Source: llm.c, llmc/matmul.cuh.

    g = max(1, floor(threads_per_sm·sm_count / (block·ceil(columns/64)))): a block covers 64 columns
    (8 threads of 8 bf16) and has 768 threads where an SM holds 1536, else 1024.
    """
    block = 768 if threads_per_sm == 1536 else 1024
    column_blocks = -(-columns // 64)
    return max(1, threads_per_sm * sm_count // (block * column_blocks))
