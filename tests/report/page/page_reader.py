"""A page as a program sees it: tags that close, ids, addresses, and tables by the names of their CSVs."""

import re
from html.parser import HTMLParser

_APART = {"dt", "dd", "td", "th", "li", "p", "h1", "h2", "h3"}  # words of one do not go on in the next
_VOID = {"meta", "link", "img", "br", "hr", "input", "wbr"}
_ADDRESSES = ("src", "href", "data", "action", "poster", "srcset")


class Page(HTMLParser):
    """faults: tags that do not close, ids that stand twice. tables: {name: (columns, [[(value, text)]])}. kinds,
    headings: {name of a table: {column: its kind, or heading}}. folded: tables that a click of their own opens. badges:
    their texts. said: {id, or name of an output: text}. facts: {term: value}. labels: [(x, y, anchor, text)] of
    charts."""

    def __init__(self, html: str):
        super().__init__()
        self.html = html
        self.faults, self.ids, self.addresses, self.tables, self.images = [], [], [], {}, []
        self.kinds, self.headings, self.badges = {}, {}, set()
        self.folded, self.said, self.facts, self.labels = [], {}, {}, []
        self._open, self._columns, self._rows = [], None, None  # open: (tag, attributes, words)
        self._words, self._term = [], None
        self.feed(html)
        self.close()
        self.faults += [f"<{tag}> is not closed" for tag, *_ in self._open]
        self.faults += [f"id {each} appears twice" for each in {each for each in self.ids if self.ids.count(each) > 1}]
        self.text = " ".join("".join(self._words).split())

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.ids += [attributes["id"]] if "id" in attributes else []
        self.addresses += [attributes[name] for name in _ADDRESSES if attributes.get(name)]
        if tag == "img":
            self.images.append(attributes | {"figure": (self._around("figure") or {}).get("class")})
        if tag == "table":
            self._columns, self._rows = [], []
            name = attributes["data-table"]
            self.tables[name], self.kinds[name], self.headings[name] = (self._columns, self._rows), {}, {}
            around = self._around("details")
            self.folded += [name] if around is not None and "class" not in around else []
        elif tag == "tr":
            self._rows.append([])
        elif tag == "th":
            self._columns.append(attributes.get("data-column"))
            self.kinds[self._around("table")["data-table"]][attributes.get("data-column")] = attributes["class"]
        if tag not in _VOID:
            self._open.append((tag, attributes, []))

    def handle_endtag(self, tag):
        if tag in _VOID:
            return
        opened, attributes, words = self._open.pop() if self._open else ("", {}, [])
        if opened != tag:
            self.faults.append(f"</{tag}> at {self.getpos()} closes another")
        if tag in _APART:
            self._say(" ")
        text = " ".join("".join(words).split())
        if tag == "td":
            self._rows[-1].append((attributes.get("data-value"), "".join(words)))
        elif tag == "th":
            self.headings[self._around("table")["data-table"]][attributes.get("data-column")] = text
        elif tag == "span" and attributes.get("class", "").startswith("badge "):
            self.badges.add(text)
        elif tag == "dt":
            self._term = text
        elif tag == "dd":
            self.facts[self._term] = text
        elif "text-anchor" in attributes:
            self.labels.append((float(attributes["x"]), float(attributes["y"]), attributes["text-anchor"], text))
        if name := attributes.get("id") or (tag == "output" and attributes.get("name")):
            self.said[name] = text

    def handle_data(self, data):
        self._say(data)
        if not {"script", "style"} & {tag for tag, *_ in self._open}:
            self._words.append(data + " ")

    def _say(self, words) -> None:
        for _, _, own in self._open:
            own.append(words)

    def _around(self, tag) -> dict | None:
        """The attributes of the innermost open tag of a name; None where none is open."""
        return next((attributes for opened, attributes, _ in reversed(self._open) if opened == tag), None)

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
