"""What is measured beyond a sweep: propose, measure, pool, and propose again until nothing is left to ask for.

First the configured search, if it is not exhaustive, then refinement, then the check. Each round is a function of the
records so far, and a record that is there is never measured twice: a loop that was killed goes on where it stopped and
ends with the same file. Records that no round of this loop asks for are ignored, and none is removed.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from kernel_dvfs.errors import InputError
from kernel_dvfs.gpu.clocks import Pair, parse
from kernel_dvfs.measurement import job, request
from kernel_dvfs.measurement import setup as setups
from kernel_dvfs.measurement.campaign import new_session, of_repeat, open_bench, ordered_points
from kernel_dvfs.measurement.request import Request
from kernel_dvfs.measurement.target import Target
from kernel_dvfs.profile.aggregate import columns
from kernel_dvfs.profile.records import Records
from kernel_dvfs.search import refine, search_file
from kernel_dvfs.search.candidates import Context
from kernel_dvfs.search.search_file import Round, Search

SEARCH, REFINE, CHECK = search_file.STAGES
# search -> module with propose(profile_rows, context, round_number), and estimate(profile_rows, context) of what is
# left unfound; exhaustive asks for the whole grid at once
SEARCHES = {"guided": "kernel_dvfs.search.guided"}
_OPTIONS = ("search", "pairs", "auto_repeats", "slacks_percent", "ties", "refine")


def run(
    setup_path: str, folder: str, options: Mapping[str, Any], output: str, kernels: str = "", token: str = ""
) -> Search:
    """Measure what the search and the refinement ask for, and write what that was to `output` (search_file).

    setup_path: the setup's file. folder: the records, kernel/ and pass/. options: search, pairs (labels of the grid),
    auto_repeats, slacks_percent, ties, refine and the search's own, as in the configuration. kernels: SHA-256 of the
    library whose kernels run now on a real GPU: records of another build are measured again. token: kept in the file.
    One line a round on stderr. Raises InputError naming a record that is damaged or foreign.
    """
    options = dict(options)
    needed = [*_OPTIONS, *([options["search"]] if options.get("search") in SEARCHES else [])]
    for name in needed:
        if name not in options:
            raise InputError(f"search: option {name} is missing; give all of {', '.join(needed)}")
    study = _Study(setup_path, folder, options, kernels)
    exhaustive = options["search"] not in SEARCHES
    known = request.sweep(study.setup, study.pairs, options["auto_repeats"]) if exhaustive else []
    missing = study.missing(known)
    if missing:
        print(f"sweep: {_many(len(missing), 'point')} to measure", file=sys.stderr, flush=True)
        study.measure(missing)
    rounds: list[Round] = []
    while not rounds or rounds[-1].requests:
        rows = columns(study.setup, known, options["auto_repeats"], study.records.points)
        rounds.append(_next_round(study, rows, known, rounds))
        sessions = [study.missing(each) for each in _sessions(rounds[-1])]
        print(_line(rounds, sum(map(len, sessions))), file=sys.stderr, flush=True)
        for missing in filter(None, sessions):
            if rounds[-1].stage != SEARCH:
                new_session(study.setup, setup_path)
            study.measure(missing)
        known += rounds[-1].requests
    found = Search(study.setup.digest, options, rounds, study.records.checksums, token)
    search_file.write(output, found)
    return found


class _Study:
    """What is measured: the GPU's benches and the records so far."""

    def __init__(self, setup_path: str, folder: str, options: dict[str, Any], kernels: str):
        self.setup = setups.read(setup_path)
        self.options = options
        self.pairs = [parse(label, "-") for label in options["pairs"].split(",")]
        self.records = Records(self.setup, folder)
        self._path, self._folder, self._kernels = setup_path, folder, kernels
        # opening a simulated GPU takes as long as some twenty points
        self._benches: dict[Target, Any] = {}
        swept = ordered_points(self.pairs, options["auto_repeats"], self.setup.measurement["seed"])
        self._place = {point: place for place, point in enumerate(swept)}

    def missing(self, requests: list[Request]) -> list[tuple[Target, Pair, int]]:
        """(target, pair, repeat) of what has no usable record yet, in the order in which it is best measured."""
        points = [
            (Target(each.kind, each.target), Pair(each.core_mhz, each.mem_mhz), repeat)
            for each in requests
            for repeat in each.repeats
        ]
        wanted = [each for each in points if not self.records.has(*each, self._kernels)]
        # one pair after the other, so that a real GPU's clocks change least: a sweep's points as a sweep has them, then
        # what is measured again
        later = len(self._place)
        return sorted(wanted, key=lambda each: self._place.get(each[1:], later + self.pairs.index(each[1])))

    def measure(self, points: list[tuple[Target, Pair, int]]) -> None:
        """Measure points into their records, as jobs would."""
        for target, pair, repeat in points:
            if target not in self._benches:
                self._benches[target] = open_bench(self.setup, self._path, target)
            path = f"{self._folder}/{request.path(Request(*target, *pair, ()), repeat)}"
            campaign = of_repeat(pair, repeat, self.options["auto_repeats"])
            job.measure(self.setup, self._path, target, pair, campaign, repeat, path, self._benches[target])


