"""A hook of MkDocs: puts the pages that `kernel-dvfs demo` and `kernel-dvfs demo --step` make into the site, as made by
the code that the site is of."""

import shutil
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "workflow"))

PAGES = {"study": ["demo"], "step": ["demo", "--step"]}


def on_post_build(config, **_) -> None:
    """Write site/examples/<name>.html."""
    from kernel_dvfs.cli.main import main

    made = Path(config["site_dir"], "examples")
    made.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        for name, words in PAGES.items():
            own = Path(folder, name)
            if main([*words, "-o", str(own), "--log", str(Path(folder, "log"))]):
                raise SystemExit(f"docs/example_pages.py: kernel-dvfs {' '.join(words)} failed")
            shutil.copy(own / "report.html", made / f"{name}.html")
