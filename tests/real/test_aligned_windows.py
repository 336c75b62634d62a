"""Windows cut at the counter's edges hold the fake board's true energy within 0.2 %; others of 5 s do not."""

import json

CODE = """
import ctypes, json, random
from kernel_dvfs_clocks.nvml.board import Board
from kernel_dvfs_clocks.nvml.library import Library
from kernel_dvfs.measurement.counter import EnergyCounter

nvml = Library().__enter__()
board, fake = Board(nvml, UUID), nvml.shared_library
uuid, path = UUID.encode(), PATH.encode()

def get(key):
    text = ctypes.create_string_buffer(64)
    fake.fakenvml_get(path, 0, key.encode(), text, ctypes.c_size_t(64))
    return float(text.value)

def now_s():
    return get("now_s")

def sleep(seconds):
    fake.fakenvml_sleep(uuid, ctypes.c_double(seconds))

truth = {}
def read():
    mj = board.energy_mj()
    truth[now_s()] = get("energy_mj")
    return mj

counter = EnergyCounter(read, now_s, sleep, lambda: None)
counter.calibrate()
rng, errors = random.Random(1), {"aligned": [], "unaligned": []}
for number in range(60):
    sleep(rng.random())
    fake.fakenvml_set(path, 0, b"utilisation", str(rng.uniform(0.2, 1)).encode())
    span = counter.window(5.0)
    errors["aligned"].append(span.energy_mj / (truth[span.end_s] - truth[span.start_s]) - 1)
    sleep(rng.random())
    first, start_s = read(), now_s()
    sleep(5.0 + 0.1 * rng.random())  # until the launch that runs is over
    last, end_s = read(), now_s()
    errors["unaligned"].append((last - first) / (truth[end_s] - truth[start_s]) - 1)
print(json.dumps(errors))
"""


def test_the_energy_of_an_aligned_window_is_right_within_two_thousandths(lab):
    made = lab(utilisation=0.5)
    done = made.python(f"UUID, PATH = {made.boards.uuid!r}, {str(made.boards.path)!r}\n{CODE}")
    assert done.returncode == 0, done.stderr
    worst = {how: max(map(abs, errors)) for how, errors in json.loads(done.stdout).items()}
    print(f"worst error of 60 windows of 5 s: aligned {100 * worst['aligned']:.3f} %, "
          f"unaligned {100 * worst['unaligned']:.3f} %")  # fmt: skip
    assert worst["aligned"] <= 0.002 < worst["unaligned"] < 0.03
