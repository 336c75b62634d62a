"""Write docs/reference/ from schemas and code: python docs/generate_reference.py (make reference).

A test holds the committed pages to what this makes.
"""

import argparse
import collections
import re
import sys
from collections.abc import Iterable
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "workflow"))


_NOTE = "<!-- Written by docs/generate_reference.py; do not edit. -->\n\n"


def pages() -> dict:
    """{path below docs/reference: Markdown}."""
    return {
        "configuration.md": _NOTE + configuration(),
        "commands.md": _NOTE + commands(),
        "results.md": _NOTE + results(),
    }


def _table(head: tuple, rows: list) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "".join("| " + " | ".join(_cell(word) for word in line) + " |\n" for line in lines)


def _cell(text: str) -> str:
    """Plain text, with words in backticks, as a table cell that shows every character of it."""
    spans = re.split(r"(`[^`]+`)", " ".join(str(text).split()))
    return "".join(_code(span[1:-1]) if number % 2 else _plain(span) for number, span in enumerate(spans))


def _plain(text: str) -> str:
    """Escaped, because Markdown, its attribute lists ({...}) and HTML (<...>) would each take a part for their own."""
    text = text.replace("&", "&amp;").replace("<", "&lt;")
    # an underscore within a word and a bracket without a link are plain for every renderer
    return re.sub(r"[\\`*{}|]|(?<!\w)_|_(?!\w)|\](?=[(\[])", r"\\\g<0>", text)


def _code(text: str) -> str:
    """Within backticks nothing needs escaping, except the bar, which ends a cell: renderers disagree how."""
    if "|" not in text:
        return f"`{text}`"
    inner = _plain(text.replace("|", "\0")).replace("\0", "&#124;")
    return f"<code>{inner}</code>"


def _flow(value) -> str:
    return yaml.safe_dump(value, default_flow_style=True, width=10**6, sort_keys=False).removesuffix("...\n").strip()


# --- configuration ----------------------------------------------------------------------------------------------------


def configuration() -> str:
    """Every key with its shipped value, the keys that one comment of config.yaml explains in one row; what is allowed
    where there is no comment."""
    text = (ROOT / "config.yaml").read_text("utf-8")
    shipped = yaml.safe_load(text)
    schema = yaml.safe_load((ROOT / "workflow/schemas/config.schema.yaml").read_text("utf-8"))["properties"]
    parts = [
        "# Configuration\n\nThe keys of `config.yaml` as shipped. Any can be given as `--config key=value` or in a "
        "file (`--configfile mine.yaml`) that names only what differs. An unknown key or impossible value is refused "
        "in one line that says what is allowed. A key with a dot belongs to the group above it.\n"
    ]
    for title, groups in _sections(text):
        parts.append(f"\n## {title}\n\n")
        rows = []
        for keys, comment in groups:
            rows.append((", ".join(_shipped(key, shipped) for key in keys), comment or _allowed(schema[keys[0]])))
            if len(keys) == 1 and (inner := _inner(text, keys[0])):
                own, values = schema[keys[0]]["properties"], shipped[keys[0]]
                rows[-1] = (f"`{keys[0]}`", comment)
                for names, said in inner:
                    cell = ", ".join(f"`.{name}: {_flow(values[name])}`" for name in names)
                    rows.append((cell, said or _allowed(own[names[0]])))
        parts.append(_table(("key", "meaning"), rows))
    return "".join(parts)


def _shipped(key: str, shipped: dict) -> str:
    return f"`{key}: {_flow(shipped[key])}`"


def _sections(text: str) -> list:
    """[(title, [(keys, comment)])] of config.yaml, by its ruled comments: the keys that follow one comment."""
    found: list = []
    for block in re.split(r"^(?=# --- )", text, flags=re.M)[1:]:
        title = re.match(r"# --- (.+?) -+\n", block)
        found.append((title[1], _explained(block[title.end() :], "")))
    return found


