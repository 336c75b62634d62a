"""`kernel-dvfs serving-trace`: what a trace holds, with its checksum; or a synthetic one."""


def add_arguments(parser) -> None:
    parser.epilog = "example: kernel-dvfs serving-trace --hour --rate 3 --seed 1 -o synthetic_hour.csv"
    parser.add_argument("trace", nargs="?", metavar="TRACE.csv", help="to check, sum up and print the SHA-256 of")
    parser.add_argument("--hour", action="store_true", help="make a synthetic hour")
    parser.add_argument("--week", choices=("conversation", "coding"), help="make a synthetic week of published shape")
    parser.add_argument("--rate", type=float, default=3.0, metavar="R", help="of the hour, requests/s (default: 3)")
    parser.add_argument("--scale", type=float, default=0.05, metavar="X", help="of the week's rate (default: 0.05)")
    parser.add_argument("--days", type=float, default=7.0, metavar="D", help="of the week (default: 7)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("-o", "--output", metavar="TRACE.csv", help="where a synthetic trace goes")


def run(options) -> None:
    from kernel_dvfs.errors import InputError
    from kernel_dvfs.serving.synthesise import hour, week
    from kernel_dvfs.serving.trace import read_trace, sha256, summary, write_trace

    if options.hour or options.week:
        if not options.output:
            raise InputError("a synthetic trace needs a place: -o synthetic.csv")
        if min(options.rate, options.scale, options.days) <= 0 or options.days > 7:
            raise InputError("--rate, --scale and --days: expected numbers > 0, and at most 7 days")
        if options.week:
            trace = week(options.week, options.scale, options.seed, options.days)
        else:
            trace = hour(options.rate, options.seed)
        write_trace(options.output, trace)
        path = options.output
    elif options.trace:
        trace, path = read_trace(options.trace), options.trace
    else:
        raise InputError("name a trace to check, or ask for a synthetic one: --hour or --week")
    print(f"{path}: {trace.subject}\nsha256 {sha256(path)}")
    for name, value in summary(trace).items():
        print(f"{name} {value:g}")
