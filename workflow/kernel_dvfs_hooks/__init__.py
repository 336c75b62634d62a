"""Joules where people look: in the log of a trainer, in the metrics of a server, in a trace of kernels, in a pod.

An extension: it uses the road's rooms, and no room imports it. `trainer` (Hugging Face), `lightning`, `torchtitan` and
`megatron` import the library of that name, and nothing else here does; `energy` is what they share, and serves a
training loop of one's own.
"""
