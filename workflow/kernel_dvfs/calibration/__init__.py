"""Checks the form of the simulated GPU on measured tables: fits it, scores it; ships no fitted kernel."""
