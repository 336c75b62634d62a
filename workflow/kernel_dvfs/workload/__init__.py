"""What one training iteration asks of a GPU: its kernels, their work, and the passes they form.

Knows models, batch and tensor-parallel degree; knows no clock, no GPU model, no measurement.
Measuring jobs import it, so it stays with light modules of the standard library.

Start at `rows.kernel_rows` and `passes.passes`; `models.MODELS` is the table of model shapes. `dataflow.bindings`
says which tensors a row works on.
"""
