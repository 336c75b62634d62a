"""One verdict a point, at both sides of each border: which clock counts as reached, what held it, what came on top."""

import pytest

from kernel_dvfs.measurement.verdict import held_by, is_reached, judge
from kernel_dvfs_clocks.clocks import AUTO, BASELINE, Pair

CAP = "power cap active"


def window(reasons=(), cap_ns=0, thermal_delta=0):
    """What a verdict reads of a window."""
    return {"reasons": dict.fromkeys(reasons, 0.4), "cap_ns": cap_ns, "thermal_delta": thermal_delta}


QUIET, CAPPED, HOT = window(), window(cap_ns=1), window(thermal_delta=3)


@pytest.mark.parametrize(
    ("request_mhz", "got_mhz", "is_it"),
    [
        # 15 MHz, where that is more than 1 %
        (1230, 1215.0, True),
        (1230, 1214.9, False),
        (1230, 1245.0, True),
        (1230, 1245.1, False),
        # 1 %, where that is more than 15 MHz: 22.01 MHz
        (2201, 2179.0, True),
        (2201, 2178.9, False),
        (2201, 2223.0, True),
        (2201, 2223.1, False),
        (AUTO, 345.0, True),
    ],
)
def test_a_clock_is_reached_within_fifteen_mhz_or_a_percent_of_the_request(request_mhz, got_mhz, is_it):
    assert is_reached(request_mhz, got_mhz) is is_it


CORE_ABOVE = "core clock: asked 1230 MHz, reached 1455 MHz"
CORE_MISSED, MEM_MISSED = "core clock: asked 1230 MHz, reached 1100.5 MHz", "mem clock: asked 405 MHz, reached 810 MHz"


@pytest.mark.parametrize(
    ("pair", "reached", "windows", "expected"),
    [
        (Pair(1230, 405), (1217, 405), [QUIET, QUIET], ("ok", [], None)),
        (Pair(1230, 405), (1100.5, 405), [QUIET], ("not_reached", [CORE_MISSED], None)),
        (Pair(1230, 405), (1230, 810), [QUIET], ("not_reached", [MEM_MISSED], "1230-810")),
        (Pair(1230, 405), (1100.5, 810), [QUIET], ("not_reached", [CORE_MISSED, MEM_MISSED], "1230-810")),
        # one window of several that was held is enough; which clock was missed says what the hold means
        (Pair(1230, 405), (1100.5, 405), [QUIET, CAPPED], ("throttled", [CORE_MISSED, CAP], None)),
        (Pair(1230, 405), (1230, 810), [CAPPED, QUIET], ("not_reached", [MEM_MISSED, CAP], "1230-810")),
        (Pair(1230, 405), (1100.5, 810), [CAPPED], ("throttled", [CORE_MISSED, MEM_MISSED, CAP], "1230-810")),
        # above what was asked for no cap holds it: the lock never took
        (Pair(1230, 405), (1455, 405), [CAPPED], ("not_reached", [CORE_ABOVE, CAP], None)),
        (Pair(1230, 405), (1230, 405), [CAPPED], ("ok", [CAP], None)),
        (Pair(AUTO, 405), (1100.5, 405), [CAPPED], ("ok", [CAP], None)),
        (Pair(AUTO, 405), (1100.5, 810), [CAPPED], ("not_reached", [MEM_MISSED, CAP], "auto-810")),
        (Pair(1230, AUTO), (1100.5, 810), [QUIET], ("not_reached", [CORE_MISSED], None)),
        # nothing was asked for
        (BASELINE, (345, 405), [CAPPED], ("ok", [CAP], None)),
        (BASELINE, (345, 405), [QUIET], ("ok", [], None)),
    ],
)
def test_the_clocks_alone_make_a_point_ok_not_reached_or_throttled(pair, reached, windows, expected):
    assert judge(pair, dict(zip(("core_mhz", "mem_mhz"), reached)), windows) == expected


FAULT, GUEST, WIDE = "energy counter: stood", "1 other process", "the 95 % interval is +-3 %"
OK, MISSED = (1230, 405), (1100.5, 405)


@pytest.mark.parametrize(
    ("reached", "more", "verdict", "reasons"),
    [
        (OK, {"unstable": WIDE}, "unstable", [WIDE]),
        (MISSED, {"unstable": WIDE}, "not_reached", [CORE_MISSED, WIDE]),
        (OK, {"disturbances": [GUEST, "hot"]}, "disturbed", [GUEST, "hot"]),
        (MISSED, {"disturbances": [GUEST], "unstable": WIDE}, "disturbed", [GUEST, CORE_MISSED]),
        (OK, {"counter": FAULT}, "counter", [FAULT]),
        (MISSED, {"counter": FAULT, "disturbances": [GUEST], "unstable": WIDE}, "counter", [FAULT, CORE_MISSED]),
    ],
)
def test_a_broken_counter_outweighs_a_guest_which_outweighs_clocks_which_outweigh_noise(
    reached, more, verdict, reasons
):
    found = judge(Pair(1230, 405), dict(zip(("core_mhz", "mem_mhz"), reached)), [QUIET], **more)
    assert found == (verdict, reasons, None)


@pytest.mark.parametrize(
    ("windows", "words"),
    [
        ([QUIET], []),
        ([CAPPED], [CAP]),
        ([window(["0x4"])], [CAP]),
        ([window(["0x4"], cap_ns=7)], [CAP]),
        ([window(["0x20"]), window(["0x8", "0x1"])], ["hardware slowdown active", "software thermal slowdown active"]),
        ([window(["0x40", "0x80"])], ["hardware thermal slowdown active", "power brake active"]),
        # the driver's counter of heat tells what no sample of the reasons met
        ([QUIET, HOT], ["thermal slowdown active"]),
        ([HOT, CAPPED], [CAP]),
    ],
)
def test_what_held_the_clocks_is_said_once_in_words(windows, words):
    assert held_by(windows) == words
