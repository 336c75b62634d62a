"""Options that the pipeline commands share: the shape of a pipeline, on a command line."""

from kernel_dvfs.errors import InputError


def add_arguments(parser) -> None:
    parser.add_argument("stages_csv", metavar="STAGES.csv", help="a profile of pipeline stages")
    parser.add_argument("--microbatches", type=int, required=True, metavar="M")
    parser.add_argument(
        "--blocking-w", type=float, required=True, metavar="W", help="power of a waiting stage, all its GPUs"
    )
    parser.add_argument("--schedule", default="1f1b", help="1f1b, gpipe or interleaved (default: 1f1b)")
    parser.add_argument("--stages", type=int, metavar="S", help="devices (default: as many as the profile has)")
    parser.add_argument("--chunks", type=int, default=1, metavar="V", help="model chunks per stage (default: 1)")
    parser.add_argument("--early-recompute", action="store_true", help="activations again before the gradient arrives")
    parser.add_argument("--transfer-s", type=float, default=0.0, metavar="S", help="between stages (default: 0)")
    parser.add_argument("--constant", nargs="*", default=[], metavar="NAME", help="work that runs first, with + last")
    parser.add_argument(
        "--scale-time", type=float, default=1.0, metavar="X", help="times in the CSV times X (default: 1)"
    )
    parser.add_argument("--scale-energy", type=float, default=1.0, metavar="X", help="energies times X (default: 1)")
    parser.add_argument(
        "--kernels", type=int, default=50, metavar="N", help="equal kernels per operation (default: 50)"
    )


def planner(options):
    """The Planner that the options describe. Raises InputError."""
    from kernel_dvfs.pipeline.graph import pipeline_graph
    from kernel_dvfs.pipeline.planner import Planner
    from kernel_dvfs.pipeline.stage_profile import read_stage_profile

    if not 0 <= options.transfer_s < float("inf"):
        raise InputError(f"--transfer-s {options.transfer_s}: expected seconds >= 0")
    if options.kernels < 1:
        raise InputError(f"--kernels {options.kernels}: expected a whole number >= 1")
    profile = read_stage_profile(options.stages_csv, options.scale_time, options.scale_energy)
    stages = profile.stages // max(options.chunks, 1) if options.stages is None else options.stages
    graph = pipeline_graph(
        options.schedule,
        stages,
        options.microbatches,
        options.chunks,
        options.early_recompute,
        options.transfer_s,
        tuple(options.constant),
    )
    return Planner(profile, graph, options.blocking_w, options.kernels)
