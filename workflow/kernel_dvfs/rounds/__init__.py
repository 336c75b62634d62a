"""Measuring in rounds: what is measured next follows from what is known so far, until nothing is left to ask."""
