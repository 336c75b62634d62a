"""One module a table, each with `make(results, ...) -> pandas.DataFrame` and its CAPTION."""
