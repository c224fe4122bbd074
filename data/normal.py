"""The form of a text in which features compare it: as a tokenizer hands it back."""

import unicodedata

#: Characters kept of a long text, from its start and from its end: more than any predictor's words need.
HEAD_CHARS, TAIL_CHARS = 16_000, 16_000

_SHRINKS = 4  # a letter and its marks, or a Hangul syllable's parts, that composing makes one character
_MOST_MARKS = 30  # combining marks in a row that any script needs (Unicode's stream-safe format, UAX 15)
_MARKS_TOO = frozenset("\u0f73\u0f75\u0f81")  # Tibetan vowels that are none by themselves and come apart into two


def normal_form(text: str) -> str:
    """Return the text as a tokenizer hands it back: composed Unicode (NFC), line feeds, no blank ends.

    Of a text longer than ``HEAD_CHARS + TAIL_CHARS`` the middle is left out, with a line end in its place: a server
    that predicts must not read 500,000 characters first.
    """
    text = text.strip()
    head, tail = _SHRINKS * HEAD_CHARS, _SHRINKS * TAIL_CHARS
    if len(text) > head + tail:
        return _joined(_composed(text[:head]), _composed(text[-tail:]))
    whole = _composed(text)
    return whole if len(whole) <= HEAD_CHARS + TAIL_CHARS else _joined(whole, whole)


def _joined(start: str, end: str) -> str:
    return f"{start[: HEAD_CHARS - 1]}\n{end[-TAIL_CHARS:]}"  # what follows a line end composes with nothing before


def _composed(text: str) -> str:
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    # Composing sorts the marks on a character by insertion: without a limit the time is quadratic in their number.
    return text if unicodedata.is_normalized("NFC", text) else unicodedata.normalize("NFC", _few_marks(text))


def _few_marks(text: str) -> str:
    """Leave out combining marks beyond the first ``_MOST_MARKS`` on one character."""
    kept, marks = [], 0
    for char in text:
        marks = marks + 1 if unicodedata.combining(char) or char in _MARKS_TOO else 0
        if marks <= _MOST_MARKS:
            kept.append(char)
    return "".join(kept)
