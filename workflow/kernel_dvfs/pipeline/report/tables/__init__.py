"""One module a table, each with `make(study: PipelineStudy) -> pandas.DataFrame` and its CAPTION."""
