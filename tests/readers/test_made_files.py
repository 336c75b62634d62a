"""Whatever file is brought, its reader returns, or refuses it in one line; at night 20,000 with fresh seeds.

What each costs, experiments/benchmarks/robustness.py counts (`budgets`).
"""

import traceback
import zlib

import pytest
from made_files import FILES, drawn

from kernel_dvfs_clocks.errors import InputError


def failures(kind, seeds, folder):
    """[(seed, what went wrong)] of reading files of a kind."""
    name, _, read = FILES[kind]
    wrong = []
    for seed in seeds:
        path = folder / name
        path.write_bytes(drawn(kind, seed))
        try:
            read(path)
        except InputError as error:
            if "\n" in str(error) or not str(error):
                wrong.append((seed, str(error)))
        except Exception:
            wrong.append((seed, traceback.format_exc(limit=-3)))
    return wrong


def seeds_of(fuzz_seed, kind, number):
    first = zlib.crc32(f"{fuzz_seed} {kind}".encode())
    return [[first, place] for place in range(number)]


@pytest.mark.slow
@pytest.mark.parametrize("kind", FILES)
def test_a_file_is_read_or_refused_in_one_line(kind, tmp_path, fuzz_seed):
    assert not failures(kind, seeds_of(fuzz_seed, kind, 12), tmp_path)


@pytest.mark.nightly
@pytest.mark.parametrize("kind", FILES)
def test_of_twenty_thousand_files_each_is_read_or_refused_in_one_line(kind, tmp_path, fuzz_seed):
    assert not failures(kind, seeds_of(f"night {fuzz_seed}", kind, 1 + 20_000 // len(FILES)), tmp_path)
