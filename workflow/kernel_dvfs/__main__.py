"""`python -m kernel_dvfs`, the same as `kernel-dvfs`."""

import sys

from kernel_dvfs.cli.main import main

sys.exit(main())