def _explained(text: str, indent: str) -> list:
    """[(keys, the comment above them)] of the lines with that indent; a blank line ends what a comment is about."""
    found, comment, keys = [], [], None
    for line in text.splitlines():
        key = re.match(rf"{indent}(\w+):", line)
        if line.startswith(f"{indent}#"):
            comment = [*comment, line.strip().removeprefix("#").strip()] if keys is None else [line.strip("# ")]
            keys = None
        elif key and keys is not None:
            keys.append(key[1])
        elif key:
            keys = [key[1]]
            found.append((keys, " ".join(comment)))
        elif not line:
            comment, keys = [], None
    return found


def _inner(text: str, key: str) -> list:
    """The same of the keys that stand below one, each on a line of its own and one of them with a comment."""
    block = re.search(rf"^{key}:\n((?: +.*\n|\n)*)", text, re.M)
    return _explained(block[1], "  ") if block and re.search(r"^  #", block[1], re.M) else []


def _allowed(schema: dict) -> str:
    if "description" in schema:
        return schema["description"]
    return schema.get("type", "")


# --- commands ---------------------------------------------------------------------------------------------------------

# what the rules call, beside what is not listed at all: one line each, since --help says the rest
_BY_RULES = ("measure", "measure again", "measure by-clock", "measure compare", "measure sweep", "measure aggregate")
_BY_RULES += ("measure step", "study deployable", "pipeline profile", "pipeline solve")


def commands() -> str:
    """Every command of kernel-dvfs with its options; those that several commands share, once."""
    from kernel_dvfs.cli import LOG
    from kernel_dvfs.cli.arguments import arguments_of
    from kernel_dvfs.cli.main import every_command

    every = every_command()
    found = {name: each for name, each in every.items() if each.listed and name not in _BY_RULES}
    arguments = {name: arguments_of(command) for name, command in found.items()}
    rows = {name: [_option(each) for each in own.actions] for name, own in arguments.items()}
    parts = [
        "# Commands\n\n`kernel-dvfs COMMAND --help` says the same, with an example. Exit code 0: done; 2: bad input, "
        "in one line each. "
        f"Every command takes `--log FILE`: {LOG}. A star marks what must be given.\n"
    ]
    for title, names in _families(found).items():
        used = collections.Counter(row for name in names for row in rows[name])
        shared = [row for row, count in used.items() if count > 1]
        alike: dict[tuple, str] = {}  # shared options -> the first command that has them
        for name in names:
            command, epilog = found[name], arguments[name].epilog
            help_ = command.help[0].upper() + command.help[1:]
            parts.append(f"\n## {name}\n\n{_cell(help_ if help_.endswith('?') else help_ + '.')}")
            parts.append(f" {_epilog(epilog)}".rstrip() + "\n")
            parts.append(_list([row for row in rows[name] if row not in shared]))
            own = tuple(row for row in shared if row in rows[name])
            also = ", ".join(f"`{row[0].strip('`*').partition(' ')[0].rstrip(',')}`" for row in own)
            like = alike.setdefault(own, name)
            parts.append(f"\n[Shared]({_anchor(title)}): {also if like == name else f'as `{like}`'}.\n" if own else "")
        parts.append(f"\n## {title}\n{_list(shared)}" if shared else "")
    rules = ", ".join(f"`{name}`" for name in every if name not in found)
    parts.append(f"\n## Called by rules\n\n`--help` says what they do: {rules}.\n")
    return "".join(parts)


def _families(found: Iterable[str]) -> dict[str, list[str]]:
    """{heading of the options that its commands share: names}: those of pipelines, of serving, and the others."""
    families = collections.defaultdict(list)
    for name in found:
        group = name.partition(" ")[0]
        of = f"{group} commands" if group in ("pipeline", "serving") else "the commands above"
        families[f"Shared by {of}"].append(name)
    return families


def _anchor(title: str) -> str:
    return "#" + title.lower().replace(" ", "-")


def _list(rows: list) -> str:
    lines = [f"* {_cell(name)}: {_cell(text)}\n" if text else f"* {_cell(name)}\n" for name, text in rows]
    return "\n" + "".join(lines) if lines else ""


