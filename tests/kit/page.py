"""A page of HTML as a tree, read strictly: what is opened is closed in its place, or the page is refused.

Browsers mend what is broken; a test must see it. Knows nothing of what our pages say.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import TypeAlias

Attributes: TypeAlias = list[tuple[str, str | None]]
# Elements that have no end (HTML standard, 13.1.2).
_VOID = frozenset({"meta", "link", "br", "hr", "img", "input"})


@dataclass
class Node:
    """An element. A child is another element or a piece of text."""

    tag: str
    attributes: dict[str, str]
    children: list[Node | str] = field(default_factory=list)

    @property
    def text(self) -> str:
        """All text in it, as it is read."""
        return "".join(child if isinstance(child, str) else child.text for child in self.children)

    @property
    def classes(self) -> list[str]:
        return self.attributes.get("class", "").split()

    def every(self) -> Iterator[Node]:
        """The elements in it, in the order of the page."""
        for child in self.children:
            if isinstance(child, Node):
                yield child
                yield from child.every()

    def all(self, tag: str, **wanted: str) -> list[Node]:
        """The elements of this name whose attributes have these values; `kind` is one of its classes."""
        kind = wanted.pop("kind", None)
        return [
            node
            for node in self.every()
            if node.tag == tag
            and (kind is None or kind in node.classes)
            and all(node.attributes.get(name) == value for name, value in wanted.items())
        ]

    def one(self, tag: str, **wanted: str) -> Node:
        """The only such element."""
        (found,) = self.all(tag, **wanted)
        return found

    def figure(self, kind: str) -> int:
        """The number that stands in the only `data` element of this kind, told twice alike."""
        found = self.one("data", kind=kind)
        assert found.text.replace(",", "") == found.attributes["value"]
        return int(found.attributes["value"])


def page_of(text: str) -> Node:
    """The page; AssertionError for one that is not well formed."""
    tree = _Tree()
    tree.feed(text)
    tree.close()
    (whole,) = tree.open
    return whole


class _Tree(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open = [Node("", {})]

    def handle_starttag(self, tag: str, attrs: Attributes) -> None:
        names = [name for name, _ in attrs]
        assert len(set(names)) == len(names), (tag, names)
        node = Node(tag, {name: value or "" for name, value in attrs})
        self.open[-1].children.append(node)
        if tag not in _VOID:
            self.open.append(node)

    def handle_endtag(self, tag: str) -> None:
        closed = self.open.pop()
        assert closed.tag == tag, f"</{tag}> where <{closed.tag}> is open"

    def handle_data(self, data: str) -> None:
        self.open[-1].children.append(data)
