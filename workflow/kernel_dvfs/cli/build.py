"""`kernel-dvfs build`: compile the native layer. Options only; kernel_dvfs.native.build does the work."""

import sys

MODES = ("auto", "on", "off")


def add_arguments(parser) -> None:
    """Describe the options to an argparse parser."""
    parser.description = "Compile the native layer (C reference of the kernels) into results/native/."
    parser.epilog = "example: kernel-dvfs build --cpu on"
    parser.add_argument("--native-dir", default="native", metavar="DIR", help="the CMake project (default: native)")
    parser.add_argument(
        "--out",
        default="results/native",
        metavar="DIR",
        help="where the backends go (default: results/native)",
    )
    parser.add_argument(
        "--cpu",
        choices=MODES,
        default="auto",
        help="C reference: without a compiler, auto goes on and on fails; off skips (default: auto)",
    )
    parser.add_argument(
        "--cuda",
        choices=MODES,
        default="auto",
        help="CUDA kernels: not part of this version yet (default: auto)",
    )


def run(args) -> int:
    """Build what `args` asks for. Raises InputError: see kernel_dvfs.native.build.build."""
    from kernel_dvfs.errors import InputError
    from kernel_dvfs.native.build import build

    if args.cuda == "on":
        raise InputError("CUDA kernels are not part of this version yet: use --cuda auto or off")
    if args.cuda == "auto":
        print("CUDA kernels are not part of this version yet", file=sys.stderr)
    build(args.native_dir, args.out, mode=args.cpu)
    return 0
