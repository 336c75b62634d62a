"""The page on trust shows the default study as it is kept, to the last digit."""

import csv
import re

from shell_commands import ROOT

PAGE = ROOT / "docs/choosing.md"
KEPT = ROOT / "experiments/results/default_study/headline.csv"


def shown() -> dict[float, list[float]]:
    """{an iteration may take longer by, percent: the other numbers of its row} on the page."""
    _, _, rest = PAGE.read_text("utf-8").partition("| an iteration may take longer by |")
    rows = rest.partition("\n\n")[0].splitlines()[2:]
    numbers = [[float(number) for number in re.findall(r"[-+]?\d+(?:\.\d+)?", row)] for row in rows]
    return {limit: others for limit, *others in numbers}


def kept() -> dict[float, list[float]]:
    """The same in the study."""
    columns = [
        f"{kind}_{what}_{which}_percent"
        for what in ("energy", "time")
        for kind, which in (("claimed", "change"), ("fresh", "change"), ("fresh", "low"), ("fresh", "high"))
    ]
    with KEPT.open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["schedule"].startswith("kernel-global-waste-slack")]
    return {float(row["slack_percent"]): [round(float(row[name]), 2) for name in columns] for row in rows}


def test_it_shows_the_default_study_as_it_is_kept():
    assert shown() == kept()
