"""Which round comes next: the search's own while it asks for more, then refinement, then an empty plan.

Reads records and the plans before; the same files give the same plan.
"""

from importlib import import_module

from kernel_dvfs.gpu.clocks import parse
from kernel_dvfs.measurement import request, round_file
from kernel_dvfs.profile.aggregate import columns_of_records
from kernel_dvfs.search import refine
from kernel_dvfs.search.proposer import Context

SEARCH, REFINE = "search", "refine"
# search -> module with propose(profile_rows, context, round_number), and estimate(profile_rows, context) of what is
# left unfound; exhaustive asks for the whole grid at once
SEARCHES = {"guided": "kernel_dvfs.search.guided"}


def write_next(setup, records: str, earlier: list, options: dict, output: str) -> None:
    """Write the plan of the next round.

    earlier: paths of the plans before, in order. options: search, pairs (labels, of the grid), auto_repeats,
    slacks_percent, ties, refine and the search's own, as in the configuration.
    """
    pairs = [parse(label, "-") for label in options["pairs"].split(",")]
    before = [round_file.read(path) for path in earlier]
    searches = [each for each in before if each["stage"] == SEARCH]
    exhaustive = options["search"] not in SEARCHES
    known = request.sweep(setup, pairs, options["auto_repeats"]) if exhaustive else []
    for each in before:
        known += each["requests"]
    rows = columns_of_records(setup, records, known, options["auto_repeats"])

    def context(own):
        keys = ("auto_repeats", "slacks_percent", "ties")
        return Context(setup, pairs, *(options[key] for key in keys), weights=None, options=own)

    number = len(before) + 1
    about = {}
    if not exhaustive and len(searches) == len(before):
        search, own = import_module(SEARCHES[options["search"]]), context(options[options["search"]])
        requests = search.propose(rows, own, number)
        if requests:
            round_file.write(output, setup, options, number, SEARCH, requests, {})
            return
        about["estimate"] = search.estimate(rows, own)
    history = [each["about"]["choice"] for each in before if each["stage"] == REFINE]
    requests = []
    if options["refine"]["rounds"]:
        asked = request.merged(known)
        requests, about["choice"] = refine.propose(rows, context(options["refine"]), asked, history)
    round_file.write(output, setup, options, number, REFINE, requests, about)
