"""The table of kernels with what a reader asks next: what each weighs, what it adds, what its clocks really were."""

from kernel_dvfs.layout import STRICT
from kernel_dvfs.report.chosen import is_chosen
from kernel_dvfs.report.page.cells import number
from kernel_dvfs.report.page.tables import Table, table

_LAST = "id"


def kernels(results, rows: list) -> Table:
    """The rows of kernel_clocks, wider by the profile. Raises InputError where that or the schedule is missing."""
    schedule = results.schedule(STRICT)
    # a schedule that weighs otherwise has other totals: shares would not add up to its change
    weighed = {"counts": True, "raw": False}.get(schedule.get("weights"))
    profile = results.profile.query("study == 'kernel'")
    auto = profile[profile.is_baseline].set_index("target")
    chosen = profile[is_chosen(profile, schedule["targets"])].drop_duplicates("target").set_index("target")
    weights = auto.launches_per_iteration if weighed else 1
    shares = {
        f"{quantity}_share_percent": 100 * auto[column] * weights / (auto[column] * weights).sum()
        for quantity, column in (("energy", "energy_j"), ("time", "time_s"))
    }
    wider = []
    for row in rows:
        name, more = row[_LAST], {}
        if weighed is not None and name in auto.index:
            more = {column: repr(float(values[name])) for column, values in shares.items()}
            change = number(row.get("energy_change_percent", ""))
            part = None if change is None else float(more["energy_share_percent"]) * change / 100
            more["part_of_the_saving_pp"] = "" if part is None else repr(part)
        if name in chosen.index:
            ran = chosen.loc[name]
            for column in ("reached_core_mhz", "reached_mem_mhz"):
                more[column] = "" if ran[column] != ran[column] else f"{ran[column]:.0f}"
            more["verdict"] = ran.verdict
        wider.append({key: value for key, value in row.items() if key != _LAST} | more | {_LAST: name})
    return table("kernel_clocks", _even(wider), folds=False)


def _even(rows: list) -> list:
    """All rows with the columns of all, the last one last."""
    columns = [name for name in dict.fromkeys(name for row in rows for name in row) if name != _LAST] + [_LAST]
    return [{name: row.get(name, "") for name in columns} for row in rows]
