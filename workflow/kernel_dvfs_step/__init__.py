"""A user's own training step: captured as a CUDA graph, read node by node, each kernel tried alone: step.json.

`framework` captures what the user's file makes, with torch, which only that file imports; `living` is the captured
step in its process: nodes, memory, graphs built of nodes; `grouping`, `trace`, `names` and `assembly` turn nodes and a
trace into targets, and need no GPU; `trial` finds out which targets can be repeated alone; `capturing` does all of it
in a process that may hang and be killed. What comes out is `workload.step.Step`; `loads` measures
it.
"""
