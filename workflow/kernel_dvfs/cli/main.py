"""`kernel-dvfs COMMAND`, `kernel-dvfs GROUP COMMAND`: finds the command, imports no other, prints errors as lines."""

from __future__ import annotations

import argparse
import os
import sys
from functools import cache
from typing import TYPE_CHECKING, Any, NoReturn

from kernel_dvfs.cli import LOG, LOG_OF_THIS
from kernel_dvfs.cli.arguments import arguments_of
from kernel_dvfs.cli.completion import add_completion
from kernel_dvfs.command import Command, command_of
from kernel_dvfs.extensions import at, merged
from kernel_dvfs.memory import SHORT, why_short, why_too_little
from kernel_dvfs_clocks.errors import InputError, leaves, lines, meant, one_line
from kernel_dvfs_clocks.files import write_text
from kernel_dvfs_clocks.package import VERSION, remedy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

# as a shell has it of a program that SIGINT or SIGPIPE ended
_INTERRUPTED, _READER_GONE = 130, 141
# what a user calls most; extensions add theirs
COMMANDS = {
    "study": command_of(
        "study",
        "study a table, a GPU or your training step: what it needs, how long it takes, then all of it",
        talks=True,
    ),
    "demo": command_of("demo", "a small simulated study: a sweep, a choice measured again, a page"),
    "devices": command_of("devices", "list GPUs: clocks, rights, what a study would take"),
    "import": command_of("import_table", "read a table of measurements into a profile"),
    "choose": command_of("choose", "choose clocks from a profile: a schedule"),
    "reset": command_of("reset", "give a real GPU's clocks back"),
    "counter": command_of("counter", "does a GPU's energy counter agree with its power reading?"),
    "calibrate": command_of("calibrate", "fit a simulated GPU to a board here: two probes of its memory, a minute"),
    "broker": command_of("broker", "a daemon of root: sets clocks for named users, and restores them"),
    "report": command_of("report", "write a study, or the comparison of all, as one page"),
    "output": command_of("output", "write tables and figures of any study"),
    "build": command_of("build", "compile the native layer"),
    "identify": command_of("identify", "find out which GPU a cluster gives, and keep what a study must know"),
    "measure": command_of("measure", "measure one target at one clock pair: one record", talks=True),
}
_MEASURE = {
    "again": command_of(
        "again", "measure the whole iteration at auto and at schedules' clocks: choices, measured again"
    ),
    "compare": command_of("compare", "measure kernels alone, at auto and other clocks in turn", talks=True),
    "sweep": command_of("sweep", "measure every target at every pair in one process (simulated GPU): a profile"),
    "by-clock": command_of(
        "by_clock", "visit pairs of clocks until it is known which to choose, and shown what they keep"
    ),
    "aggregate": command_of("aggregate", "aggregate records into a profile"),
    "step": command_of("add_step", "add what a study measured of a captured step to the step's record"),
    "records": command_of("records", "find truncated and foreign records, and delete them on request"),
    "serve": command_of("serve", "the measuring process of a real GPU", listed=False),
    "kernels": command_of("kernels", "write down which kernels a real GPU runs", listed=False),
}
_STUDY = {
    "native-rows": command_of(
        "native_rows",
        "hold the kernels of a study to what the native layer counts and runs",
        listed=False,
    ),
    "compare-gpus": command_of(
        "compare_gpus", "put every GPU and workload in a results folder side by side", listed=False
    ),
}
# group -> (what its commands are about, its own ones); `measure` and `study` by themselves are commands as well
_GROUPS = {
    "measure": ("more ways to measure", _MEASURE),
    "study": ("what a study asks for beyond its schedules", _STUDY),
}


def commands() -> dict[str, Command]:
    """Return {word: Command} of those of one word, the road's first."""
    return COMMANDS | {name: command for name, command in merged("commands").items() if " " not in name}


def groups() -> dict[str, str]:
    """Return {group: what its commands are about}."""
    of_extensions = {name: about for name, (about, _) in merged("groups").items()}
    return {name: about for name, (about, _) in _GROUPS.items()} | of_extensions


def group(name: str) -> dict[str, Command]:
    """Return {word: Command} of a group."""
    if name not in _GROUPS:
        subcommands: dict[str, Command] = at(merged("groups")[name][1])
        return subcommands
    more = {words: command for words, command in merged("commands").items() if words.startswith(f"{name} ")}
    return _GROUPS[name][1] | {words.partition(" ")[2]: command for words, command in more.items()}


def every_command() -> dict[str, Command]:
    """Return {`choose`, `pipeline plan`, ...: Command} of all, in the order of the help."""
    return commands() | {f"{name} {word}": command for name in groups() for word, command in group(name).items()}


