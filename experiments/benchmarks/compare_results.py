"""Which files of two results folders differ, byte for byte: what a change of the code changed in its results.

    python experiments/benchmarks/compare_results.py BEFORE/results AFTER/results

Prints how many files are the same, and names those that are only in one of them or differ; exit code 1 where any do.
"""

import argparse
import hashlib
import sys
from pathlib import Path


def checksums(folder: Path) -> dict[str, str]:
    """{path below the folder: SHA-256} of all files."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def tell(before: dict[str, str], after: dict[str, str]) -> bool:
    """Print how many files are the same and which are not; whether all are. Both: {path: SHA-256}."""
    differ = sorted(path for path in before.keys() & after.keys() if before[path] != after[path])
    groups = {
        "only before": sorted(before.keys() - after.keys()),
        "only after": sorted(after.keys() - before.keys()),
        "differ": differ,
    }
    print(f"{len(before.keys() & after.keys()) - len(differ)} of {len(before)} files are the same")
    for name, paths in groups.items():
        if paths:
            print(f"{name}: {len(paths)}")
            print("".join(f"  {path}\n" for path in paths), end="")
    return not any(groups.values())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    options = parser.parse_args()
    return int(not tell(checksums(options.before), checksums(options.after)))


if __name__ == "__main__":
    sys.exit(main())
