"""The side of a job that asks the measuring process for a point: its imports, and where it looks for it."""

import socket
import subprocess
import sys

import pytest

from kernel_dvfs.measurement.real.client import address

HEAVY = {"numpy", "pandas", "pyarrow", "snakemake"}


def test_a_client_runs_without_site_packages_and_imports_no_heavy_library(lab):
    made = lab()
    made.measure()  # the measuring process is there
    setup = made.setup()
    code = "import sys, kernel_dvfs.cli.main as m; m.main(sys.argv[1:]); print(' '.join(sys.modules))"
    words = ["measure", "--gpu", setup, "--target", "kernel/forward_gelu", "--clocks", "1500,2201", "-o", "r1.json"]
    # with site-packages, where a heavy library would be found, and without, as a job runs
    for options in ([], ["-S"]):
        (made.folder / "r1.json").unlink(missing_ok=True)
        command, folder = [sys.executable, *options, "-c", code, *words], made.folder
        done = subprocess.run(command, env=made.environment(), cwd=folder, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0 and (made.folder / "r1.json").exists(), done.stderr
        assert not {name.partition(".")[0] for name in done.stdout.split()} & HEAVY


@pytest.mark.parametrize("length", [1, 200])
def test_a_process_is_found_however_long_the_name_of_its_folder_is(tmp_path, length):
    folder = tmp_path / ("x" * length)
    folder.mkdir()
    path = str(folder / "kernel-dvfs.sock")
    with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as client:
        with address(path) as short:
            listener.bind(short)
        listener.listen(1)
        with address(path) as short:
            client.connect(short)
    assert (folder / "kernel-dvfs.sock").is_socket()


def test_a_folder_that_is_not_there_has_no_process_in_it(tmp_path):
    with pytest.raises(FileNotFoundError), address(str(tmp_path / ("x" * 200) / "kernel-dvfs.sock")):
        pass
