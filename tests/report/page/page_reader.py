"""A page as a program sees it: tags that close, ids, addresses, and tables by the names of their CSVs."""

import re
from html.parser import HTMLParser

_VOID = {"meta", "link", "img", "br", "hr", "input", "wbr"}
_ADDRESSES = ("src", "href", "data", "action", "poster", "srcset")


class Page(HTMLParser):
    """faults: tags that do not close, ids that stand twice. tables: {name: (columns, [[(value, text)]])}."""

    def __init__(self, html: str):
        super().__init__()
        self.html = html
        self.faults, self.ids, self.addresses, self.tables, self.images = [], [], [], {}, []
        self._open, self._columns, self._rows, self._cell = [], None, None, None
        self._words = []
        self.feed(html)
        self.close()
        self.faults += [f"<{tag}> is not closed" for tag in self._open]
        self.faults += [f"id {each} appears twice" for each in {each for each in self.ids if self.ids.count(each) > 1}]
        self.text = " ".join("".join(self._words).split())

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        if tag not in _VOID:
            self._open.append(tag)
        self.ids += [attributes["id"]] if "id" in attributes else []
        self.addresses += [attributes[name] for name in _ADDRESSES if attributes.get(name)]
        if tag == "img":
            self.images.append(attributes)
        if tag == "table":
            self._columns, self._rows = [], []
            self.tables[attributes["data-table"]] = (self._columns, self._rows)
        elif tag == "tr":
            self._rows.append([])
        elif tag == "th":
            self._columns.append(attributes.get("data-column"))
        elif tag == "td":
            self._cell = [attributes.get("data-value"), ""]

    def handle_endtag(self, tag):
        if tag in _VOID:
            return
        if not self._open or self._open.pop() != tag:
            self.faults.append(f"</{tag}> at {self.getpos()} closes another")
        if tag == "td":
            self._rows[-1].append(tuple(self._cell))
            self._cell = None

    def handle_data(self, data):
        if self._cell is not None:
            self._cell[1] += data
        if not {"script", "style"} & set(self._open):
            self._words.append(data + " ")

    def rows(self, name: str) -> list:
        """A table's rows as {column: (value, text)}, without the heading."""
        columns, rows = self.tables[name]
        return [dict(zip(columns, row)) for row in rows if row]

    def outside(self) -> list:
        """Addresses that would load something, and loads named in styles and scripts."""
        loads = [each for each in self.addresses if not re.match(r"data:|#|\.\./[\w./-]+$", each)]
        return loads + re.findall(r"url\(.*?\)|@import\b.*|\bfetch\(|XMLHttpRequest|https?://[^\s\"'<]*", self.html)


def numbers(text: str) -> list:
    """The numbers that stand in a text, with half of their last digit's unit: [(value, tolerance)]."""
    found = re.findall(r"[-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?", text.replace("−", "-").replace("95 %", ""))
    return [(float(each), _half_unit(each)) for each in found]


def _half_unit(text: str) -> float:
    digits, _, power = text.partition("e")
    return 0.5000001 * 10.0 ** (int(power or 0) - len(digits.partition(".")[2]))
