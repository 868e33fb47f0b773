"""How a text is divided into sentences, which is what back-translation works on."""

import re

PAIR = "\0"  # between the two texts of a pair
_END = re.compile(r"""(?<![.!?…])[.!?…]+["'”\u2019)\]]*\s+|(?<!\s)\s*\n\s*""")  # a run is tried once, from its start
_ABBREVIATED = re.compile(r"(?:\b(?:Mr|Mrs|Ms|Dr|St|Jr|Sr|Prof|vs|etc|e\.g|i\.e)|\b[A-Z])\.\s+$")


def sentences(text: str) -> list[str]:
    """Return the sentences of a text, in order. Joined by spaces they are the text, except for white space.

    >>> sentences("Mr. Bean is odd. I liked it!  (Really?) Yes")
    ['Mr. Bean is odd.', 'I liked it!', '(Really?)', 'Yes']
    """
    parts = (text[begin:end].strip() for begin, end in sentence_spans(text))
    return [sentence for sentence in parts if sentence]


def sentence_spans(text: str) -> list[tuple[int, int]]:
    """Return where each sentence begins and ends, with the white space after it. Together they are the text."""
    spans, start = [], 0
    for match in _END.finditer(text):
        if "\n" in match[0] or not _ABBREVIATED.search(text, max(start, match.start() - 8), match.end()):
            spans.append((start, match.end()))
            start = match.end()
    return [*spans, (start, len(text))]
