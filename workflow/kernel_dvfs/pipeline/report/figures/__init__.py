"""One module a figure, each with `draw(study: PipelineStudy) -> plotnine.ggplot` and its CAPTION."""

# importable without plotnine: the command line lists these
NAMES = ("frontier", "timeline", "breakdown", "straggler", "switching")
