"""Read the HTML of a page with the parser of Python, which knows nothing of the code that wrote it."""

from dataclasses import dataclass, field
from html.parser import HTMLParser

VOID = {"br", "img", "input", "meta"}


@dataclass
class Page(HTMLParser):
    """The elements of a page with their attributes, and its text. Tags that are not balanced are an error."""

    elements: list[tuple[str, dict[str, str | None]]] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    open_tags: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open_tags.append(tag)

    def handle_endtag(self, tag):
        assert self.open_tags, f"</{tag}> ends nothing"
        assert self.open_tags.pop() == tag, f"</{tag}> ends another element"

    def handle_data(self, data):
        if not self.open_tags or self.open_tags[-1] not in ("script", "style"):
            self.texts.append(data)

    @property
    def text(self) -> str:
        """All text of the page with single spaces."""
        return " ".join(" ".join(self.texts).split())

    def of(self, tag: str) -> list[dict[str, str | None]]:
        """Return the attributes of all elements with a tag."""
        return [attributes for name, attributes in self.elements if name == tag]


def read_page(html: str) -> Page:
    """Return a page that has ended all of its elements."""
    page = Page()
    page.feed(html)
    page.close()
    assert not page.open_tags
    return page
