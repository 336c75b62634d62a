"""kernel-dvfs: clocks that waste no energy, for every kernel of an LLM training iteration."""

__version__ = "0.1.0"
