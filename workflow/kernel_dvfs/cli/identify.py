"""`kernel-dvfs identify`: look at a GPU and keep what a study must know of it, here or on a node of a cluster."""


def add_arguments(parser) -> None:
    parser.epilog = "example: kernel-dvfs identify --slurm='--partition=gpu --gpus=1 --exclusive'"
    parser.add_argument("--gpu", default="", metavar="UUID|INDEX", help="which (default: the only one, or Slurm's)")
    parser.add_argument("--results", default="results", metavar="FOLDER", help="where it is kept (results)")
    parser.add_argument("--slurm", metavar="OPTIONS", help="look at one that a job with these options of sbatch gets")
    parser.add_argument("--tell", metavar="FILE", help="also write what is printed, or the error, here")


def run(options) -> None:
    from kernel_dvfs.measurement.real import specimen

    if options.slurm is not None:
        print(specimen.elsewhere(options.slurm, options.results))
    else:
        print(specimen.here(options.gpu, options.results, options.tell))
