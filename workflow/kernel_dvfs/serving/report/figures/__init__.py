"""One module a figure of the serving study, each with its CAPTION."""
