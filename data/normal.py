"""The form of a text in which features compare it: as a tokenizer hands it back."""

import unicodedata

_MOST_MARKS = 30  # combining marks in a row that any script needs (Unicode's stream-safe format, UAX 15)
_MARKS_TOO = frozenset("\u0f73\u0f75\u0f81")  # Tibetan vowels that are none by themselves and come apart into two


def normal_form(text: str) -> str:
    """Return the text as a tokenizer hands it back: composed Unicode (NFC), line feeds, no blank ends."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    if not unicodedata.is_normalized("NFC", text):
        # Composing sorts the marks on a character by insertion: without a limit the time is quadratic in their number.
        text = unicodedata.normalize("NFC", _few_marks(text))
    return text.strip()


def _few_marks(text: str) -> str:
    """Leave out combining marks beyond the first ``_MOST_MARKS`` on one character."""
    kept, marks = [], 0
    for char in text:
        marks = marks + 1 if unicodedata.combining(char) or char in _MARKS_TOO else 0
        if marks <= _MOST_MARKS:
            kept.append(char)
    return "".join(kept)
