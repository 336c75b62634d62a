"""One module a table: what it says of itself (`OUTPUT`, see kernel_dvfs.outputs) and `make(results, **options)`.

`make` returns a pandas.DataFrame. Its options are those of `OUTPUT.options`; their annotations say what
`kernel-dvfs study table --options` accepts.
"""
