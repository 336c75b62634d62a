"""The power of a fake H200 at 1980 MHz: 75 W + 20 W/GHz of memory + use x 250 W/GHz V(f)^2 f (tests/fakenvml)."""

from pathlib import Path

TRAIN = str(Path(__file__).resolve().parent / "train.py")
IDLE_W, BUSY_W = 75 + 20 * 3.201, 250 * (1 + 0.35 * 0.93) ** 2 * 1.98