def _option(action: argparse.Action) -> tuple[str, str]:
    text = (action.help or "").replace("%%", "%").replace("%(default)s", str(action.default))
    return _names(action) + (" *" if action.required and action.option_strings else ""), text


def _names(action: argparse.Action) -> str:
    value = action.metavar or ""
    value = " ".join(value) if isinstance(value, tuple) else value
    if not action.option_strings:
        return f"`{value or action.dest}`"
    value = "" if action.nargs == 0 else value or action.dest.upper()
    return "`" + ", ".join(action.option_strings) + (f" {value}" if value else "") + "`"


def _epilog(text: str) -> str:
    """Without its example: the pages have those."""
    return _cell(text.partition("example: ")[0])


# --- results ----------------------------------------------------------------------------------------------------------


def results() -> str:
    """What lies in a results folder."""
    from kernel_dvfs import layout
    from kernel_dvfs.outputs import FORMATS
    from kernel_dvfs.profile import store
    from kernel_dvfs.registry import outputs

    folder = "results/<gpu>/<workload>"
    parts = [
        "# Results\n\nNames that scripts may rely on. A study leaves out what it cannot measure or was not asked for. "
        f"All below `{folder}/`; every number of a simulated GPU is marked so.\n\n"
    ]
    rows = [
        ("`setup/<digest>.json`", "what measurements were made under; named by its content"),
        (
            "`measurements/`",
            "one record a measurement, in JSON; fields have units in their names. A file that is damaged or belongs "
            "to another setup is refused with its name (`kernel-dvfs measure records` looks at all)",
        ),
        ("`by_clock.json`", "what the study by clock visited, chose and showed"),
        ("`profile.parquet`", "all that was visited, pooled: a row a target and pair, times within the iteration"),
        (
            "`published.parquet`",
            "the sweep's first measurement of each point, kernels alone: what is chosen as published",
        ),
        ("`schedules/<granularity>-<scope>-<objective>.json`", "chosen clocks, totals, and by what argument optimal"),
        (f"`schedules/{layout.STRICT}.json`", "the strict one that is relied on, measured again"),
        ("`schedules/published/`", "those chosen as published: from one sweep, no margin"),
        (f"`schedules/{layout.published(layout.STRICT)}.json`", "its strict one, measured again and carried over"),
        (f"`schedules/{layout.published('frontier')}.json`", "the least energy at each tolerated slowdown"),
        ("`variants/<study>-<value>/`", "profile and schedule at another batch, degree or energy, measured again"),
        ("`report.html`", "all of it as one page"),
    ]
    parts.append(_table(("file", "content"), rows))
    for kind in ("table", "figure"):
        parts.append(f"\n## {kind.capitalize()}s: `{kind}s/<name>.<format>` ({', '.join(FORMATS[kind])})\n\n")
        rows = [(f"`{name}`", _short(each.title, each.captioned)) for name, each in outputs("gpu").of(kind).items()]
        parts.append(_table(("name", "content"), rows))
        for study in ("pipeline", "serving"):
            names = ", ".join(f"`{name}`" for name in outputs(study).of(kind))
            parts.append(f"\nOf the target `{study}`, in its own folder: {names}.\n")
    columns = ", ".join(f"`{name}{'?' if null else ''}`" for name, _, null in store.FIELDS)
    parts.append(f"\n## Columns of `profile.parquet`\n\nWith `?`: may be null. {columns}.\n")
    return "".join(parts)


def _short(title: str, caption: str) -> str:
    """What a table or figure shows: its title or, where that says no more than its name, how its caption begins."""
    if len(title.split()) > 2:
        return title
    first = caption.partition("; ")[0]
    return first.partition(": ")[0] if len(first.split()) > 16 else first


if __name__ == "__main__":
    folder = ROOT / "docs/reference"
    folder.mkdir(exist_ok=True)
    for name, text in pages().items():
        (folder / name).write_text(text, encoding="utf-8")
