"""`python -m kernel_dvfs`, the same as `kernel-dvfs`."""

import sys

try:
    from kernel_dvfs.cli.main import main

    code = main()
except KeyboardInterrupt:
    # while modules are imported, which is most of a short job
    code = 130
sys.exit(code)
