"""`kernel-dvfs serving-profile`: the simulated serving profile of a model, as CSV."""

from kernel_dvfs.cli.serving_options import add_instance, instance_options, whole_numbers


def add_arguments(parser) -> None:
    parser.epilog = "example: kernel-dvfs serving-profile --tp 2,4,8 --core-mhz 800,1200,1600,1980 -o profile.csv"
    parser.add_argument("-o", "--output", required=True, metavar="PROFILE.csv")
    add_instance(parser)
    parser.add_argument("--tp", default="2,4,8", metavar="N,...", help="tensor-parallel degrees (default: 2,4,8)")
    parser.add_argument("--core-mhz", required=True, metavar="MHZ,...", help="core clocks")
    parser.add_argument("--classes", metavar="SS,...", help="request classes (default: all nine)")
    parser.add_argument("--kernel-level", action="store_true", help="also a clock for each kernel")


def run(options) -> None:
    from kernel_dvfs.errors import InputError
    from kernel_dvfs.serving.classes import CLASSES
    from kernel_dvfs.serving.make_profile import profile_rows
    from kernel_dvfs.serving.profile import write_profile

    classes = options.classes.split(",") if options.classes else CLASSES
    unknown = [name for name in classes if name not in CLASSES]
    if unknown:
        raise InputError(f"--classes {options.classes}: no class {unknown[0]!r}; allowed: {', '.join(CLASSES)}")
    rows = profile_rows(
        options.gpu,
        options.model,
        whole_numbers("--tp", options.tp),
        whole_numbers("--core-mhz", options.core_mhz),
        classes,
        kernel_level=options.kernel_level,
        **instance_options(options),
    )
    write_profile(options.output, rows)
