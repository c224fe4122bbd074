"""What the commands about request records share: bad rows told to the user, tokenizers, progress."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from laps_sd.errors import InputError

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
        self.count += 1
        if self.count <= _SHOWN:
            say(f"skipped: {sentence}")

    def report(self) -> None:
        """Say how many there were, if there were any."""
        if self.count:
            say(f"skipped {self.count} bad row{'s' if self.count > 1 else ''} in all")


def load_tokenizer(name: str | None) -> Any:
    """Return the Hugging Face tokenizer of a model folder or hub name, or None without a name.

    Raises
    ------
    InputError
        ``transformers`` is missing, or there is no tokenizer.
    """
    if name is None:
        return None
    try:
        from transformers import AutoTokenizer
    except ImportError:
        raise InputError("--tokenizer needs the transformers package; run `pip install transformers`") from None
    try:
        return AutoTokenizer.from_pretrained(name)
    except (OSError, ValueError) as error:
        why = str(error).splitlines()[0]
        raise InputError(f"--tokenizer {name}: expected a model folder or hub name with a tokenizer ({why})") from None


def progress_bar() -> Progress:
    """Return a bar on standard error that stays silent where nobody watches."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=stderr,
        transient=True,
        disable=not stderr.is_terminal,
    )


@contextmanager
def counting(what: str) -> Iterator[Callable[[], None]]:
    """Count rows on standard error while they go by, where somebody watches; yields what to call for each."""
    with Progress(
        TextColumn("{task.description} {task.completed:,}"),
        console=stderr,
        transient=True,
        disable=not stderr.is_terminal,
    ) as bar:
        task = bar.add_task(what, total=None)
        count = 0

        def step() -> None:
            nonlocal count
            count += 1
            if count % 1024 == 0:
                bar.update(task, completed=count)

        yield step
