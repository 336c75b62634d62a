"""What is measured beyond a sweep: propose, measure, pool, and propose again until nothing is left to ask for.

First the configured search, if it is not exhaustive, then the race, then the walk (race.py). Each round is a function
of the records so far, and a record that is there is never measured twice: a loop that was killed goes on where it
stopped and ends with the same file. Records that no round of this loop asks for are ignored, and none is removed.
Records of the walk are files like all others, but no profile is pooled from them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from typing import Annotated, Any, Literal, NotRequired, TypeAlias, TypedDict, TypeVar

import numpy as np

from kernel_dvfs.choice.from_profile import problem_of
from kernel_dvfs.choice.problem import Problem
from kernel_dvfs.choice.schedule_file import Over, Walked
from kernel_dvfs.errors import InputError
from kernel_dvfs.gpu.clocks import Pair, clock_of, key_of, label, parse, supported_core_mhz
from kernel_dvfs.measurement import job, request
from kernel_dvfs.measurement import setup as setups
from kernel_dvfs.measurement.campaign import new_session, of_repeat, open_bench, ordered_points
from kernel_dvfs.measurement.point import QUANTITIES, usual_s
from kernel_dvfs.measurement.request import Request
from kernel_dvfs.measurement.target import Target
from kernel_dvfs.profile.aggregate import columns, usable
from kernel_dvfs.profile.records import Records
from kernel_dvfs.search import race, search_file
from kernel_dvfs.search.candidates import Context
from kernel_dvfs.search.search_file import RACE, SEARCH, WALK, Round, Search, name_of
from kernel_dvfs.shape import FILLED, AtLeastOne, Count, NotNegative, Positive, Text, checked

# search -> module with propose(profile_rows, context, round_number), and estimate(profile_rows, context) of what is
# left unfound; exhaustive asks for the whole grid at once
SEARCHES = {"guided": "kernel_dvfs.search.guided"}
# {(kind, target): {Pair: [repeats]}}, of all that was asked for
_Asked: TypeAlias = dict[tuple[str, str], dict[Pair, list[int]]]
T = TypeVar("T")


class _Refine(TypedDict):
    windows: Count | None
    hours: NotNegative | None
    over_percent: Over


class _Guided(TypedDict):
    threshold_percent: Positive
    budget_percent: Positive
    auto_repeats: AtLeastOne
    probes: AtLeastOne | None
    draws: AtLeastOne
    passes: bool


class _Options(TypedDict):
    search: Literal["exhaustive", "guided"]
    pairs: Text
    auto_repeats: AtLeastOne
    limits_percent: Annotated[list[NotNegative], FILLED]
    ties: Literal["tied", "untied"]
    refine: _Refine
    guided: NotRequired[_Guided]


def to_stderr(line: str) -> None:
    """Tell a line of progress at once."""
    print(line, file=sys.stderr, flush=True)


def run(
    setup_path: str,
    folder: str,
    options: Mapping[str, Any],
    output: str,
    kernels: str = "",
    token: str = "",
    say: Callable[[str], None] = to_stderr,
) -> Search:
    """Measure what search, race and walk ask for, and write what that was to `output` (search_file).

    setup_path: the setup's file. folder: the records, kernel/ and pass/. options: search, pairs (labels of the grid),
    auto_repeats, limits_percent, ties, refine and the search's own, as in the configuration. kernels: SHA-256 of the
    library whose kernels run now on a real GPU: records of another build are measured again. token: kept in the file.
    say: told a line a round, and a line a limit at the end. Raises InputError naming a record that is damaged or
    foreign.
    """
    options = _checked(dict(options))
    study = _Study(setup_path, folder, options, kernels)
    exhaustive = options["search"] not in SEARCHES
    if study.budget and (options if exhaustive else options[options["search"]])["auto_repeats"] < 2:
        raise InputError("search: auto_repeats is 1, which shows no scatter to race and walk by; allowed: 2 or more")
    known = request.sweep(study.setup, study.pairs, options["auto_repeats"]) if exhaustive else []
    missing = study.missing(known)
    if missing:
        say(f"sweep: {_many(len(missing), 'point')} to measure")
        study.measure(missing)
    rounds: list[Round] = []
    walk: _Walk | None = None
    while not rounds or rounds[-1].requests:
        if walk is None:
            rows = columns(study.setup, known, options["auto_repeats"], study.records.points)
            found = _next_round(study, rows, known, rounds)
        rounds.append(found.next_round() if isinstance(found, _Walk) else found)
        walk = found if isinstance(found, _Walk) else None
        sessions = [study.missing(each) for each in _sessions(rounds[-1])]
        say(_line(rounds, sum(map(len, sessions))))
        for number, missing in enumerate(filter(None, sessions)):
            if rounds[-1].stage != SEARCH:
                new_session(study.setup, setup_path, is_warm=number > 0)
            study.measure(missing)
        known += rounds[-1].requests if walk is None else []
    walks = walk.shown() if walk else {}
    for name, each in walks.items():
        say(_shown(name, each))
    done = Search(study.setup.digest, options, rounds, study.records.checksums, token, walks)
    search_file.write(output, done)
    return done


def _checked(options: dict[str, Any]) -> dict[str, Any]:
    remedy = "give search, pairs, auto_repeats, limits_percent, ties, refine and the search's own, as in config.yaml"
    checked(options, _Options, "search: options", remedy)
    if options["search"] in SEARCHES and options["search"] not in options:
        raise InputError(f"search: options: {options['search']} is missing; {remedy}")
    if (options["refine"]["windows"] is None) == (options["refine"]["hours"] is None):
        raise InputError("search: options: refine needs windows or hours, the other one null (0: off)")
    return options


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
        return sorted(wanted, key=lambda each: (self._place.get(each[1:], later), label(each[1])))

    def measure(self, points: list[tuple[Target, Pair, int]]) -> None:
        """Measure points into their records, as jobs would."""
        for target, pair, repeat in points:
            if target not in self._benches:
                self._benches[target] = open_bench(self.setup, self._path, target)
            path = f"{self._folder}/{request.path(Request(*target, *pair, ()), repeat)}"
            campaign = of_repeat(pair, repeat, self.options["auto_repeats"])
            job.measure(self.setup, self._path, target, pair, campaign, repeat, path, self._benches[target])

    @property
    def limits(self) -> list[float]:
        """The time limits that are chosen for, percent of the baseline's time, ascending."""
        return sorted(self.options["limits_percent"])

    @property
    def slacks(self) -> list[float]:
        """The same as fractions."""
        return [limit / 100 for limit in self.limits]

    @property
    def over(self) -> float:
        """The chance, at most, that a choice is over its limit."""
        return float(self.options["refine"]["over_percent"]) / 100

    @property
    def points_an_hour(self) -> float:
        return 3600 / usual_s(self.setup.measurement)

    @property
    def budget(self) -> int:
        """Points that race and walk may measure; 0: there are none, however little was given."""
        refine = self.options["refine"]
        if refine["hours"] is None:
            points = refine["windows"] / self.setup.measurement["windows"]
        else:
            points = refine["hours"] * self.points_an_hour
        return max(int(points), 1) if points else 0

    def launches(self, granularity: str) -> dict[str, float]:
        """{target: launches in an iteration}; a pass is one."""
        targets = self.setup.targets[granularity]
        return {name: own["launches_per_iteration"] if granularity == "kernel" else 1 for name, own in targets.items()}

    def supported(self, mem_mhz: float | None) -> list[int]:
        """Core clocks that the GPU supports at a memory clock (None: at the governor's), MHz."""
        gpu = self.setup.gpu
        clocks = gpu["spec"]["clocks"] if gpu["kind"] == "simulated" else gpu["clocks"]
        return supported_core_mhz(clocks, clock_of(mem_mhz))

    def outlooks(self, granularity: str, known: race.Estimate) -> dict[str, race.Outlook]:
        """{name of a limit: what may still be saved there}."""
        seed = self.setup.measurement["seed"]
        return {
            name_of(granularity, limit): race.outlook(known, slack, seed)
            for limit, slack in zip(self.limits, self.slacks)
        }


