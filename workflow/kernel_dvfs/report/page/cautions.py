"""What a reader must know before trusting a page: one sentence each, the gravest first."""

from collections import Counter, namedtuple

from kernel_dvfs.report.page.cells import number, signed

Caution = namedtuple("Caution", "grave title text")

_VERDICTS = {
    "disturbed": "another process, a temperature out of its band or a changed power limit: not used for choosing",
    "counter": "the energy counter froze: not used for choosing",
    "unsupported": "the GPU does not know the clock: not used for choosing",
    "unstable": "the energy kept scattering: used, with its scatter",
    "not_reached": "the GPU ran another clock than asked for: used as what the request gives",
    "throttled": "a power cap or heat held the core below the request: used as what the request gives",
}
_GRAVE = ("disturbed", "counter", "unsupported")


def cautions(kind: str, answer, tally, kernels, tensor_energy) -> list:
    """kind: of the GPU. kernels: their tables.Table, tensor_energy: rows of its table as text; None where not made."""
    found = []
    if kind == "simulated":
        found.append(
            Caution(
                True,
                "Simulated GPU",
                "Every number on this page comes from a model of the GPU, not from a board. It fits published "
                "measurements; what it cannot say is in docs/simulated-gpu.md of the project.",
            )
        )
    found += _of_answer(answer, kind)
    found += _of_records(tally)
    found += _of_chosen(kernels)
    found += _of_headline(tensor_energy)
    return sorted(found, key=lambda each: not each.grave)


def _of_answer(answer, kind) -> list:
    if answer is None:
        return []
    if answer.energy.fresh is None:
        why = "a table cannot be measured again" if kind == "table" else "it has not been measured again"
        return [
            Caution(
                True,
                "Claimed only",
                f"The saving is what the data that chose the clocks promise ({why}). Such promises flatter: among "
                "noisy points a choice prefers the lucky ones.",
            )
        ]
    limit = answer.slack_percent or 0
    if answer.verdict == "over":
        text = (
            f"Measured again, the time is {signed(answer.time.fresh)} % where {signed(limit)} % was allowed; the whole "
        )
        return [Caution(True, "Over its time limit", text + "95 % interval lies above the limit.")]
    if answer.verdict == "ambiguous":
        more = f" About {answer.repeats_to_decide} repeats would decide." if answer.repeats_to_decide else ""
        text = f"The 95 % interval of the time holds the limit of {signed(limit)} %.{more}"
        return [Caution(False, "Time limit undecided", text)]
    return []


def _of_records(tally) -> list:
    verdicts = sum((group.verdicts for group in tally.groups), Counter())
    points = sum(verdicts.values())
    found = [
        Caution(verdict in _GRAVE, verdict.replace("_", " ").capitalize(), f"{count} of {points} measurements: {why}.")
        for verdict, why in _VERDICTS.items()
        if (count := verdicts.get(verdict))
    ]
    if tally.broken:
        names = ", ".join(path.name for path in tally.broken[:3]) + (" ..." if len(tally.broken) > 3 else "")
        text = f"{len(tally.broken)} files cannot be read ({names}); kernel-dvfs records finds and deletes them."
        found.append(Caution(True, "Broken records", text))
    if len(tally.setups) > 1:
        text = (
            f"The sweep's records are of {len(tally.setups)} setups ({', '.join(tally.setups)}): settings were changed."
        )
        found.append(Caution(True, "Mixed settings", text))
    return found


def _of_chosen(kernels) -> list:
    """Chosen pairs that are not what the GPU ran."""
    place = {column.name: index for index, column in enumerate(kernels.columns)} if kernels else {}
    if "verdict" not in place:
        return []
    count = sum(row[place["verdict"]].value not in ("ok", "") for row in kernels.rows)
    if not count:
        return []
    of = f"{count} of {len(kernels.rows)} kernels"
    text = f"{of} have a pair that the GPU did not run as asked; the table says what it ran."
    return [Caution(False, "Chosen, but not reached", text)]


def _of_headline(rows) -> list:
    """How far the headline moves with a figure that no measurement fixes."""
    values = [number(row.get("kernel_fresh_energy_change_percent", "")) for row in rows or ()]
    values = [value for value in values if value is not None]
    if len(values) < 2:
        return []
    text = f"Energy {signed(min(values))} to {signed(max(values))} % over the tensor-core energies that the data allow."
    return [Caution(False, "Rests on an inferred figure", text)]
