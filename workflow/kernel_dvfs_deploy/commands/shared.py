"""What several of these commands share."""

from __future__ import annotations

import sys


def say(line: str) -> None:
    """Print a line on stderr: stdout is the command's that is run."""
    print(f"kernel-dvfs: {line}", file=sys.stderr, flush=True)
