"""Write docs/reference/ from schemas and code: python docs/generate_reference.py (make reference).

A test holds the committed pages to what this makes.
"""

import argparse
import re
import sys
import typing
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "workflow"))

from kernel_dvfs import shape  # noqa: E402

_NOTE = "<!-- Written by docs/generate_reference.py; do not edit. -->\n\n"


def pages() -> dict:
    """{path below docs/reference: Markdown}."""
    return {
        "configuration.md": _NOTE + configuration(),
        "commands.md": _NOTE + commands(),
        "records.md": _NOTE + records(),
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


def _value(value) -> str:
    return f"`{yaml.safe_dump(value, default_flow_style=True, width=10**6).removesuffix('...' + chr(10)).strip()}`"


# --- configuration ----------------------------------------------------------------------------------------------------


def configuration() -> str:
    """Every key with its shipped value, what is allowed, and the comment of config.yaml."""
    text = (ROOT / "config.yaml").read_text("utf-8")
    shipped = yaml.safe_load(text)
    schema = yaml.safe_load((ROOT / "workflow/schemas/config.schema.yaml").read_text("utf-8"))
    parts = [
        "# Configuration\n\nThe keys of `config.yaml`. Any can be given as `--config key=value` or in a file "
        "(`--configfile mine.yaml`) that names only what differs. An unknown key or an impossible value is refused in "
        "one line. A comment often speaks of the keys below it as well.\n"
    ]
    for title, keys in _sections(text):
        parts.append(f"\n## {title}\n\n")
        rows = []
        for key, comment in keys:
            own = schema["properties"][key]
            inner = own.get("properties")
            rows.append((f"`{key}`", "" if inner else _value(shipped[key]), _allowed(own), comment))
            for name, child in (inner or {}).items():
                rows.append((f"`{key}.{name}`", _value(shipped[key][name]), _allowed(child), _inner(text, key, name)))
        parts.append(_table(("key", "shipped", "allowed", "meaning"), rows))
    return "".join(parts)


def _sections(text: str) -> list:
    """[(title, [(key, comment)])] of config.yaml, by its ruled comments."""
    found, comment = [], []
    for line in text.splitlines():
        rule = re.fullmatch(r"# --- (.+?) -+", line)
        key = re.match(r"(\w+):", line)
        if rule:
            found.append((rule[1], []))
            comment = []
        elif line.startswith("#"):
            comment.append(line.removeprefix("#").strip())
        elif key:
            found[-1][1].append((key[1], " ".join(comment)))
            comment = []
        elif not line:
            comment = []
    return found


def _inner(text: str, key: str, name: str) -> str:
    """The comment above an indented key."""
    block = re.search(rf"^{key}:[ ]*(?:#.*)?\n((?:[ ]+.*\n|\n)*)", text, re.M)
    comment = []
    for line in block[1].splitlines() if block else ():
        if re.match(rf"  {name}:", line):
            return " ".join(comment)
        if line.startswith("  #"):
            comment.append(line.strip().removeprefix("#").strip())
        else:
            comment = []
    return ""


def _allowed(schema: dict) -> str:
    if "description" in schema:
        return schema["description"]
    return schema.get("type", "")


# --- commands ---------------------------------------------------------------------------------------------------------


def commands() -> str:
    """Every command of kernel-dvfs with its options."""
    from kernel_dvfs.cli import LOG
    from kernel_dvfs.cli.arguments import arguments_of
    from kernel_dvfs.cli.main import every_command

    found = every_command()
    parts = [
        "# Commands\n\n`kernel-dvfs COMMAND --help` says the same. Exit code 0: done; 2: bad input, in one line each. "
        f"Every command takes `--log FILE`: {LOG}.\n"
    ]
    for name, command in found.items():
        if not command.listed:
            continue
        arguments = arguments_of(command)
        parts.append(f"\n## {name}\n\n{_cell(command.help[0].upper() + command.help[1:])}.\n\n")
        rows = [(_names(each), "yes" if _required(each) else "", _help(each)) for each in arguments.actions]
        parts.append(_table(("option", "required", "meaning"), rows))
        if arguments.epilog:
            parts.append(f"\n{_epilog(arguments.epilog)}\n")
    parts.append("\n## Called by rules alone\n\n")
    rows = [(f"`{name}`", command.help) for name, command in found.items() if not command.listed]
    parts.append(_table(("command", "what it does"), rows))
    return "".join(parts)


def _names(action: argparse.Action) -> str:
    value = action.metavar or ""
    value = " ".join(value) if isinstance(value, tuple) else value
    if not action.option_strings:
        return f"`{value or action.dest}`"
    value = "" if action.nargs == 0 else value or action.dest.upper()
    return "`" + ", ".join(action.option_strings) + (f" {value}" if value else "") + "`"


def _required(action: argparse.Action) -> bool:
    return action.required


def _help(action: argparse.Action) -> str:
    text = (action.help or "").replace("%%", "%")
    return text.replace("%(default)s", str(action.default))


def _epilog(text: str) -> str:
    what, colon, command = text.partition("example: ")
    return f"{_cell(what)} Example: `{command}`".strip() if colon else _cell(text)


# --- records ----------------------------------------------------------------------------------------------------------


def records() -> str:
    """The fields that every record must have, as the reader checks them."""
    from kernel_dvfs.measurement import record

    parts = [
        "# Records\n\nOne JSON file a measurement, written whole or not at all. Raw units: us, mJ, mW, MHz, s, C. "
        "A file that breaks one of these rules, or belongs to another setup, is refused with its name.\n"
    ]
    kinds = (
        ("A point", record.POINT, "`measurements/<study>/<target>/<core>-<mem>/r<k>.json`", record.PointRecord),
        ("Left out", record.SKIPPED, "in place of a point, where `skip_capped` left it out", record.SkippedRecord),
        ("A comparison", record.COMPARISON, "auto, chosen, chosen, auto of targets", record.ComparisonRecord),
    )
    for title, schema, where, kind in kinds:
        rows = _table(("field", "must be"), _fields(kind))
        parts.append(f"\n## {title}: `{schema}`\n\n{where}\n\n{rows}")
    rows = _table(("field", "must be"), _fields(record.OfRealGpu))
    parts.append(f"\n## A point of a real GPU holds besides\n\n{rows}")
    return "".join(parts)


def _fields(kind: object, prefix: str = "") -> list[tuple[str, str]]:
    """A row a field, those of groups and of lists of groups by their paths."""
    rows = []
    for name, own in shape.fields(kind).items():
        optional = ", or is not there" if typing.get_origin(own) is typing.NotRequired else ""
        own = typing.get_args(own)[0] if optional else own
        group, ending = _group_in(own)
        if optional or ending or group is None:
            rows.append((f"`{prefix}{name}`", shape.words(own) + optional))
        if group is not None:
            rows += _fields(group, f"{prefix}{name}{ending}.")
    return rows


def _group_in(kind: object) -> tuple[object, str]:
    """(the group that a field holds, None where it holds none; what its path ends in)."""
    if typing.get_origin(kind) is typing.Annotated:
        return _group_in(typing.get_args(kind)[0])
    if typing.get_origin(kind) is list:
        return _group_in(typing.get_args(kind)[0])[0], "[]"
    return (kind if typing.is_typeddict(kind) else None), ""


# --- results ----------------------------------------------------------------------------------------------------------


def results() -> str:
    """What lies in a results folder."""
    from kernel_dvfs import layout
    from kernel_dvfs.outputs import FORMATS
    from kernel_dvfs.profile import store
    from kernel_dvfs.registry import outputs

    folder = "results/<gpu>/<workload>"
    parts = [
        "# Results\n\nThe output contract: names that scripts may rely on. A study leaves out what it cannot "
        f"measure or was not asked for. All below `{folder}/`; every number of a simulated GPU is marked so. "
        "[Records](records.md) says what a record holds.\n\n"
    ]
    rows = [
        ("`setup/<digest>.json`", "what the measurements were made under; named by its content"),
        ("`measurements/`", "one record a measurement"),
        ("`search.json`", "what was measured beyond the sweep, and the checksums of the records that it followed from"),
        ("`profile.parquet`", "all measurements of the choice, pooled: one row a target and pair"),
        (
            "`published.parquet`",
            "the first measurement of each point of the sweep, alike: what is chosen as published",
        ),
        ("`schedules/<granularity>-<scope>-<objective>.json`", "chosen clocks, totals, and by what argument optimal"),
        (f"`schedules/{layout.STRICT}.json`", "the strict one that is relied on, and validated"),
        ("`schedules/published/`", "those chosen as published: from one sweep, no margin"),
        (f"`schedules/{layout.published(layout.STRICT)}.json`", "its strict one, which is validated and carried over"),
        (f"`schedules/{layout.published('frontier')}.json`", "the least energy at each tolerated slowdown"),
        ("`variants/<study>-<value>/`", "profile, schedule and fresh repeats at another batch, degree or energy"),
        ("`report.html`", "all of it as one page"),
    ]
    parts.append(_table(("file", "content"), rows))
    for kind in ("table", "figure"):
        parts.append(f"\n## {kind.capitalize()}s: `{kind}s/<name>.<format>` ({', '.join(FORMATS[kind])})\n\n")
        rows = [(f"`{name}`", each.captioned) for name, each in outputs("gpu").of(kind).items()]
        parts.append(_table(("name", "content"), rows))
        for study in ("pipeline", "serving"):
            names = ", ".join(f"`{name}`" for name in outputs(study).of(kind))
            parts.append(f"\nOf the target `{study}`, in its own folder: {names}.\n")
    parts.append("\n## Columns of `profile.parquet`\n\n")
    rows = [(f"`{name}`", kind, "yes" if null else "") for name, kind, null in store.FIELDS]
    parts.append(_table(("column", "type", "may be null"), rows))
    return "".join(parts)


if __name__ == "__main__":
    folder = ROOT / "docs/reference"
    folder.mkdir(exist_ok=True)
    for name, text in pages().items():
        (folder / name).write_text(text, encoding="utf-8")
