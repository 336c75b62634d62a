"""Thousands of damaged tables: each is refused in one line, or becomes a profile that reads back as one.

`--fuzz N` sets how many.
"""

import math
import random
import time
import traceback

from kernel_dvfs.profile.store import read_profile
from kernel_dvfs.profile.table import import_to_profile
from kernel_dvfs_clocks.errors import InputError

LIMIT_S = 20  # of CPU time
HEAD = "kernel,core_mhz,mem_mhz,time_us,energy_uj,is_reference"
CELLS = (
    "",
    " ",
    "0",
    "-1",
    "1e999",
    "1e300",
    "1e-300",
    "nan",
    "inf",
    "auto",
    "x",
    "9" * 40,
    "1,5",
    '"',
    '"a',
    "é",
    "\x1b[2J",
)
CELLS += ("true", "1e15", "0.0001", "1500 MHz", "٣", "None", "=1+1", "a;b", "\t", "1500.0", "1_500")


def whole():
    rows = [HEAD]
    for kernel in ("gemm", "gelu", "softmax"):
        for core in (900, 1200, 1500):
            for mem in (5001, 9251):
                energy = 10_000 * core / 900 + mem
                rows.append(f"{kernel},{core},{mem},{150_000 / core},{energy},{int((core, mem) == (1500, 9251))}")
    return "\n".join(rows) + "\n"


def damaged(text, rng):
    """The bytes of a table with one to three damages."""
    rows = [row.split(",") for row in text.splitlines()]
    for _ in range(rng.choice([1, 1, 2, 3])):
        row = rng.randrange(len(rows))
        how = rng.choice(["cell", "cell", "cell", "unit", "drop", "copy", "more", "less", "head", "column"])
        if how == "cell":
            rows[row][rng.randrange(len(rows[row]))] = rng.choice(CELLS)
        elif how == "unit":
            column, factor = rng.choice([1, 2, 3, 4]), rng.choice([1000, 1e-3, 1e6, -1, 0])
            for own in rows[1:]:
                if column < len(own) and own[column].replace(".", "").isdecimal():
                    own[column] = str(float(own[column]) * factor)
        elif how == "drop" and len(rows) > 1:
            del rows[row]
        elif how == "copy":
            rows.insert(row, list(rows[rng.randrange(len(rows))]))
        elif how == "more":
            rows[row].append(rng.choice(CELLS))
        elif how == "less" and rows[row]:
            rows[row].pop()
        elif how == "head":
            rows[0][rng.randrange(len(rows[0]))] = rng.choice(
                ("", "time_s", "kernel", "time_us", "power_w", "mem_mhz", "é")
            )
        elif how == "column":
            place = rng.randrange(len(rows[0]))
            rows = [[*own[:place], *own[place + 1 :]] for own in rows]
        rows = [own for own in rows if own] or [[""]]
    data = bytearray("\n".join(map(",".join, rows)).encode())
    if data and rng.random() < 0.15:
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    if rng.random() < 0.05:
        del data[rng.randrange(len(data) + 1) :]
    return bytes(data)


def test_many_tables_are_refused_in_one_line_or_become_a_profile(tmp_path, fuzz, fuzz_seed):
    rng, text, failed, accepted, slowest_s = random.Random("tables" + fuzz_seed), whole(), [], 0, 0.0
    table, profile = tmp_path / "t.csv", tmp_path / "p.parquet"
    table.write_text(text)
    import_to_profile(str(table), str(profile))
    for number in range(fuzz):
        data, began_s = damaged(text, rng), time.process_time()
        table.write_bytes(data)
        profile.unlink(missing_ok=True)
        try:
            import_to_profile(str(table), str(profile))
            rows, _, _ = read_profile(profile)
            accepted += 1
            for name in ("time_s", "energy_j"):
                assert all(math.isfinite(value) and value > 0 for value in rows[name].to_pylist()), name
        except InputError as error:
            assert str(error).isprintable() and not profile.exists(), str(error)
        except Exception:
            failed.append(f"{number}: {data!r}\n{traceback.format_exc(limit=-3)}")
        slowest_s = max(slowest_s, time.process_time() - began_s)
    print(f"{fuzz} tables: {accepted} accepted, slowest {slowest_s:.1f} s, {len(failed)} failed")
    assert not failed, f"{len(failed)} of {fuzz}\n" + "\n".join(failed[:10])
    assert slowest_s < LIMIT_S and 0.02 * fuzz < accepted < 0.8 * fuzz
