"""`kernel-dvfs tune`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernel_dvfs.cli import THROUGH
from kernel_dvfs.cli.arguments import number, whole
from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_clocks.files import writable, write_json, write_text
from kernel_dvfs_deploy.commands.shared import say

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace


def add_arguments(parser: ArgumentParser) -> None:
    parser.usage = "kernel-dvfs tune [--slack PERCENT] [--progress REGEX] [options] -- COMMAND ..."
    parser.epilog = "example: kernel-dvfs tune --slack 1 --progress 'iter (\\d+)' -- python train.py"
    parser.add_argument(
        "--slack", type=number(0, 50, "percent"), default=1.0, metavar="PERCENT", help="a step may be slower by (1)"
    )
    parser.add_argument(
        "--progress",
        metavar="REGEX",
        help="its first group is the step's number in what is printed (default: the command marks steps)",
    )
    parser.add_argument("--gpu", default="", metavar="GPU,...", help="all GPUs of the training")
    parser.add_argument(
        "--minutes", type=number(0.1, 600, "minutes"), default=30.0, metavar="MIN", help="then a pair is kept (30)"
    )
    parser.add_argument(
        "--samples",
        type=whole(1, 10**9),
        default=0,
        metavar="N",
        help="samples a step of all ranks: tells joules a sample",
    )
    parser.add_argument(
        "--latency",
        metavar="L.json",
        help="of kernel-dvfs latency: marked passes get a pair each",
    )
    parser.add_argument(
        "--block", type=number(1, 600, "seconds"), default=5.0, metavar="S", help="at one pair, in turn with auto (5)"
    )
    parser.add_argument("--through", default="auto", metavar="WAY", help=THROUGH)
    parser.add_argument("--dry-run", action="store_true", help="set nothing: measure auto, say what would be tried")
    parser.add_argument("--share", action="store_true", help="run even if other processes compute on the GPU")
    parser.add_argument("--report", metavar="R.json", help="what was found, as JSON")
    parser.add_argument("--page", metavar="P.html", help="the same as a page")
    parser.add_argument("command_words", nargs="*", metavar="COMMAND", help="the program and its arguments, after --")


def run(options: Namespace) -> int:
    if not options.command_words:
        raise InputError("tune: no command; write it after --, as in: kernel-dvfs tune --slack 1 -- python train.py")
    for path in filter(None, (options.report, options.page)):  # before hours are spent
        writable(path)
    from kernel_dvfs_deploy.tune import tune_command  # with numpy, which --help does without

    code, summary = tune_command(
        options.command_words,
        options.progress,
        options.slack,
        options.gpu,
        options.minutes,
        options.through,
        options.dry_run,
        options.share,
        say,
        options.block,
        options.samples,
        options.latency,
    )
    if options.report:
        write_json(options.report, summary | {"command": options.command_words})
    if options.page:
        from kernel_dvfs_deploy.tune_page import make  # with a package that tuning can do without

        write_text(options.page, make(summary))
    return code
