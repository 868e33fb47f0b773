"""The page that shows what every transform does to a text."""

from collections.abc import Iterable
from importlib.metadata import version
from itertools import groupby

from outspan.figures.markup import element, join
from outspan.reporting.page import Section, build_page, paragraph, subsection
from outspan.reporting.samples import highlight_changes, shorten
from outspan.transforms.table import TEXT_TRANSFORMS


def gallery_page(name: str, text: str, examples: Iterable[tuple[str, float, str, str]]) -> str:
    """Return the HTML of a page about a text of a file.

    `examples` are transforms, levels, the text after the transform, and the reason if it could not be applied.
    """
    blocks = []
    for transform, some in groupby(examples, key=lambda example: example[0]):
        shown = []
        for _, level, changed, problem in some:
            shown += (
                [paragraph(problem, kind="missing")]
                if problem
                else [paragraph(f"Level {level:g}"), highlight_changes(text, changed)]
            )
        about = (TEXT_TRANSFORMS[transform].function.__doc__ or "").splitlines()[0]
        blocks.append(subsection(transform, paragraph(about, kind="muted"), shown))
    original = subsection("Original", element("blockquote", shorten(text)))
    return build_page(
        f"Transforms of {name}", [Section("Transforms", join([original, *blocks]))], summary=None, version=version("outspan")
    )
