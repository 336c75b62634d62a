"""Imported before programs are forked (`forked`): Snakemake, which has looked for its plugins."""

from snakemake.cli import get_argument_parser

get_argument_parser()
