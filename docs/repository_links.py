"""A hook of MkDocs: links from docs/ to other files of the repository, which the site does not hold.

The page then names the file instead. A link to a file that is not there is a warning, so a strict build fails.
"""

import logging
import re
from pathlib import Path

_LINK = re.compile(r"\[([^\]]+)\]\((\.\./[^)\s#]+)(#[^)]*)?\)")
_log = logging.getLogger("mkdocs.plugins.repository_links")


def on_page_markdown(markdown: str, page, config, files) -> str:
    """`markdown` with links out of docs/ as text and path."""
    docs = Path(config["docs_dir"]).resolve()
    here = (docs / page.file.src_uri).parent

    def named(match: re.Match) -> str:
        target = (here / match[2]).resolve()
        if target.is_relative_to(docs):
            return match[0]
        if not target.exists():
            _log.warning("%s: no file %s for the link %s", page.file.src_uri, target, match[0])
        path = target.relative_to(docs.parent)
        return f"`{path}`" if match[1].strip("`") == target.name else f"{match[1]} (`{path}`)"

    return _LINK.sub(named, markdown)
