"""Saying once what fails often: the first failure of each kind with its traceback, then every thousandth."""

import logging
from traceback import extract_tb

#: After the first, one line for every so many failures of a kind.
EVERY = 1000
_MOST_KINDS = 64  # an error whose place is new each time must not fill the log, nor the memory


class FailureLog:
    """Log failures of one activity by kind: the type of the exception and the line that raised it.

    Parameters
    ----------
    logger : logging.Logger
    what : str
        What failed, as the beginning of a line of the log.
    """

    def __init__(self, logger: logging.Logger, what: str) -> None:
        self._logger = logger
        self._what = what
        self._counts: dict[tuple[str, str], int] = {}

    def note(self, error: BaseException) -> None:
        """Count ``error``, and log it when it is the first of its kind or another thousandth."""
        kind = (type(error).__qualname__, _place(error))
        if kind not in self._counts and len(self._counts) >= _MOST_KINDS:
            kind = ("others", "")
        count = self._counts[kind] = self._counts.get(kind, 0) + 1
        if count == 1:
            self._logger.warning("laps-sd: %s (%s: %s)", self._what, type(error).__name__, error, exc_info=error)
        elif count % EVERY == 0:
            self._logger.warning(
                "laps-sd: %s (%s: %s), %d times by now", self._what, type(error).__name__, error, count
            )


def _place(error: BaseException) -> str:
    """File and line that raised ``error``; empty where it was never raised."""
    frames = extract_tb(error.__traceback__, limit=-1)
    return f"{frames[0].filename}:{frames[0].lineno}" if frames else ""
