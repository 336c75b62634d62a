"""`python -m kernel_dvfs`, and `kernel-dvfs`: before anything is imported, root looks whose it is."""

import sys

from kernel_dvfs_clocks import trust


def run() -> int:
    """Run the command; returns its exit code."""
    try:
        trust.import_roots_own_alone(sys.argv[1:])
        from kernel_dvfs.cli.main import main

        return main()
    except trust.NotRoots as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except MemoryError:  # a command's own are told of by main
        print("error: too little memory to begin; look at its limit (ulimit -v)", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130  # while modules are imported, which is most of a short job


if __name__ == "__main__":
    sys.exit(run())