def main(arguments: Sequence[str] | None = None, alone: bool = True) -> int:
    """Run a command; returns its exit code: 0 success, 2 bad input, 130 stopped by Ctrl-C, 141 its reader is gone.

    alone: whether the process is there for this command. If not, its log gets what it tells, its answer and its errors,
    and no more: what else it prints cannot be told from what others in the process do.
    """
    words = sys.argv[1:] if arguments is None else list(arguments)
    log = words[words.index("--log") + 1] if "--log" in words[:-1] else ""
    if too_little := why_too_little():
        _tell([too_little], log)
        return 2
    try:
        run, options = parsed(words)
        is_quiet = log and alone and not options.talks
        log_of = _SaidIn(log) if is_quiet else _ErrorsIn(log)
    except InputError as error:
        _tell(lines(error), log)
        return 2
    except OSError as error:  # the log cannot be written
        _tell([_reason(error)])
        return 2
    except ModuleNotFoundError as error:  # of a command's own module, which imports at its top
        if not (remedy_line := remedy(error)):
            raise
        _tell([remedy_line], log)
        return 2
    except SHORT as error:
        if not (reason := why_short(error)):
            raise
        _tell([reason])
        return 2
    with log_of:
        mark = LOG_OF_THIS.set("" if alone else log)
        try:
            return _code(lambda: run(options), "" if is_quiet else log)
        finally:
            LOG_OF_THIS.reset(mark)


def called(log: str, work: Callable[..., object], *arguments: Any, **options: Any) -> int:
    """Run a function in a process that is not there for it alone; return an exit code, as of a command. Its errors
    go to its log."""
    with _ErrorsIn(log):

        def run() -> None:
            work(*arguments, **options)

        return _code(run, log)


def _code(run: Callable[[], Any], log: str = "") -> int:
    """Return the exit code of a command, which says of itself why it is not 0. log: where errors go; "": to stderr."""
    try:
        code = run() or 0
        # what the reader of a pipe refuses shows here, and not when the program is over
        if sys.stdout:
            sys.stdout.flush()
        return code
    except (InputError, ExceptionGroup) as error:
        if any(not isinstance(leaf, InputError) for leaf in leaves(error)):
            raise
        _tell(lines(error), log)
    except ModuleNotFoundError as error:
        if not (remedy_line := remedy(error)):
            raise
        _tell([remedy_line], log)
    except SHORT as error:
        if not (reason := why_short(error)):
            raise
        _tell([reason], log)
    except BrokenPipeError:
        if not sys.stdout or not _is_output_refused():
            raise
        return _READER_GONE
    except KeyboardInterrupt:
        _tell(["interrupted"], log)
        return _INTERRUPTED
    except OSError as error:
        # a file that can be neither read nor written: no fault of the program, so no traceback
        _tell([_reason(error)], log)
    return 2


def _is_output_refused() -> bool:
    """Return whether what reads our output is gone, as `head` is when it has enough; then the rest of it goes
    nowhere."""
    from select import POLLERR, POLLHUP, poll

    watched = poll()
    watched.register(sys.stdout.fileno(), 0)
    if not any(seen & (POLLERR | POLLHUP) for _, seen in watched.poll(0)):
        return False
    # else the interpreter tries once more at its end, and complains
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return True


class _SaidIn:
    """While it is entered, what a command and what it starts have to say goes to a file: a run of the workflow has a
    line of its own on the terminal. Raises OSError where the file cannot be written."""

    def __init__(self, path: str) -> None:
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        self._file = open(path, "w", encoding="utf-8", buffering=1)  # noqa: SIM115

    def __enter__(self) -> None:
        self._before = sys.stdout, sys.stderr, os.dup(1), os.dup(2)
        sys.stdout = sys.stderr = self._file
        for number in (1, 2):
            os.dup2(self._file.fileno(), number)

    def __exit__(self, kind: object, error: BaseException | None, *_: object) -> None:
        sys.stdout, sys.stderr, *before = self._before
        for number, saved in enumerate(before, start=1):
            os.dup2(saved, number)
            os.close(saved)
        self._file.write(_fault(error))
        self._file.close()


class _ErrorsIn:
    """While it is entered, a file gets errors alone, and none of an earlier run is left there. path: "" for no file.
    Raises OSError where it cannot be deleted."""

    def __init__(self, path: str) -> None:
        self._path = path
        if os.path.isfile(path):  # no device
            os.unlink(path)

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, *_: object) -> None:
        if self._path and (text := _fault(error)):
            write_text(self._path, text)


def _fault(error: BaseException | None) -> str:
    """Return the traceback of a fault of the program, for where it is looked for."""
    if error is None or isinstance(error, SystemExit):
        return ""
    import traceback

    return "".join(traceback.format_exception(error))


def _tell(errors: list[str], log: str = "") -> None:
    """Print a line for each error on stderr; where there is a log, write them there instead."""
    text = "".join(f"error: {error}\n" for error in errors)
    if log:
        write_text(log, text)
    else:
        print(text, file=sys.stderr, end="")


