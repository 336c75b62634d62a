"""What extensions tell the page of a study: how clocks are put to work, and what of them can be set today."""

from __future__ import annotations

from dataclasses import dataclass

from kernel_dvfs.report.page.frontier import Stop


@dataclass(frozen=True, slots=True)
class PageStep:
    """One thing to do."""

    title: str
    text: str
    command: str  # "": none


@dataclass(frozen=True, slots=True)
class Deployment:
    """How to use the chosen clocks."""

    steps: list[PageStep]
    notes: list[str]


@dataclass(frozen=True, slots=True)
class Deployable:
    """What a board can be set to where changes of clocks take time."""

    one: dict[float, Stop]  # {limit in percent: one pair for the run}, as a study has chosen it
    here: dict[float, Stop]  # {limit: the best that changes clocks within the run}
    costs: str  # what a change of clocks takes and costs, and where that is from, in words
