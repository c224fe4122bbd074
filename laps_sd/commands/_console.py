"""What the verbs show while they work: remarks and progress bars, on standard error."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

if TYPE_CHECKING:
    from rich.progress import ProgressColumn

#: Progress and remarks go to standard error: standard output belongs to results.
stderr = Console(stderr=True)

_SHOWN = 5


def say(text: str) -> None:
    """Tell the user something on standard error, one line however long."""
    stderr.print(text, markup=False, highlight=False, soft_wrap=True)


class BadRows:
    """Shows the first few rows that were left out and counts them all."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, sentence: str) -> None:
        """Count one row, and show the sentence about it if it is one of the first."""
        self.count += 1
        if self.count <= _SHOWN:
            say(f"skipped: {sentence}")

    def report(self) -> None:
        """Say how many there were, if there were any."""
        if self.count:
            say(f"skipped {self.count} bad row{'s' if self.count > 1 else ''} in all")


def _bars(*columns: ProgressColumn | str, transient: bool = True) -> Progress:
    """Return bars on standard error that stay silent where nobody watches."""
    return Progress(*columns, console=stderr, transient=transient, disable=not stderr.is_terminal)


@contextmanager
def counted(what: str, total: int) -> Iterator[Callable[..., None]]:
    """Show how many of ``total`` are done; yields what to call after each, or with (done, all)."""
    with _bars("{task.description}", BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()) as bars:
        task = bars.add_task(what, total=total)

        def tell(done: int | None = None, of: int | None = None) -> None:
            if done is None:
                bars.advance(task)
            else:
                bars.update(task, completed=done, total=of)

        yield tell


@contextmanager
def counting(what: str) -> Iterator[Callable[[], None]]:
    """Count rows while they go by; yields what to call for each."""
    with _bars("{task.description} {task.completed:,}") as bars:
        task = bars.add_task(what, total=None)
        count = 0

        def step() -> None:
            nonlocal count
            count += 1
            if count % 1024 == 0:
                bars.update(task, completed=count)

        yield step


@contextmanager
def sharing(what: str) -> Iterator[Callable[[str, float], None]]:
    """Show what is being done and how much of the whole is; yields what to call with (words, share from 0 to 1)."""
    with _bars("{task.description}", BarColumn(), TimeElapsedColumn(), transient=False) as bars:
        task = bars.add_task(what, total=1.0)
        yield lambda words, share: bars.update(task, description=words, completed=share)


class Steps:
    """One line per step: a spinner and a bar while it runs, a tick when it is done."""

    def __init__(self, bars: Progress) -> None:
        self._bars = bars

    def step(self, title: str) -> AbstractContextManager[Callable[[float, str], None]]:
        """Open a step; yields what to call with (share from 0 to 1, a word about it)."""
        return self._step(title)

    @contextmanager
    def _step(self, title: str) -> Iterator[Callable[[float, str], None]]:
        task = self._bars.add_task(title, total=1.0, word="")
        # Into a file there is no bar, so that the log shows each step once, as it begins.
        if not stderr.is_terminal:
            stderr.print(f"{title} …")
        yield lambda share, word: self._bars.update(task, completed=share, word=word)
        self._bars.update(task, completed=1.0, word="")


@contextmanager
def steps() -> Iterator[Steps]:
    """Show a list of steps, each with its own bar."""
    columns = (
        SpinnerColumn(finished_text="✓"),
        TextColumn("{task.description}"),
        BarColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[word]}"),
    )
    with _bars(*columns, transient=False) as bars:
        yield Steps(bars)
