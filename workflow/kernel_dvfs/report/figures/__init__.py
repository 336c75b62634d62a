"""One module a figure: what it says of itself (`OUTPUT`, see kernel_dvfs.outputs) and `draw(results)`.

`draw` returns a plotnine.ggplot.
"""
