"""What a change of clocks looked like to a kernel that ran meanwhile, worked out of its stamps.

Every few microseconds the kernel has written down the device's time, the cycles of its multiprocessor, the bytes that
all others have read, and the host's last mark. The pace of cycles is the core clock, that of the bytes follows the
memory clock, and a stretch without a stamp is one in which the kernel stood still.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

TIME, CYCLES, READ, MARK = range(4)  # columns of the stamps: ns, cycles, bytes, the host's number
COUNTED = {"core": CYCLES, "mem": READ}
# a pace is another one where it differs by so many standard deviations of an unchanged one, and by a share of it
_DEVIATIONS = 6.0
_LEAST_SHARE = 0.002
# the shortest stretch is looked at whose pace is known within this share of the change
_KNOWN_SHARE = 0.05
_STRETCHES = (1, 2, 5, 10, 20, 50, 100)  # intervals between stamps
# the last so many ns show where the clock ended up
_END_NS = 20e6
_LEAST_INTERVALS = 3 * _STRETCHES[-1]
# an interval is a gap above this many steps; one whose bytes make less than this share of the usual pace stands still
_GAP_STEPS = 1.5
_STILL_SHARE = 0.1


@dataclass(frozen=True, slots=True)
class QuietStamps:
    """What stamps show while nothing changes."""

    step_s: float  # from stamp to stamp, the middle one
    longest_gap_s: float  # beyond a step
    pace: float  # of the count: cycles, or bytes, per ns
    scatter_share: float  # standard deviation of the pace over one interval, share of it


@dataclass(frozen=True, slots=True)
class StampedChange:
    """A change as the kernel saw it; times count from the request."""

    before: float  # pace before and after it: cycles, or bytes, per ns
    after: float
    first_effect_s: float | None  # None: the pace did not change
    settled_s: float | None
    stall_s: float  # how long the kernel stood still, from the request until it had settled
    longest_stall_s: float  # without a break
    step_s: float  # from stamp to stamp: no time is known better
    is_settled: bool  # whether it had arrived well before the stamps end


def pace(stamps: NDArray[np.int64], domain: str) -> float:
    """Return the cycles (core) or bytes (mem) per ns over all stamps, (n, 4); NaN for fewer than two."""
    if len(stamps) < 2:
        return float("nan")
    first, last = stamps[0], stamps[-1]
    return float((last[COUNTED[domain]] - first[COUNTED[domain]]) / max(1, last[TIME] - first[TIME]))


def quiet(stamps: NDArray[np.int64], domain: str) -> QuietStamps:
    """Return what stamps, (n, 4), show where nothing is asked for. Raises ValueError for too few."""
    time, count = stamps[:, TIME], stamps[:, COUNTED[domain]]
    if len(stamps) <= _LEAST_INTERVALS:
        raise ValueError(f"{len(stamps)} stamps; more than {_LEAST_INTERVALS} are needed")
    steps = np.diff(time)
    step_ns = float(np.median(steps))
    middle, scatter = _middle(_paces(time, count, 1))
    return QuietStamps(1e-9 * step_ns, 1e-9 * float(max(0.0, steps.max() - step_ns)), middle, scatter / middle)


def change_seen(stamps: NDArray[np.int64], mark: int, domain: str) -> StampedChange:
    """Return the change that was asked for when the host set `mark`. Raises ValueError for too few stamps before or
    after.

    stamps: (n, 4), in order. The request lies between the last stamp without the mark and the first one with it; the
    middle of the two is taken.
    """
    time, count = stamps[:, TIME], stamps[:, COUNTED[domain]]
    asked = int(np.searchsorted(stamps[:, MARK], mark))
    if asked < _LEAST_INTERVALS or len(stamps) - asked < _LEAST_INTERVALS:
        raise ValueError(
            f"{asked} stamps before the request and {len(stamps) - asked} after it; {_LEAST_INTERVALS} of each are "
            "needed"
        )
    asked_ns = 0.5 * (time[asked - 1] + time[asked])
    steps = np.diff(time)
    step_ns = float(np.median(steps[: asked - 1]))
    ending = max(asked, int(np.searchsorted(time, time[-1] - _END_NS)))
    for width in _STRETCHES:
        paces = _paces(time, count, width)
        before, before_sd = _middle(paces[: asked - width])
        after, after_sd = _middle(paces[ending - width :])
        if _DEVIATIONS * max(before_sd, after_sd) <= _KNOWN_SHARE * abs(after - before):
            break
    left = np.abs(paces - before) > max(_DEVIATIONS * before_sd, _LEAST_SHARE * before)
    away = np.abs(paces - after) > max(_DEVIATIONS * after_sd, _LEAST_SHARE * after)
    first = int(np.argmax(left[asked - width :])) + asked - width
    if not left[first] or abs(after - before) <= _LEAST_SHARE * before:
        return StampedChange(before, after, None, None, 0.0, 0.0, 1e-9 * step_ns, False)
    # the first stretch that differs does so by its last interval, the last one by its first
    begins = max(asked - 1, first + width - 1)
    ends = max(begins + 1, int(np.flatnonzero(away)[-1]) + 1 if away.any() else 0)
    stalls = _stalls(steps, np.diff(count), step_ns, asked, ends, min(before, after) if domain == "mem" else 0.0)
    return StampedChange(
        before=before,
        after=after,
        first_effect_s=1e-9 * float(max(0.0, time[begins] + 0.5 * min(step_ns, steps[begins]) - asked_ns)),
        settled_s=1e-9 * float(time[ends] - asked_ns),
        stall_s=1e-9 * float(sum(stalls)),
        longest_stall_s=1e-9 * float(max(stalls, default=0.0)),
        step_s=1e-9 * step_ns,
        is_settled=ends < ending,
    )


def _stalls(
    steps: NDArray[np.int64], counted: NDArray[np.int64], step_ns: float, asked: int, ends: int, usual: float
) -> list[float]:
    """Return each stretch of time in which the kernel stood still between the request and its end, ns.

    A gap counts where it is longer than any before the request. usual: the lower pace of the bytes, where the time
    without any counts as well; 0 where it does not.
    """
    least_ns = max(_GAP_STEPS * step_ns, float(steps[: asked - 1].max()))
    stalls, running = [], 0.0
    for place in range(asked - 1, ends):
        still = 0.0
        if usual and counted[place] < _STILL_SHARE * usual * steps[place]:
            still = float(steps[place])
        elif steps[place] > least_ns:
            # it began somewhere within a step
            still = float(steps[place]) - step_ns / 2
        if still:
            running += still
        elif running:
            stalls.append(running)
            running = 0.0
    return [*stalls, running] if running else stalls


def _paces(time: NDArray[np.int64], count: NDArray[np.int64], width: int) -> NDArray[np.float64]:
    """Return the pace over each `width` intervals in a row."""
    return (count[width:] - count[:-width]) / np.maximum(1, time[width:] - time[:-width])


def _middle(values: NDArray[np.float64]) -> tuple[float, float]:
    """Return (median, standard deviation by the median of deviations, which a few outliers do not move)."""
    middle = float(np.median(values))
    return middle, 1.4826 * float(np.median(np.abs(values - middle)))
