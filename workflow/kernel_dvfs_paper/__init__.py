"""A verdict on every claim of the paper (arXiv 2601.08539), computed from a results folder."""
