"""Options of commands that start thousands of times: one table, read by hand, or by argparse for everything unusual.

argparse takes 10 ms to import and set up, as long as a whole measurement job should.
"""

from kernel_dvfs.tuples import named

Option = named(
    "Option",
    "flag default metavar help",
    "default: None = must be given. All values are text.",
)


def add_arguments(parser, options: tuple) -> None:
    """The options for argparse: errors, --help."""
    for each in options:
        default = f" (default: {each.default})" if each.default else ""
        flags = ("-o", "--output") if each.flag == "-o" else (each.flag,)
        parser.add_argument(
            *flags,
            dest=_name(each),
            required=each.default is None,
            default=each.default,
            metavar=each.metavar,
            help=each.help + default,
        )


def parse(arguments: list, options: tuple):
    """An object with a value per option, or None where argparse should have its say."""
    known = {each.flag: each for each in options}
    given = dict(zip(arguments[::2], arguments[1::2]))
    needed = {flag for flag, each in known.items() if each.default is None}
    if len(arguments) % 2 or 2 * len(given) != len(arguments) or not needed <= set(given) <= set(known):
        return None
    found = Values()
    for flag, each in known.items():
        setattr(found, _name(each), given.get(flag, each.default))
    return found


class Values:
    """Values of the options, by name."""


def _name(option: Option) -> str:
    return "output" if option.flag == "-o" else option.flag.lstrip("-").replace("-", "_")
