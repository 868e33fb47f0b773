"""Other spellings of a word: typing errors, errors of character recognition, and other cases. Pure functions of a word.

Each returns a list of different spellings, none of which is the word itself. The draws come from `numbers`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType

_ROWS = (("qwertyuiop", 0.0), ("asdfghjkl", 0.25), ("zxcvbnm", 0.75))  # of a QWERTY keyboard, with their shift to the right
_KEYS = {key: (column + shift, row) for row, (keys, shift) in enumerate(_ROWS) for column, key in enumerate(keys)}


def _adjacent(key: str) -> str:
    """Return the letters whose keys touch a key."""
    x, y = _KEYS[key]
    return "".join(other for other, (u, v) in _KEYS.items() if other != key and abs(u - x) <= 1 and abs(v - y) <= 1)


NEIGHBOURS: Mapping[str, str] = MappingProxyType({key: _adjacent(key) for key in _KEYS})
# Characters that look alike, as in the table of nlpaug's OcrAug, and pairs that are read as one letter.
CONFUSIONS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "0": ("o", "O", "D"), "1": ("l", "I", "7"), "2": ("z", "Z"), "5": ("S", "s"), "6": ("b", "G"), "8": ("B", "3"),
        "9": ("g", "q"), "o": ("0", "c"), "O": ("0", "Q"), "D": ("0", "O"), "l": ("1", "I"), "I": ("l", "1"), "i": ("1", "l"),
        "z": ("2",), "Z": ("2",), "s": ("5",), "S": ("5",), "b": ("6", "h"), "G": ("6", "C"), "B": ("8",), "g": ("9", "q"),
        "q": ("9", "g"), "h": ("b",), "c": ("e",), "e": ("c",), "u": ("v",), "v": ("u",), "n": ("r",), "t": ("f",), "f": ("t",),
        "m": ("rn",), "w": ("vv",), "d": ("cl",), "rn": ("m",), "vv": ("w",), "cl": ("d",), "ri": ("n",),
    }
)  # fmt: skip


def typos(word: str, numbers: Sequence[int]) -> list[str]:
    """Return spellings with one letter replaced by that of an adjacent key (arXiv:1711.02173), one for each two numbers."""
    places = [i for i, letter in enumerate(word) if letter.lower() in NEIGHBOURS]
    return _distinct(word, _typos(word, places, numbers)) if places else []


def _typos(word: str, places: Sequence[int], numbers: Sequence[int]) -> Iterator[str]:
    for first, second in zip(numbers[::2], numbers[1::2], strict=False):
        place = places[first % len(places)]
        near = NEIGHBOURS[word[place].lower()]
        letter = near[second % len(near)]
        yield word[:place] + (letter.upper() if word[place].isupper() else letter) + word[place + 1 :]


def misreadings(word: str, numbers: Sequence[int]) -> list[str]:
    """Return spellings with one character, or pair of characters, replaced by one that looks alike, one for each number."""
    errors = [
        (place, size, other)
        for size in (1, 2)
        for place in range(len(word) + 1 - size)
        for other in CONFUSIONS.get(word[place : place + size], ())
    ]
    chosen = (errors[number % len(errors)] for number in numbers) if errors else ()
    return _distinct(word, (word[:place] + other + word[place + size :] for place, size, other in chosen))


def cases(word: str, numbers: Sequence[int]) -> list[str]:
    """Return the word in lower case, in upper case, and capitalized."""
    return _distinct(word, (word.lower(), word.upper(), word[:1].upper() + word[1:].lower()))


def _distinct(word: str, spellings: Iterator[str] | Sequence[str]) -> list[str]:
    return [spelling for spelling in dict.fromkeys(spellings) if spelling != word]


Spell = Callable[[str, Sequence[int]], list[str]]
SPELLINGS: Mapping[str, Spell] = MappingProxyType({"typos": typos, "misreadings": misreadings, "cases": cases})