def _next_round(study: _Study, rows: Mapping[str, list], known: list[Request], before: list[Round]) -> Round | _Walk:
    """What follows from the profile so far (`rows`), of all `known` requests: a round, or the walk."""
    options, about = study.options, {}
    if options["search"] in SEARCHES and all(each.stage == SEARCH for each in before):
        search = import_module(SEARCHES[options["search"]])
        asked = options["auto_repeats"], [*study.limits], options["ties"]
        context = Context(study.setup, study.pairs, *asked, weights=None, options=options[options["search"]])
        requests = search.propose(rows, context, len(before) + 1)
        if requests:
            return Round(SEARCH, requests, {})
        about = {"estimate": search.estimate(rows, context)}
    if not study.budget:
        return Round(SEARCH, [], about)
    found = _race_round(study, rows, request.merged(known), [each for each in before if each.stage == RACE])
    return replace(found, about=found.about | about) if isinstance(found, Round) else found


def _race_round(study: _Study, rows: Mapping[str, list], asked: _Asked, before: list[Round]) -> Round | _Walk:
    """The next block of the race; the walk where racing on would gain no more than walking further."""
    requests: dict[str, list[Request]] = {}
    between: dict[str, list[Request]] = {}
    estimates: dict[str, race.Estimate] = {}
    for granularity, problem in _problems(rows, study.options["ties"]):
        known = estimates[granularity] = race.estimate(problem, max(study.slacks))
        draw = np.random.default_rng([study.setup.measurement["seed"], len(before)])
        wanted = race.picks(known, study.slacks, draw)
        requests[granularity] = _requests(granularity, problem, wanted, race.per_block(problem), asked)
        # of every target, so that each has every pair
        own = known.problem, race.chosen(known.problem, study.slacks), study.supported
        new = race.at_auto(*own, _reached_mhz(rows, granularity, problem)) + race.halfway(*own)
        between[granularity] = [
            Request(granularity, name, *_pair(key), (0,))
            for key in dict.fromkeys(new)
            for names in problem.members
            for name in names
        ]
    # a block of the walk costs about as much
    cost, spent = sum(map(_points, requests.values())), sum(_points(each.requests) for each in before)
    blocks = (study.budget - spent - cost) / cost
    more = study.points_an_hour / cost
    outlooks = {name: study.outlooks(name, known) for name, known in estimates.items()}
    left = {
        name: {limit: each.left(blocks, more, study.over) for limit, each in own.items()}
        for name, own in outlooks.items()
    }
    racing = [name for name, own in left.items() if race.races_on(own.values(), spent, cost, study.budget)]
    if not racing:
        return _Walk(study, estimates, _flat(outlooks), asked, spent)
    block = [each for name in racing for each in requests[name] + between[name]]
    return Round(RACE, block, {"left": _flat(left)})


