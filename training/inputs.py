"""Traces in, and the trace of them in MLflow."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from laps_sd.data import RequestRecord, read_records
from laps_sd.errors import InputError


def read_data(data: Sequence[Path | str] | Sequence[RequestRecord]) -> list[RequestRecord]:
    """Return the records of trace files, one after the other, or the records themselves."""
    if isinstance(data, (str, Path)):
        raise InputError("give a list of trace files")
    records: list[RequestRecord] = []
    for item in data:
        if isinstance(item, RequestRecord):
            records.append(item)
        else:
            records.extend(read_records(item))
    return records


def log_data_set(mlflow: Any, records: Sequence[RequestRecord], data: Sequence[Any], context: str) -> None:
    """Log the data set's name, source, schema and digest; prompts themselves are not copied into the store."""
    import pandas as pd

    files = [str(item) for item in data if not isinstance(item, RequestRecord)]
    frame = pd.DataFrame(
        {
            # Floats, because a whole column cannot hold a missing value later.
            "prompt_tokens": [float(r.prompt_tokens) for r in records],
            "output_tokens": [float(r.output_tokens) for r in records],
            "censored": [r.censored for r in records],
            "model": [r.model or "" for r in records],
            "source": [r.source or "" for r in records],
            "category": [r.category or "" for r in records],
            "accept_length": [r.accept_length for r in records],
        }
    ).astype({"accept_length": "float64"})
    name = "+".join(Path(file).name for file in files)[:200] or "records"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # MLflow comments on column types and on local files
        source = str(Path(files[0]).resolve()) if files else None
        dataset = mlflow.data.from_pandas(frame, source=source, name=name, targets="output_tokens")
        mlflow.log_input(dataset, context=context)
    if files:
        mlflow.set_tag("laps_sd.data", ", ".join(files)[:5000])
