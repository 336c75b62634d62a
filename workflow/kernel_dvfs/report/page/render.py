"""Templates and images to HTML: everything put into a page is escaped, and a page refers to nothing outside itself."""

from __future__ import annotations

import base64
import hashlib
import io
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from kernel_dvfs.extensions import packages
from kernel_dvfs.outputs import Output
from kernel_dvfs.report.page.tables import heading, signed
from kernel_dvfs_clocks import package
from kernel_dvfs_clocks.errors import InputError

if TYPE_CHECKING:
    from PIL.Image import Image

# of all figures of a page, encoded: leaves room for tables below 1.5 MB
LIMIT_BYTES = 1_100_000
# figures are drawn at 300 dpi: two pixels and a half for each of a screen's
_SHOWN_PER_PIXEL = 0.48
_WIDE = 1.8
_SHORT_CHARACTERS = 14

_WITH_TEMPLATES = [name for name in packages() if os.path.isdir(os.path.join(package.FOLDER, name, "templates"))]
_ENVIRONMENT = Environment(
    loader=ChoiceLoader([PackageLoader(name) for name in ("kernel_dvfs.report.page", *_WITH_TEMPLATES)]),
    autoescape=True,
    trim_blocks=True,
    lstrip_blocks=True,
    undefined=StrictUndefined,
)
_ENVIRONMENT.filters["signed"] = signed


def _breakable(text: str) -> Markup:
    """Return a cell with the places where it may go on in the next line: within names, before an interval, in long ones
    also between words."""
    places = r"[_/]| (?=\()" if len(text) <= _SHORT_CHARACTERS or " (" in text else r"[-_/ ]|\.(?=[A-Z])"
    return Markup(re.sub(f"({places})", r"\1<wbr>", str(escape(text))))


_ENVIRONMENT.filters["breakable"] = _breakable


def render(template: str, **values: Any) -> str:
    """Return the page that a template of `templates/` makes of these values. No style or script but its own counts in
    it."""
    page = _ENVIRONMENT.get_template(template).render(**values)
    for tag in ("style", "script"):
        # the template's comes first, texts are escaped
        content = page.partition(f"<{tag}>")[2].partition(f"</{tag}>")[0]
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        page = page.replace(f"{tag}-src 'none'", f"{tag}-src 'sha256-{digest}'", 1)
    return page


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure on a page."""

    name: str
    title: str
    text: str  # below the title
    source: str | None  # a data URI, or None where the page would become too large
    width: int  # pixels of the display
    height: int

    @property
    def is_wide(self) -> bool:
        """Return whether it can be read only where it has the whole width of the page."""
        return self.width > _WIDE * self.height


class Figures:
    """The figures of one page, to be asked for in the order of their importance.

    Each is a PNG of as few bytes as the eye needs, and all together stay below a limit that keeps the page mailable.
    """

    def __init__(self) -> None:
        self._left = LIMIT_BYTES

    def figure(self, path: str | Path, about: Output | None = None) -> Figure:
        """Return the figure in a PNG; about: what it says of itself. Raises InputError naming the file."""
        # a page without figures needs no Pillow
        from PIL import Image

        path = Path(path)
        try:
            with Image.open(path) as image:
                width, height = image.size
                data = _small(image)
        except (OSError, SyntaxError, ValueError) as error:
            raise InputError(f"figure {path}: {error}; delete it and run snakemake report") from None
        source: str | None = f"data:image/png;base64,{base64.b64encode(data).decode()}"
        if source and len(source) > self._left:
            source = None
        self._left -= len(source or "")
        title, text = heading(path.stem, about), about.text if about else ""
        return Figure(path.stem, title, text, source, round(_SHOWN_PER_PIXEL * width), round(_SHOWN_PER_PIXEL * height))


def _small(image: Image) -> bytes:
    """Return a PNG on white, in 256 colours: a third of the bytes, and the eye sees no difference in a chart."""
    from PIL import Image

    opaque = Image.new("RGB", image.size, "white")
    opaque.paste(image, mask=image.getchannel("A") if image.mode == "RGBA" else None)
    buffer = io.BytesIO()
    opaque.quantize(256, dither=Image.Dither.NONE).save(buffer, "PNG", optimize=True)
    return buffer.getvalue()
