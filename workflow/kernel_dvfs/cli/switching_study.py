"""`kernel-dvfs study switching`: what is left of an iteration's saving where a change of clocks takes time."""

from argparse import ArgumentParser, Namespace

from kernel_dvfs.cli.arguments import PERCENT, SECONDS, SHARE
from kernel_dvfs.cli.change_costs import add_stall_arguments, stalls_of

LATENCIES_S = (0, 1e-6, 1e-5, 1e-4, 1e-3, 5e-3, 1e-2, 2e-2, 5e-2, 0.1)
JITTERS = (0, 0.1, 0.3)


def add_arguments(parser: ArgumentParser) -> None:
    """The command's options."""
    parser.epilog = "example: kernel-dvfs study switching profile.parquet -o beyond"
    parser.add_argument("profile", metavar="P.parquet")
    parser.add_argument("--latencies", nargs="+", type=SECONDS, default=LATENCIES_S, metavar="S", help="seconds")
    parser.add_argument("--jitters", nargs="+", type=SHARE, default=JITTERS, metavar="SHARE", help="of the latency")
    parser.add_argument("--slack", type=PERCENT, default=0.0, metavar="PERCENT", help="tolerated slowdown (default: 0)")
    parser.add_argument(
        "--sequence", default="profile", metavar="ORDER", help="`profile` (default) or a JSON list of ids"
    )
    parser.add_argument(
        "--measured", metavar="L.json", help="a file of kernel-dvfs latency: its latencies are studied as well"
    )
    add_stall_arguments(parser)
    parser.add_argument("-o", "--output", required=True, metavar="DIR", help="where tables/ and figures/ go")


def run(options: Namespace) -> None:
    """Run the command. Raises InputError."""
    from kernel_dvfs.report.write import write_figure, write_table
    from kernel_dvfs.sequence.costs import read_latency
    from kernel_dvfs.sequence.launches import read_sequence
    from kernel_dvfs.studies import switching
    from kernel_dvfs.studies.report import switching as report

    read = read_sequence(options.profile, options.sequence, options.stall_w)
    measured = read_latency(options.measured, read.gpu) if options.measured else None
    latencies_s = sorted({*options.latencies, *(measured.latencies_s if measured else ())})
    stalls = stalls_of(options, measured)
    rows = switching.study(
        read.sequence, latencies_s, sorted(set(options.jitters)), stalls.both_s, options.slack / 100, stalls.source
    )
    gpu = f"simulated {read.gpu['name']}" if read.gpu["kind"] == "simulated" else read.gpu["name"]
    subject = f"{gpu}, {read.workload['name']}"
    table = report.make(rows)
    write_table(table, options.output, "switching", report.OUTPUT.caption, subject, report.OUTPUT.formats)
    known = report.make_known(rows, measured)
    write_table(known, options.output, "switching_known", report.KNOWN.caption, subject, report.KNOWN.formats)
    plot = report.draw(table, gpu, read.workload["name"])
    write_figure(plot, options.output, "switching", report.FIGURE.caption, gpu)
