"""`kernel-dvfs build`: compile the native layer. Options only; kernel_dvfs.native.build does the work."""

from argparse import ArgumentParser, Namespace

from kernel_dvfs.cli.arguments import one_of

MODES = ("auto", "on", "off")


def add_arguments(parser: ArgumentParser) -> None:
    """Describe the options to an argparse parser."""
    parser.description = (
        "Compile the native layer into results/native/. With --cpu, --cuda, --graph, --pipeline only what they name, "
        "else all. "
        "In mode auto the build goes on where a tool is missing, on fails, off removes what was built."
    )
    parser.epilog = "example: kernel-dvfs build --cuda on"
    parser.add_argument(
        "--native-dir", default="", metavar="DIR", help="the CMake project (default: native, or as shipped)"
    )
    parser.add_argument(
        "--out",
        default="results/native",
        metavar="DIR",
        help="where the backends go (default: results/native)",
    )
    parser.add_argument("--cpu", **one_of(MODES), help="the C reference; needs a C and a C++ compiler")
    parser.add_argument(
        "--cuda",
        **one_of(MODES),
        help="the CUDA kernels; need nvcc and cuBLASLt; $CUDAARCHS replaces the architectures (80, 86, 90 and PTX)",
    )
    parser.add_argument("--graph", **one_of(MODES), help="what reads captured CUDA graphs; needs a C++ compiler")
    parser.add_argument(
        "--pipeline", **one_of(MODES), help="the search for clocks of a training pipeline; needs a C++ compiler"
    )


def run(args: Namespace) -> int:
    """Build what `args` asks for. Raises InputError: see kernel_dvfs.native.build.build."""
    from kernel_dvfs.native.build import build
    from kernel_dvfs.shipped import native_or

    named = {"cpu": args.cpu, "cuda": args.cuda, "graph": args.graph, "pipeline": args.pipeline}
    if not any(named.values()):
        named = dict.fromkeys(named, "auto")
    for backend, mode in named.items():
        if mode:
            build(native_or(args.native_dir), args.out, backend, mode)
    return 0
