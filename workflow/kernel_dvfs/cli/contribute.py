"""`kernel-dvfs contribute`: a study's measurements as one archive for a public collection, anonymised."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from kernel_dvfs.profile.contributing import contribute
from kernel_dvfs.profile.contribution import LICENCE

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace


def add_arguments(parser: ArgumentParser) -> None:
    parser.epilog = "example: kernel-dvfs contribute results/nvidia-h200-9fca33e6/gpt3-xl-b40-tp1 --credit 'A. Lab'"
    parser.add_argument("study", help="folder of a study of a real GPU, or a profile")
    parser.add_argument("--latency", metavar="FILE", help="what `kernel-dvfs latency` measured of the board")
    parser.add_argument(
        "--facts", metavar="FILE.json", help="facts about the board, for a profile that was made from a table"
    )
    parser.add_argument("--credit", metavar="NAME", help=f"whom to name, as {LICENCE} asks (default: nobody)")
    parser.add_argument("--salt", metavar="FILE", help="secret that hashes the UUID (default: in the results folder)")
    parser.add_argument(
        "--settings", nargs="*", default=(), metavar="COLUMN", help="text columns of settings that may be included"
    )
    parser.add_argument(
        "-o", "--output", metavar="FILE.tar.gz", help="an archive, or a folder (default: named by board and workload)"
    )


def run(options: Namespace) -> None:
    path, notes = contribute(
        options.study, options.output, options.latency, options.facts, options.credit, options.salt, options.settings
    )
    for note in notes:
        print(f"note: {note}", file=sys.stderr)
    print(f"{path}: {LICENCE}, anonymised; look into it, then send it as docs/contribute.md says", file=sys.stderr)
