"""What tests of pages share: whether their tags are closed, and their plots."""

import re
from html.parser import HTMLParser
from xml.etree import ElementTree


class Balanced(HTMLParser):
    """Counts tags that are open."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.scripts = 0

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.scripts += tag == "script"
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def plots(html: str) -> list[str]:
    """The plots of a page that is whole and loads nothing; each is well-formed."""
    parser = Balanced()
    parser.feed(html)
    assert parser.open == []
    assert parser.scripts == 0
    assert not re.search(r'(src|href)="(?!data:)', html)
    found = re.findall(r"<svg.*?</svg>", html, re.DOTALL)
    for plot in found:
        ElementTree.fromstring(plot)
    return found