def _reason(error: OSError) -> str:
    # a rename names its target second, and that is the file the user knows
    name = error.filename2 or error.filename
    text = (
        f"{name}: {error.strerror}; name another path, or mend this one"
        if name is not None and error.strerror
        else str(error) or repr(error)
    )
    return one_line(text)


def parsed(arguments: list[str]) -> tuple[Callable[[argparse.Namespace], Any], argparse.Namespace]:
    """Return (the command's function, its options); ends the program where help is asked for. Raises InputError."""
    first, second = (*arguments[:2], "", "")[:2]
    # a command pays for its own imports only
    if first in _GROUPS and second in _GROUPS[first][1]:
        return _of_command(f"{first} {second}", _GROUPS[first][1][second], arguments[2:])
    if first in COMMANDS and first not in _GROUPS:
        return _of_command(first, COMMANDS[first], arguments[1:])
    known, grouped = commands(), groups()
    if first in grouped and second in group(first):
        return _of_command(f"{first} {second}", group(first)[second], arguments[2:])
    if first in known:
        return _of_command(first, known[first], arguments[1:])
    if first in grouped:
        about = f"{grouped[first][0].upper()}{grouped[first][1:]}."
        parser = _overview(f"kernel-dvfs {first}", about, _listed(group(first)))
        _refuse(parser, arguments[1:], group(first))
    shown = {f"{name} ...": f"{what}: kernel-dvfs {name} --help" for name, what in grouped.items()}
    parser = _overview("kernel-dvfs", "GPU clocks that waste no energy.", _listed(known) | shown)
    parser.add_argument("--version", action="version", version=f"kernel-dvfs {VERSION}")
    add_completion(parser, every_command())
    _refuse(parser, arguments, [*known, *grouped])


class _Parser(argparse.ArgumentParser):
    """A parser whose errors are one line, like all others; argparse prints the usage before them."""

    def error(self, message: str) -> NoReturn:
        raise InputError(f"{self.prog.removeprefix('kernel-dvfs ')}: {message} ({self.prog} --help says more)")


def _listed(commands: dict[str, Command]) -> dict[str, str]:
    return {name: command.help for name, command in commands.items() if command.listed}


def _help(prog: str) -> argparse.HelpFormatter:
    # a fixed width: to ask for the terminal's, argparse imports shutil, a twelfth of what a measurement job takes
    return argparse.HelpFormatter(prog, width=100)


def _of_command(name: str, command: Command, words: list[str]) -> tuple[Callable[..., Any], argparse.Namespace]:
    parser = _parser_of(name, command)
    options, unknown = parser.parse_known_args(words)
    if unknown:
        flags = (flag for action in arguments_of(command).actions for flag in action.option_strings)
        known = ["--help", "--log", *flags]
        first = next((word.partition("=")[0] for word in unknown if word.startswith("--")), "")
        parser.error(f"unrecognized arguments: {' '.join(unknown)}{meant(first, known)}")
    return command.run, options


# thousands of jobs of one process call the same command
@cache
def _parser_of(name: str, command: Command) -> _Parser:
    parser = _Parser(prog=f"kernel-dvfs {name}", description=command.help, formatter_class=_help)
    command.add_arguments(parser)
    parser.add_argument("--log", default="", metavar="FILE", help=LOG)
    parser.set_defaults(talks=command.talks)
    if name in _GROUPS:
        further = ", ".join(f"{name} {words}" for words in _listed(group(name)))
        parser.epilog = f"{parser.epilog}; further commands: {further}"
    return parser


def _overview(prog: str, about: str, listed: dict[str, str]) -> _Parser:
    """Return a parser whose help lists commands and what they do."""
    width = max(map(len, listed))
    text = "\n".join([about, "", *(f"  {name:{width}}  {what}" for name, what in listed.items())])
    parser = _Parser(prog=prog, description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", metavar="COMMAND", help="one of these; COMMAND --help says more", nargs="?")
    return parser


def _refuse(parser: _Parser, words: list[str], known: Iterable[str]) -> NoReturn:
    """Show the help where it was asked for, which ends the program, else say which command was expected: InputError."""
    given = parser.parse_known_args(words)[0].command
    known = list(known)
    place = next((place for place, word in enumerate(words) if word in known), 0)
    if place and words[0].startswith("-"):
        more = " ..." if words[place + 1 :] else ""
        first = " ".join([parser.prog, words[place], *words[:place]])
        raise InputError(f"{parser.prog}: the command comes first: {first}{more}")
    if given is None:
        raise InputError(f"{parser.prog}: a command is expected; {parser.prog} --help lists them")
    raise InputError(f"{parser.prog}: unknown command '{given}'{meant(given, known)}; {parser.prog} --help lists them")
