"""Checks the form of the simulated GPU on measured tables: fits it, scores it. Ships no kernel's parameters."""
