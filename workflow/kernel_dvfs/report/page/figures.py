"""PNGs inside a page, as few bytes as they can be told apart with, up to a limit that keeps the page mailable."""

import base64
import io
from collections import namedtuple
from pathlib import Path

from PIL import Image

from kernel_dvfs.errors import InputError
from kernel_dvfs.report.page.captions import caption

Figure = namedtuple("Figure", "name title text source width height")
Figure.__doc__ = "source: a data URI, or None where the page would become too large. width, height: of the display."

# of all figures of a page, encoded: leaves room for tables below 1.5 MB
LIMIT_BYTES = 1_100_000
# figures are drawn at 300 dpi: two pixels and a half for each of a screen's
_SHOWN_PER_PIXEL = 0.48


class Figures:
    """The figures of one page: each asked for in the order of their importance."""

    def __init__(self):
        self._left = LIMIT_BYTES

    def figure(self, path) -> Figure:
        """The figure in a PNG. Raises InputError naming the file."""
        path = Path(path)
        try:
            with Image.open(path) as image:
                size = image.size
                data = _small(image)
        except (OSError, SyntaxError, ValueError) as error:
            raise InputError(f"figure {path}: {error}; delete it and run snakemake report") from None
        source = f"data:image/png;base64,{base64.b64encode(data).decode()}"
        if len(source) > self._left:
            source = None
        else:
            self._left -= len(source)
        about = caption(path.stem)
        return Figure(path.stem, about.title, about.text, source, *(round(_SHOWN_PER_PIXEL * each) for each in size))


def _small(image) -> bytes:
    """On white, in 256 colours: a third of the bytes, and the eye sees no difference in a chart."""
    opaque = Image.new("RGB", image.size, "white")
    opaque.paste(image, mask=image.getchannel("A") if image.mode == "RGBA" else None)
    buffer = io.BytesIO()
    opaque.quantize(256, dither=Image.Dither.NONE).save(buffer, "PNG", optimize=True)
    return buffer.getvalue()
