"""Claims on the clocks of kernels (the paper's section 6, its Table 1): which kernels take which clocks."""

from kernel_dvfs.report import validation
from kernel_dvfs.report.claims import evidence
from kernel_dvfs.report.claims.claim import Finding, NotTestable, change, claim, count, mhz, percent, span

# A kernel's change of time is real beyond this: two points of one pair scatter by 0.3 % of campaign offset
# each.
BEYOND_SCATTER_PERCENT = 0.5
# "Differ strongly": clocks that are further apart than one step of the paper's grid among all kernels.
STRONGLY_MHZ = 210
# "Prefer": four kernels in five of those that lower a clock at all.
MOST_SHARE = 0.8


@claim(
    10,
    "Best clocks differ strongly between kernels, even between GEMMs; some save energy and time",
    "6",
)
def clocks_differ(results) -> Finding:
    rows = evidence.strict(results)
    gemm = rows[rows.kind == "gemm"]
    both, of = _save_both(results, rows)
    ours = [_spread("all kernels", rows)]
    differ = _differ(rows)
    if len(gemm):
        ours.append(_spread("GEMMs", gemm))
        differ &= _differ(gemm)
    else:
        ours.append("which of them are GEMMs is not known")
    ours.append(f"{count(len(both), 'kernel')} save energy and time ({of})")
    why = "in Table 1 (kernel_clocks), by the clocks that ran (profile), "
    if len(both):
        why += f"those that save both change time by {span(both.time_change)}"
        if both.lower_mem.any():
            why += f", {both.lower_mem.sum()} at a lower memory clock{evidence.power_left(both)}"
    else:
        why += "auto is already as fast as any pair that saves energy"
    return Finding("; ".join(ours), bool(differ and len(both)), why)


def _spread(name: str, rows) -> str:
    clocks = {(round(row.core), row.mem if row.mem == row.mem else 0) for row in rows.itertuples()}
    return f"{name}: {count(len(clocks), 'pair')} that ran, core {mhz(rows.core)}"


def _differ(rows) -> bool:
    return rows.core.max() - rows.core.min() > STRONGLY_MHZ or (
        rows.lower_mem.nunique() > 1 and rows.core.nunique() > 1
    )


def _save_both(results, rows):
    """Kernels of the strict choice that save energy and time beyond scatter, and by which data."""
    try:
        again = validation.kernel_changes(evidence.validation(results))
    except NotTestable:
        return rows[(rows.time_change < -BEYOND_SCATTER_PERCENT) & (rows.energy_change < 0)], "claimed"
    names = [
        name
        for name, (time, energy) in again.items()
        if time.mean < -BEYOND_SCATTER_PERCENT and time.high < 0 and energy.high < 0
    ]
    both = rows.loc[[name for name in rows.index if name in names]].copy()
    both["time_change"] = [again[name][0].mean for name in both.index]
    return both, "fresh"


@claim(11, "Kernels prefer a lower memory clock or a lower core clock, not both", "6")
def one_or_the_other(results) -> Finding:
    rows = evidence.strict(results)
    if not rows.lower_mem.any() and len(evidence.memory_clocks(results)) < 2:
        raise NotTestable("this GPU was measured at one memory clock only; measure more")
    time = rows.launches_per_iteration * rows.auto_time_s
    kinds = {
        "lower memory only": rows.lower_mem & ~rows.lower_core,
        "lower core only": rows.lower_core & ~rows.lower_mem,
        "both": rows.lower_core & rows.lower_mem,
        "neither": ~rows.lower_core & ~rows.lower_mem,
    }
    parts = [f"{name}: {member.sum()}" for name, member in kinds.items()]
    both = kinds["both"]
    names = evidence.labels(results)
    why = "in Table 1 (kernel_clocks) against the clocks that auto ran at"
    if both.any():
        shown = ", ".join(
            f"{names.get(name, name)} {row.core:.0f}/{row.mem:.0f} MHz" for name, row in rows[both].head(6).iterrows()
        )
        why += (
            f", both are lower for {shown}{' and others' if both.sum() > 6 else ''}"
            f" ({100 * time[both].sum() / time.sum():.1f} % of auto's time)"
        )
    else:
        why += ", a kernel bound by the core gives up memory clock, one bound by memory gives up core clock"
    one = (kinds["lower memory only"] | kinds["lower core only"]).sum()
    any_ = len(rows) - kinds["neither"].sum()
    return Finding(f"{', '.join(parts)} of {len(rows)} kernels", bool(any_ and one >= MOST_SHARE * any_), why)


@claim(12, "Table 1 holds pairs that lose time, since the choice is global", "6")
def some_lose_time(results) -> Finding:
    rows = evidence.strict(results)
    slower = rows[rows.time_change > BEYOND_SCATTER_PERCENT]
    total = evidence.schedule(results, evidence.STRICT)
    names = evidence.labels(results)
    if slower.empty:
        ours = "no kernel loses time"
        why = "in Table 1 (kernel_clocks) no kernel pays with time for another's gain"
    else:
        most = slower.loc[slower.time_change.idxmax()]
        ours = (
            f"{len(slower)} of {len(rows)} kernels lose time, {span(slower.time_change)}; all together:"
            f" {change(total['time_change_percent'], total['energy_change_percent'])}"
        )
        why = (
            f"in Table 1 (kernel_clocks) the most is lost by {names.get(most.name, most.name)}"
            f" ({change(most.time_change, most.energy_change)}); {int((rows.time_change < 0).sum())} kernels"
            f" that gain time ({percent(float(rows.time_change.min()))} at best) pay for it, which only a"
            " global limit allows"
        )
    return Finding(ours, len(slower) > 0, why)


CLAIMS = (clocks_differ, one_or_the_other, some_lose_time)
