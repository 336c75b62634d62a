"""One module a table: its OUTPUT and `make(study: PipelineStudy) -> pandas.DataFrame`."""
