"""One module a figure, each with `draw(results) -> plotnine.ggplot` and its CAPTION."""

# importable without plotnine: the command line lists these
NAMES = (
    "fig2_desirability",
    "fig3_forward_pass",
    "fig4_backward_pass",
    "fig5_kernels",
    "fig6_relaxed_waste",
    "fig7_data_parallelism",
    "fig8_tensor_parallelism",
)