def _next_round(study: _Study, rows: Mapping[str, list], known: list[Request], before: list[Round]) -> Round:
    """The round that follows from the profile so far (`rows`), of all `known` requests; without requests: the last."""
    options = study.options

    def context(own: Mapping[str, Any]) -> Context:
        known = options["auto_repeats"], options["slacks_percent"], options["ties"]
        return Context(study.setup, study.pairs, *known, weights=None, options=own)

    about: dict[str, Any] = {}
    if options["search"] in SEARCHES and all(each.stage == SEARCH for each in before):
        search, own = import_module(SEARCHES[options["search"]]), context(options[options["search"]])
        requests = search.propose(rows, own, len(before) + 1)
        if requests:
            return Round(SEARCH, requests, {})
        about["estimate"] = search.estimate(rows, own)
    own, asked = context(options["refine"]), request.merged(known)
    if not own.options["rounds"] or any(each.stage == CHECK for each in before):
        return Round(CHECK, [], about)
    requests, proposed = refine.propose(rows, own, asked, sum(each.stage == REFINE for each in before))
    about |= proposed
    if requests:
        return Round(REFINE, requests, about)
    requests, about["stay"] = refine.check(rows, own, asked)
    return Round(CHECK, requests, about)


def _sessions(found: Round) -> list[list[Request]]:
    """A round's requests by the session that they belong to: in a check each of their repeats is one of its own."""
    if found.stage != CHECK:
        return [found.requests]
    count = max((len(each.repeats) for each in found.requests), default=0)
    return [
        [each._replace(repeats=each.repeats[number : number + 1]) for each in found.requests] for number in range(count)
    ]


def _line(rounds: list[Round], missing: int) -> str:
    """What the last round asks for, for the user. missing: points without a record yet."""
    last = rounds[-1]
    own = [each for each in rounds if each.stage == last.stage]
    asked = sum(len(each.repeats) for each in last.requests)
    number = "" if last.stage == CHECK else f"round {len(own)}: "
    if not asked:
        what = f"ended after {_many(sum(each.stage == REFINE for each in rounds), 'round')} of refinement"
    elif not missing:
        what = f"{number}{_many(asked, 'point')}, all measured before"
    else:
        what = f"{number}{_many(missing, 'point')} to measure"
        what += f" ({asked - missing} more were measured before)" if missing < asked else ""
    choices = [each.about["choice"] for each in rounds if "choice" in each.about]
    changed = f", {_changed(*choices[-2:])}" if len(choices) > 1 and "choice" in last.about else ""
    return f"{last.stage}: {what}{changed}"


def _changed(before: dict[str, dict], after: dict[str, dict]) -> str:
    """For how many kernels and passes another pair is chosen, in words. before, after: choices of search.refine."""
    changed: dict[str, set[str]] = {}
    for name in before.keys() | after.keys():
        old, new = before.get(name, {}), after.get(name, {})
        different = {each for each in old.keys() | new.keys() if old.get(each) != new.get(each)}
        changed.setdefault(name.partition("-")[0], set()).update(different)
    parts = [_many(len(changed.get(kind, ())), kind) for kind in ("kernel", "pass") if changed.get(kind)]
    return f"the choice changed for {' and '.join(parts)}" if parts else "the choice stayed as it was"


def _many(count: int, what: str) -> str:
    plural = "" if count == 1 else "es" if what.endswith("s") else "s"
    return f"{count} {what}{plural}"
