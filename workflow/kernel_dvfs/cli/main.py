"""`kernel-dvfs COMMAND`: finds the command's module, imports nothing else, prints errors as one line."""

import sys

from kernel_dvfs.errors import InputError, leaves, lines
from kernel_dvfs.files import write_text

# command -> what it does; each has a module of its name in kernel_dvfs.cli
COMMANDS = {
    "measure": "measure one target at one clock pair: one record",
    "compare": "measure auto and a schedule's clocks in turn: fresh repeats",
    "sweep": "measure every target at every pair in one process (simulated GPU): a profile",
    "ahead": "measure points ahead of their jobs (simulated GPU)",
    "profile": "pool the records of a sweep into a profile",
    "plan-round": "what is measured next, from all records so far",
    "import": "read a table of measurements into a profile",
    "choose": "choose clocks from a profile: a schedule",
    "table": "write one table of the report",
    "figure": "draw one figure of the report",
    "compare-gpus": "put every GPU and workload in a results folder side by side",
    "report": "write a study, or the comparison of all, as one page",
    "selection-bias": "is a claimed saving the saving one gets? a simulated GPU studied over and over",
    "guided-study": "guided search beside other ways to search: what each finds and what it takes",
    "pipeline-profile": "stages of a training pipeline, from a CSV or a profile of kernels",
    "pipeline-frontier": "a pipeline's whole frontier of time against energy",
    "pipeline-plan": "clocks for every instruction of a pipeline: by time, straggler, energy or price",
    "pipeline-solve": "frontiers and plans of a pipeline study",
    "pipeline-table": "write one table of a pipeline study",
    "pipeline-figure": "draw one figure of a pipeline study",
    "records": "find truncated and foreign records, and delete them on request",
    "build": "compile the native layer",
    "kernels": "write down which kernels a real GPU runs",
    "devices": "list GPUs: clocks, capabilities, permission, what a study would take",
    "identify": "look at a GPU, here or on a node of a cluster, and keep what a study must know of it",
    "serve": "the measuring process of a real GPU",
    "switching-study": "what is left of an iteration's saving where a change of clocks takes time",
    "apply": "run a command at chosen clocks, and give them back",
    "reset": "give a real GPU's clocks back",
}
# group -> module with its COMMANDS, {name: cli.Command}: called as `kernel-dvfs serving replay`
GROUPS = {
    "serving": "kernel_dvfs.cli.serving",
}
# what a Python name cannot be; every dash is an underscore
_MODULES = {"import": "import_"}


def main(arguments=None) -> int:
    """Run a command; its exit code: 0 success, 2 bad input."""
    arguments = sys.argv[1:] if arguments is None else arguments
    options = None
    try:
        run, options = _quick(arguments) or _full(arguments)
        return run(options) or 0
    except (InputError, ExceptionGroup) as error:
        if any(not isinstance(each, InputError) for each in leaves(error)):
            raise
        _tell(lines(error), options)
    except BrokenPipeError:
        raise
    except OSError as error:
        # a file that can be neither read nor written: no fault of the program, so no traceback
        _tell([_reason(error)], options)
    return 2


def _tell(errors: list, options) -> None:
    """One line each on stderr, and in the log where the command has one."""
    text = "".join(f"error: {error}\n" for error in errors)
    print(text, file=sys.stderr, end="")
    log = getattr(options, "log", "")
    if log:
        write_text(log, text)


def _reason(error: OSError) -> str:
    # a rename names its target second, and that is the file the user knows
    name = error.filename2 or error.filename
    text = f"{name}: {error.strerror}" if name is not None and error.strerror else str(error) or repr(error)
    return " ".join(text.split())


def _module(command: str):
    name = f"kernel_dvfs.cli.{_MODULES.get(command, command).replace('-', '_')}"
    __import__(name)
    return sys.modules[name]


def _quick(arguments: list):
    """(run, options) of a command with a table of options, all given plainly; else None."""
    if not arguments or arguments[0] not in ("measure", "compare"):
        return None
    from kernel_dvfs.cli import quick

    module = _module(arguments[0])
    options = quick.parse(arguments[1:], module.OPTIONS)
    return options and (module.run, options)


def _full(arguments: list):
    import argparse

    from kernel_dvfs import __version__

    parser = argparse.ArgumentParser(prog="kernel-dvfs", description="GPU clocks that waste no energy.")
    parser.add_argument("--version", action="version", version=f"kernel-dvfs {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    # a command pays for its own imports only
    called = arguments[0] if arguments and arguments[0] in COMMANDS | GROUPS else None
    for name in COMMANDS if called is None else COMMANDS.keys() & {called}:
        command = commands.add_parser(name, help=COMMANDS[name], description=COMMANDS[name])
        if called:
            module = _module(name)
            module.add_arguments(command)
            command.set_defaults(run=module.run)
    for name in GROUPS if called is None else GROUPS.keys() & {called}:
        _add_group(commands, name, arguments[1:])
    options = parser.parse_args(arguments)
    return options.run, options


def _add_group(commands, name: str, arguments: list) -> None:
    """The commands of a group below its name; only one that is called takes its options."""
    from importlib import import_module

    module = import_module(GROUPS[name])
    what = module.__doc__.splitlines()[0]
    group = commands.add_parser(name, help=what[0].lower() + what[1:].rstrip("."), description=what)
    own = group.add_subparsers(dest="subcommand", metavar="COMMAND", required=True)
    called = arguments[0] if arguments and arguments[0] in module.COMMANDS else None
    for each in [called] if called else module.COMMANDS:
        command = own.add_parser(each, help=module.COMMANDS[each].help, description=module.COMMANDS[each].help)
        if called:
            module.COMMANDS[each].add_arguments(command)
            command.set_defaults(run=module.COMMANDS[each].run)