class _Walk:
    """The walk: fresh blocks of the baseline and of paths whose schedules are fixed before it begins."""

    def __init__(
        self,
        study: _Study,
        estimates: dict[str, race.Estimate],
        outlooks: dict[str, race.Outlook],
        asked: _Asked,
        spent: int,
    ):
        self._study, self._estimates, self._outlooks = study, estimates, outlooks
        self._asked = {target: dict(pairs) for target, pairs in asked.items()}
        self._paths = {name: race.path(known, study.slacks) for name, known in estimates.items()}
        self._blocks: list[list[Request]] = []
        cost = max(1, _points(self._next_block()))
        self._most = max(race.LEAST_BLOCKS, (study.budget - spent) // cost)
        self._more = study.points_an_hour / cost

    def next_round(self) -> Round:
        """The next block; without requests where the budget is spent or little is left to gain."""
        left, blocks, over = self._left(), len(self._blocks), self._study.over
        shown = blocks >= race.LEAST_BLOCKS and all(each.is_shown(blocks, over) for each in self._outlooks.values())
        requests = [] if shown or blocks >= self._most else self._next_block()
        if requests:
            self._blocks.append(requests)
            for each in requests:
                self._asked[each.kind, each.target][Pair(each.core_mhz, each.mem_mhz)] = list(each.repeats)
        return Round(WALK, requests, {"left": left})

    def shown(self) -> dict[str, Walked]:
        """{name of a limit: what the walk has shown for it}."""
        found: dict[str, Walked] = {}
        left = self._left()
        for granularity, known in self._estimates.items():
            path = self._paths[granularity]
            time, energy = self._changes(granularity)
            for limit in self._study.limits:
                passed = race.passed(time, energy, limit, self._study.over) if self._blocks else 0
                place = passed - 1
                option = path[place] if passed else known.problem.baseline
                blocks = len(self._blocks)
                changes = energy[:, place] if passed else np.zeros(max(2, blocks))
                name = name_of(granularity, limit)
                found[name] = {
                    "schedules": len(path),
                    "passed": passed,
                    "pairs": _pairs(known.problem, option),
                    "time_percent": (time[:, place] if passed else np.zeros(blocks)).tolist(),
                    "energy_percent": float(changes.mean()),
                    "energy_se_percent": float(changes.std(ddof=1) / np.sqrt(len(changes))),
                    "over_percent": self._study.options["refine"]["over_percent"],
                    "another_minute": left[name]["another_hour"] / 60,
                }
        return found

    def _next_block(self) -> list[Request]:
        requests = []
        for granularity, path in self._paths.items():
            problem = self._estimates[granularity].problem
            wanted = race.compared(problem, path)
            requests += _requests(granularity, problem, wanted, race.per_block(problem), self._asked)
        return requests

    def _left(self) -> dict[str, race.Left]:
        blocks = len(self._blocks)
        return {name: each.left(blocks, self._more, self._study.over) for name, each in self._outlooks.items()}

    def _changes(self, granularity: str) -> tuple[np.ndarray, np.ndarray]:
        """(time, energy), (B, J) each: change of every schedule of a path in every block, percent of the baseline."""
        problem, path = self._estimates[granularity].problem, self._paths[granularity]
        row = {name: target for target, names in enumerate(problem.members) for name in names}
        place = {
            (target, problem.keys[key]): option for option, (target, key) in enumerate(zip(problem.target, problem.key))
        }
        launches = self._study.launches(granularity)
        totals = np.zeros((2, len(self._blocks), len(problem.time)))
        for number, block in enumerate(self._blocks):
            for each in (each for each in block if each.kind == granularity):
                pair = Pair(each.core_mhz, each.mem_mhz)
                point = self._study.records.points(Target(each.kind, each.target))
                points = [("", found) for repeat in each.repeats if (found := point(pair, repeat)) is not None]
                option = place[row[each.target], key_of(pair)]
                for quantity, field in enumerate(QUANTITIES):
                    values = [found["summary"][field] for _, found in usable(points)]
                    totals[quantity, number, option] += launches[each.target] * sum(values) / len(values)
        baselines = problem.baseline_time * 1e6, problem.baseline_energy * 1e3
        time, energy = (
            100 * (own[:, path] - own[:, problem.baseline][:, None]).sum(2) / whole
            for own, whole in zip(totals, baselines)
        )
        return time, energy


def _flat(by_granularity: dict[str, dict[str, T]]) -> dict[str, T]:
    """The same by the limits' names alone."""
    return {name: each for own in by_granularity.values() for name, each in own.items()}


def _problems(rows: Mapping[str, list], ties: str) -> list[tuple[str, Problem]]:
    # a captured step as a whole is measured, but nothing is chosen for it
    return [
        (granularity, problem_of(rows, ("core_mhz", "mem_mhz"), granularity, "counts", ties))
        for granularity in sorted({"kernel", "pass"} & set(rows["study"]))
    ]


def _reached_mhz(rows: Mapping[str, list], granularity: str, problem: Problem) -> np.ndarray:
    """(K,) the core clock that each target's first member reached at the baseline."""
    columns = (rows[name] for name in ("study", "target", "is_baseline", "reached_core_mhz"))
    reached = {name: mhz for study, name, is_auto, mhz in zip(*columns) if is_auto and study == granularity}
    return np.array([reached[names[0]] for names in problem.members])


def _requests(
    granularity: str, problem: Problem, wanted: np.ndarray, count: np.ndarray, asked: _Asked
) -> list[Request]:
    """Each of the wanted options (N,) bool as often as `count` (K,) says, at every member of its target."""
    requests = []
    for option in np.flatnonzero(wanted).tolist():
        target, pair = problem.target[option], _pair(problem.keys[problem.key[option]])
        for member in problem.members[target]:
            # a guided search measures one of several identical launches; repeat 0, a sweep's, might be left out
            repeats = asked[granularity, member].get(pair, ())
            first = repeats[-1] + 1 if repeats else 1
            requests.append(Request(granularity, member, *pair, tuple(range(first, first + int(count[target])))))
    return requests


def _sessions(found: Round) -> list[list[Request]]:
    """A round's requests by session. A block has four: what is measured fewer times sits out some of them."""
    if found.stage == SEARCH:
        return [found.requests]
    places: dict[tuple[str, str], int] = {}
    sessions: list[list[Request]] = [[] for _ in range(race.SESSIONS)]
    for each in found.requests:
        place = places.setdefault((each.kind, each.target), len(places))
        every = race.SESSIONS // len(each.repeats)
        for number, repeat in enumerate(each.repeats):
            sessions[number * every + place % every].append(each._replace(repeats=(repeat,)))
    return sessions


def _line(rounds: list[Round], missing: int) -> str:
    """What the last round asks for, for the user. missing: points without a record yet."""
    last = rounds[-1]
    number = sum(each.stage == last.stage for each in rounds)
    asked = _points(last.requests)
    if not asked:
        what = f"ended after {_many(number - 1, 'round' if last.stage == SEARCH else 'block')}"
    elif not missing:
        what = f"{_many(asked, 'point')}, all measured before"
    else:
        what = f"{_many(missing, 'point')} to measure"
        what += f" ({asked - missing} more were measured before)" if missing < asked else ""
    # of kernels, no time lost
    left = next(iter(last.about.get("left", {}).values()), None)
    hope = f"; at most {left['race'] + left['walk']:.2g} points of energy are left to gain" if left else ""
    return f"{last.stage} {number}: {what}{hope}" if asked else f"{last.stage}: {what}{hope}"


def _shown(name: str, walked: Walked) -> str:
    """What a walk has shown for a limit, and what another minute would bring, for the user."""
    blocks = len(walked["time_percent"])
    time = sum(walked["time_percent"]) / max(1, blocks)
    change = f"energy {walked['energy_percent']:+.2f} %, time {time:+.3f} %"
    return (
        f"walk: {name}: {change if walked['passed'] else 'no schedule keeps the limit for sure, all stay at auto'}, "
        f"over {_many(blocks, 'block')}; another minute: at most {walked['another_minute']:.2g} points of energy"
    )


def _points(requests: Sequence[Request]) -> int:
    return sum(len(each.repeats) for each in requests)


def _pairs(problem: Problem, options: np.ndarray) -> dict[str, Any]:
    """{target: [core, mem]} of one option a target, for each of its members."""
    return {
        member: list(_pair(problem.keys[problem.key[option]]))
        for option in options.tolist()
        for member in problem.members[problem.target[option]]
    }


def _pair(key: tuple) -> Pair:
    return Pair(*map(clock_of, key))


def _many(count: int, what: str) -> str:
    plural = "" if count == 1 else "es" if what.endswith("s") else "s"
    return f"{count} {what}{plural}"
