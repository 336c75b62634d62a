"""What completes a command line in a shell: a script, made from the table of commands."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from kernel_dvfs.cli.arguments import arguments_of, one_of
from kernel_dvfs.command import Command

_HOW = "print what completes commands and options: source <(kernel-dvfs --completion bash)"
# zsh runs what is written for bash, where its own completion has begun
_ZSH = """\
(( ${+functions[compdef]} )) || { autoload -U compinit && compinit }
autoload -U +X bashcompinit && bashcompinit
"""
_BEFORE = {"bash": "", "zsh": _ZSH}
# the words before the cursor say which are possible; where none fits, the shell completes names of files
_SCRIPT = """\
_kernel_dvfs() {{
  local first second words
  ((COMP_CWORD > 1)) && first=${{COMP_WORDS[1]}}
  ((COMP_CWORD > 2)) && second=${{COMP_WORDS[2]}}
  case "$first/$second" in
{cases}
  esac
  COMPREPLY=($(compgen -W "$words" -- "${{COMP_WORDS[COMP_CWORD]}}"))
}}
complete -o default -F _kernel_dvfs kernel-dvfs
"""


def add_completion(parser: argparse.ArgumentParser, commands: Mapping[str, Command]) -> None:
    """Describe the option that prints the script to an argparse parser. commands: by all their words."""

    class Print(argparse.Action):
        def __call__(self, parser: argparse.ArgumentParser, _: object, shell: Any, __: object = None) -> None:
            print(script(shell, commands), end="")
            parser.exit()

    parser.add_argument("--completion", action=Print, help=_HOW, **one_of(_BEFORE))


def script(shell: str, commands: Mapping[str, Command]) -> str:
    """Return the script for a shell, bash or zsh: commands by all their words, those that are listed."""
    options = {name: [*_flags(command), "--help", "--log"] for name, command in commands.items() if command.listed}
    firsts = dict.fromkeys(name.partition(" ")[0] for name in options)
    cases = {"/": [*firsts, "--help", "--version", "--completion"]}
    for first in firsts:
        of_group = {name.partition(" ")[2]: flags for name, flags in options.items() if name.startswith(f"{first} ")}
        if of_group:
            cases[f"{first}/"] = [*of_group, *options.get(first, ["--help"])]
        cases |= {f"{first}/{second}": flags for second, flags in of_group.items()}
        if first in options:
            cases[f"{first}/*"] = options[first]
    lines = "\n".join(f"    {case}) words='{' '.join(words)}' ;;" for case, words in cases.items())
    return _BEFORE[shell] + _SCRIPT.format(cases=lines)


def _flags(command: Command) -> list[str]:
    """Return the options of a command; none where a package that it needs is not installed."""
    try:
        return [flag for action in arguments_of(command).actions for flag in action.option_strings]
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("kernel_dvfs"):
            raise
        return []
