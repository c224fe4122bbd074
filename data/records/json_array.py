"""Cut a JSON array into its items without reading the file whole."""

import re
from collections.abc import Iterator
from typing import IO

_CHUNK = 1 << 20
_OUTSIDE = re.compile(rb'["{}\[\]]')
#: A text up to its closing quote, to a lone backslash at the end of what was read, or to that end.
_INSIDE = re.compile(rb'(?:[^"\\]++|\\.)*+', re.DOTALL)


class NotAnArrayOfObjectsError(ValueError):
    """The text is not ``[{…}, {…}, …]``; the message says where."""


def iter_objects(file: IO[bytes], longest: int) -> Iterator[bytes]:
    """Yield the text of each object of a JSON array, in order.

    Only brackets and quotes are looked at: what is inside an object is for the decoder to check.

    Parameters
    ----------
    file
        Positioned at the opening bracket or at white space before it.
    longest
        Longest object, bytes; a longer one is an error, so that memory stays bounded.

    Raises
    ------
    NotAnArrayOfObjectsError
        Something other than objects between the brackets, or the array does not end.
    """
    scan = _Scan(longest)
    while chunk := file.read(_CHUNK):
        yield from scan.feed(chunk)
    if not scan.ended or scan.left.strip():
        raise NotAnArrayOfObjectsError(f"the array does not end (after {scan.found} whole objects)")


class _Scan:
    def __init__(self, longest: int) -> None:
        self.left = b""
        self.found = 0
        self.ended = False
        self._longest = longest
        self._depth = 0
        self._in_text = False
        self._at = 0
        self._start = 0

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        text = self.left + chunk
        while True:
            if self._in_text:
                inside = _INSIDE.match(text, self._at)
                self._at = inside.end() if inside is not None else len(text)
                if text[self._at : self._at + 1] != b'"':  # the rest of the text comes with the next chunk
                    break
            mark = _OUTSIDE.search(text, self._at)
            if mark is None:
                self._at = len(text)
                break
            char = mark.group()
            self._at = mark.end()
            if char == b'"':
                self._quote(text, mark.start())
            elif char in b"{[":
                self._open(text, char, mark.start())
            elif self._close():
                self.found += 1
                yield text[self._start : mark.end()]
                self._start = mark.end()
            elif self.ended:
                self._end(text[self._start : mark.start()])
                self._start = mark.end()
        if len(text) - self._start > self._longest:
            raise NotAnArrayOfObjectsError(f"object {self.found + 1} is longer than {self._longest >> 20} MiB")
        # Between objects nothing is kept but what is still to be looked at.
        self.left = text[self._start :]
        self._at -= self._start
        self._start = 0

    def _quote(self, text: bytes, at: int) -> None:
        if self._depth <= 1:
            raise NotAnArrayOfObjectsError(f"expected an object as item {self.found + 1}")
        self._in_text = not self._in_text

    def _open(self, text: bytes, char: bytes, at: int) -> None:
        if self._depth == 1:
            if char != b"{" or text[self._start : at].strip(b" \t\r\n,"):
                raise NotAnArrayOfObjectsError(f"expected an object as item {self.found + 1}")
            self._start = at
        elif self._depth == 0:
            if self.ended:
                raise NotAnArrayOfObjectsError("there is more text behind the array")
            self._start = at + 1
        self._depth += 1

    def _close(self) -> bool:
        """Return whether the bracket ends an item."""
        if self.ended:
            raise NotAnArrayOfObjectsError("there is more text behind the array")
        self._depth -= 1
        self.ended = self._depth == 0
        return self._depth == 1

    def _end(self, rest: bytes) -> None:
        if rest.strip(b" \t\r\n,"):
            raise NotAnArrayOfObjectsError(f"expected an object as item {self.found + 1}")
