"""A job that asks the measuring process for a point is as light as one that simulates it."""

import sys

HEAVY = {
    "pynvml", "ctypes", "socket", "selectors", "numpy", "pandas", "snakemake", "yaml", "jsonschema", "argparse", "json",
    "re", "typing", "collections", "random", "hashlib", "pathlib", "subprocess",
}  # fmt: skip


def test_a_client_runs_without_site_packages_and_without_heavy_modules(lab):
    made = lab()
    made.measure()  # the measuring process is there
    plan = (
        "from kernel_dvfs.plan.study import load, plan\nprint(plan(load('config.yaml') | {'gpu': 'nvml'}, 'r').setup)"
    )
    setup = made.python(plan).stdout.strip()
    code = "import sys, kernel_dvfs.cli.main as m; m.main(sys.argv[1:]); print(' '.join(sys.modules))"
    words = ["measure", "--gpu", setup, "--target", "kernel/forward_gelu", "--clocks", "1500,2201", "-o", "r1.json"]
    done = made._run([sys.executable, "-S", "-c", code, *words], {})
    assert done.returncode == 0 and (made.folder / "r1.json").exists(), done.stderr
    assert not {name.partition(".")[0] for name in done.stdout.split()} & HEAVY
