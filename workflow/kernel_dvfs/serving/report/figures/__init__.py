"""One module a figure of the serving study: its OUTPUT, and `draw(study)`, which reads files only."""
