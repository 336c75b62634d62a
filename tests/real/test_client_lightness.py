"""A job that asks the measuring process for a point imports none of the heavy libraries of the workflow."""

import sys

HEAVY = {"numpy", "pandas", "pyarrow", "snakemake"}


def test_a_client_runs_without_site_packages_and_imports_no_heavy_library(lab):
    made = lab()
    made.measure()  # the measuring process is there
    plan = (
        "from kernel_dvfs.plan.study import load, plan\nprint(plan(load('config.yaml') | {'gpu': 'nvml'}, 'r').setup)"
    )
    setup = made.python(plan).stdout.strip()
    code = "import sys, kernel_dvfs.cli.main as m; m.main(sys.argv[1:]); print(' '.join(sys.modules))"
    words = ["measure", "--gpu", setup, "--target", "kernel/forward_gelu", "--clocks", "1500,2201", "-o", "r1.json"]
    # with site-packages, where a heavy library would be found, and without, as a job runs
    for options in ([], ["-S"]):
        (made.folder / "r1.json").unlink(missing_ok=True)
        done = made._run([sys.executable, *options, "-c", code, *words], {})
        assert done.returncode == 0 and (made.folder / "r1.json").exists(), done.stderr
        assert not {name.partition(".")[0] for name in done.stdout.split()} & HEAVY
