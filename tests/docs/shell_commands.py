"""The commands that README.md and docs/ tell a reader to type: those in fenced blocks, and those in running text."""

import re
import shlex
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
# a fence of these languages holds commands
SHELL = ("", "sh", "bash", "console")
# first lines of fenced blocks without a language that hold none: a picture, an output
NO_COMMANDS = ("config.yaml -> workload", "0: NVIDIA H200", "model,gpu,tp,")
# words in backticks within a sentence that begin like this are commands, unless they are a bare name or a pattern
PROGRAMS = ("kernel-dvfs", "snakemake", "make", "python", "pip", "git", "pre-commit")


class Command(NamedTuple):
    page: str
    line: str

    @property
    def words(self) -> list:
        return shlex.split(self.line, comments=True)


def fenced(page: Path) -> list:
    """[(first line, lines)] of the blocks that are commands or might be; continued lines joined."""
    blocks = re.findall(r"^```(\w*)\n(.*?)^```", page.read_text("utf-8"), re.S | re.M)
    return [text.replace("\\\n", " ").splitlines() for language, text in blocks if language in SHELL]


def in_blocks(page: Path) -> list:
    """The commands of a page's fenced blocks, in order."""
    return [
        Command(page.name, line.strip())
        for lines in fenced(page)
        if not lines[0].startswith(NO_COMMANDS)
        for line in lines
        if line.strip() and not line.lstrip().startswith("#")
    ]


def in_sentences(page: Path) -> list:
    """The commands in backticks of a page's text."""
    text = re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.S | re.M)
    found = [line for line in re.findall(r"`([^`\n]+)`", text) if line.split()[0] in PROGRAMS and " " in line]
    return [Command(page.name, line) for line in found if "..." not in line and "COMMAND" not in line]


def all_commands() -> list:
    """Every command of every page, once."""
    pages = [page for page in PAGES if page.exists()]
    return list(dict.fromkeys(each for page in pages for each in (*in_blocks(page), *in_sentences(page))))
