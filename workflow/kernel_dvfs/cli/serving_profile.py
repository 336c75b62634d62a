"""`kernel-dvfs serving-profile`: the simulated serving profile of a model, as CSV."""

from kernel_dvfs.cli.serving_options import whole_numbers


def add_arguments(parser) -> None:
    parser.epilog = "example: kernel-dvfs serving-profile --tp 2,4,8 --core-mhz 800,1200,1600,1980 -o profile.csv"
    parser.add_argument("-o", "--output", required=True, metavar="PROFILE.csv")
    parser.add_argument("--gpu", default="h100_sxm", help="a simulated GPU (default: h100_sxm)")
    parser.add_argument("--model", default="llama2-70b", help="a served model (default: llama2-70b)")
    parser.add_argument("--tp", default="2,4,8", metavar="N,...", help="tensor-parallel degrees (default: 2,4,8)")
    parser.add_argument("--core-mhz", required=True, metavar="MHZ,...", help="core clocks")
    parser.add_argument("--classes", metavar="SS,...", help="request classes (default: all nine)")
    parser.add_argument("--kernel-level", action="store_true", help="also a clock for each kernel")
    parser.add_argument("--requests", type=int, default=800, metavar="N", help="simulated per load (default: 800)")
    parser.add_argument("--max-batch", type=int, default=256, metavar="N", help="sequences at once (default: 256)")
    parser.add_argument("--chunk-tokens", type=int, default=512, metavar="N", help="tokens of a step (default: 512)")
    parser.add_argument("--seed", type=int, default=1)


def run(options) -> None:
    from kernel_dvfs.errors import InputError
    from kernel_dvfs.serving.classes import CLASSES
    from kernel_dvfs.serving.make_profile import profile_rows
    from kernel_dvfs.serving.profile import write_profile

    classes = options.classes.split(",") if options.classes else CLASSES
    unknown = [name for name in classes if name not in CLASSES]
    if unknown:
        raise InputError(f"--classes {options.classes}: no class {unknown[0]!r}; allowed: {', '.join(CLASSES)}")
    for name in ("requests", "max_batch", "chunk_tokens"):
        least = 20 if name == "requests" else 1
        if getattr(options, name) < least:
            raise InputError(f"--{name.replace('_', '-')} {getattr(options, name)}: expected at least {least}")
    if options.chunk_tokens <= options.max_batch:
        raise InputError(
            f"--chunk-tokens {options.chunk_tokens}: a step must hold more tokens than the batch of {options.max_batch}"
        )
    rows = profile_rows(
        options.gpu,
        options.model,
        whole_numbers("--tp", options.tp),
        whole_numbers("--core-mhz", options.core_mhz),
        classes,
        kernel_level=options.kernel_level,
        requests=options.requests,
        seed=options.seed,
        max_batch=options.max_batch,
        chunk_tokens=options.chunk_tokens,
    )
    write_profile(options.output, rows)
