"""`kernel-dvfs measure`. Light: a job imports only what its point needs, when it needs it."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from kernel_dvfs import jobs
from kernel_dvfs.cli.arguments import REPEAT, SESSION
from kernel_dvfs_clocks.clocks import parse as parse_pair


def add_arguments(parser: ArgumentParser) -> None:
    from kernel_dvfs.measurement.campaign import SWEEP

    parser.epilog = "example: kernel-dvfs measure --gpu rtx_3080_ti --target forward_gelu --clocks 1470,auto -o r0.json"
    parser.add_argument(
        "--gpu", required=True, metavar="SETUP", help="a setup file, the name of a simulated GPU, or nvml[:UUID|INDEX]"
    )
    parser.add_argument("--target", required=True, metavar="ID", help="kernel id, kernel/ID or pass/NAME")
    parser.add_argument("--clocks", required=True, metavar="CORE,MEM", help="MHz or auto, each")
    parser.add_argument(
        "--campaign", default=SWEEP, metavar="NAME", help=f"what the measurement is for (default: {SWEEP})"
    )
    parser.add_argument("--repeat", type=REPEAT, default=0, metavar="N", help="number of the repeat (default: 0)")
    parser.add_argument("--session", default="", metavar="NAME", help=SESSION)
    parser.add_argument(
        "--config",
        default="",
        metavar="FILE",
        help="workload and protocol if --gpu is a name (default: config.yaml, or as shipped)",
    )
    parser.add_argument("-o", "--output", required=True, metavar="R.json", help="where the record goes")


def run(options: Namespace) -> None:
    if options.gpu.endswith(".json"):
        _measure(options.gpu, options)
    else:
        _measure_as_configured(options)


def _measure(path: str, options: Namespace) -> None:
    pair = parse_pair(options.clocks)
    jobs.measure(path, options.target, pair, options.campaign, options.repeat, options.output, options.session)


def _measure_as_configured(options: Namespace) -> None:
    from contextlib import nullcontext
    from tempfile import TemporaryDirectory

    from kernel_dvfs import shipped
    from kernel_dvfs.plan.config import check, load
    from kernel_dvfs.plan.study import plan

    content = load(shipped.config_or(options.config)) | {"gpu": options.gpu}
    check(content, str(shipped.SCHEMA))
    # the process that measures a real GPU outlives this one, reads the setup and keeps files beside it
    is_real = options.gpu.partition(":")[0] == "nvml"
    with nullcontext("results") if is_real else TemporaryDirectory() as folder:
        planned = plan(content, folder).setup
        assert planned, "only tables have no setup"
        _measure(planned.write(), options)
