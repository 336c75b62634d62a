"""The measuring process ends at once, though CUDA's own end would wait for a kernel that hangs."""

import subprocess
import sys

import pytest

CODE = """
import atexit, time
from types import SimpleNamespace
from kernel_dvfs.cli.serve import _serve_and_end
atexit.register(time.sleep, 60)  # as a CUDA context whose kernel hangs

def serve():
    {body}

_serve_and_end(SimpleNamespace(serve=serve))
"""


@pytest.mark.parametrize(
    ("body", "code", "said"),
    [("pass", 0, ""), ("raise RuntimeError('lost')", 1, "RuntimeError: lost"), ("raise SystemExit(143)", 143, "")],
)
def test_it_ends_without_waiting_and_says_what_went_wrong(body, code, said):
    done = subprocess.run([sys.executable, "-c", CODE.format(body=body)], capture_output=True, text=True, timeout=40)
    assert done.returncode == code and said in done.stderr
