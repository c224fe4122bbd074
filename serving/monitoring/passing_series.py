"""A gauge that shows the series of its last setting and no others: what was shown before is gone, not 0.

With several processes ``prometheus_client`` keeps a file for each, in which no series can be taken back. So ours are in
a file of their own, which is written anew each time and put in the place of the one before. It is named and made as
``prometheus_client`` does it, whose collector adds it up with the others.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path


class PassingSeries:
    """A gauge with labels, added up over all processes.

    Parameters
    ----------
    name : str
    text : str
        What it says.
    labels : sequence of str
        Names of its labels.
    """

    def __init__(self, name: str, text: str, labels: Sequence[str]) -> None:
        self._name, self._text, self._labels = name, text, list(labels)
        folder = os.environ.get("PROMETHEUS_MULTIPROC_DIR")
        self._folder = None if folder is None else Path(folder)
        if self._folder is None:
            from prometheus_client import Gauge

            self._gauge = Gauge(name, text, labels)

    def set(self, values: Mapping[tuple[str, ...], int]) -> None:
        """Show these values, by the texts of the labels."""
        if self._folder is not None:
            self._write(self._folder, values)
            return
        self._gauge.clear()
        for texts, value in values.items():
            self._gauge.labels(*texts).set(value)

    def _write(self, folder: Path, values: Mapping[tuple[str, ...], int]) -> None:
        from prometheus_client.mmap_dict import MmapedDict, mmap_key

        # "live" as in a mode of the library: a file that is gone is no error to its collector.
        path = folder / f"gauge_livesum_{os.getpid()}-{self._name.replace('_', '-')}.db"
        if not values:
            path.unlink(missing_ok=True)
            return
        new = path.with_suffix(".new")
        new.unlink(missing_ok=True)
        content = MmapedDict(str(new))
        for texts, value in values.items():
            content.write_value(mmap_key(self._name, self._name, self._labels, texts, self._text), value, 0.0)
        content.close()
        new.replace(path)
