"""A page, read: its tags, ids, links and text; complains where a tag is not closed."""

from __future__ import annotations

import re
from html.parser import HTMLParser

VOID = {"meta", "br", "img", "hr", "input", "link"}


class Page(HTMLParser):
    """Tags of a page with their attributes, and the text outside of style and script."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.open: list[str] = []
        self.text = ""
        self.source = text
        self.feed(text)
        self.close()
        assert self.open == []

    @property
    def tags(self) -> list[str]:
        return [tag for tag, _ in self.elements]

    @property
    def links(self) -> list[str]:
        """Every address."""
        return [
            value
            for _, found in self.elements
            for name, value in found.items()
            if name.split(":")[-1] in ("href", "src", "srcset", "action", "data")
        ]

    @property
    def ids(self) -> list[str]:
        return [found["id"] for _, found in self.elements if "id" in found]

    def of(self, kind: str) -> list[dict[str, str]]:
        """Attributes of the elements that have a class."""
        return [found for _, found in self.elements if kind in found.get("class", "").split()]

    def words(self) -> str:
        """The text with single spaces."""
        return " ".join(self.text.split())

    def loads_nothing(self) -> None:
        """Whatever the page needs is in it, and links within it lead to one place each."""
        assert {link[1:] for link in self.links if link.startswith("#")} <= set(self.ids)
        for tag, found in self.elements:
            if tag == "a" and found["href"].startswith("#"):
                assert self.ids.count(found["href"][1:]) == 1
        for link in self.links:
            assert re.match(r"#|https://|data:(image/png|text/csv);base64,", link), link[:80]
        for tag, found in self.elements:
            if "href" in found and found["href"].startswith("data:"):
                assert found["download"].endswith(".csv")
            assert tag != "script" or found == {}
            assert not any(name.startswith("on") for name in found)
        assert not {"link", "iframe", "object", "embed", "base", "form"} & set(self.tags)
        assert "@import" not in self.source
        assert not re.search(r"url\((?!#)", self.source)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not {"style", "script"} & set(self.open):
            self.text += data
