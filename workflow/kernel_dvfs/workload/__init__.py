"""What one training iteration asks of a GPU: its kernels, their work, and the passes they form.

Start at `rows.kernel_rows` and `passes.passes`; `models.MODELS` is the table of model shapes. `dataflow.bindings`
says which tensors a row works on. The package knows models, batch and tensor-parallel degree, but no clock, GPU model
or measurement; it needs the standard library only, since measuring processes import it.
"""
