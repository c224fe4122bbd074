"""Result lines of ``python -m sglang.benchmark.serving --output-details``: one line per run, lists over its requests.

Format read in SGLang 0.5.23, ``benchmark/serving.py``. Unless the run had ``--disable-ignore-eos`` the benchmark forces
every answer to a length of its own choosing: those lengths say nothing about the model and are taken as censored.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from laps_sd.data.badrows import Tolerance
from laps_sd.data.importers.options import ImportOptions
from laps_sd.data.metainfo import from_server_info
from laps_sd.data.rows import Row, iter_rows

#: A line holds the time of every token of a whole run.
_LONGEST = 1 << 30


def rows(path: Path, tolerance: Tolerance, options: ImportOptions) -> Iterator[Row]:
    """Yield the lines, each with the name of its run."""
    for row in iter_rows(path, tolerance, longest=_LONGEST):
        yield row._replace(value=(f"{path.stem}/{row.number}", row.value))


def convert(value: Any, options: ImportOptions) -> list[dict[str, Any]]:
    """Turn one run into the fields of its requests' records."""
    name, run = value
    if not isinstance(run, Mapping) or "input_lens" not in run or "output_lens" not in run:
        raise ValueError("input_lens, output_lens: expected a list each (run the benchmark with --output-details)")
    lists = {key: run.get(key) for key in ("input_lens", "output_lens", "ttfts", "itls", "errors")}
    count = len(run["input_lens"]) if isinstance(run["input_lens"], list) else -1
    for key, values in lists.items():
        if values is not None and (not isinstance(values, list) or len(values) != count):
            raise ValueError(f"{key}: expected one value per request, as many as in input_lens")
    info = run.get("server_info")
    shared = options.complete(
        {
            "source": f"sglang-bench:{run.get('dataset_name')}",
            **(from_server_info(info) if isinstance(info, dict) else {}),
        }
    )
    if options.source is not None:
        shared["source"] = options.source
    return [
        {"request_id": f"{name}/{i}", **shared, **_request({k: v and v[i] for k, v in lists.items()}, options)}
        for i in range(count)
    ]


def _request(one: dict[str, Any], options: ImportOptions) -> dict[str, Any]:
    fields: dict[str, Any] = {"prompt_tokens": one["input_lens"]}
    if one["errors"]:
        return {**fields, "output_tokens": one["output_lens"] or 0, "finish_reason": "abort"}
    if options.natural_ends:
        fields.update(options.capped(one["output_lens"]))
    else:
        fields.update(output_tokens=one["output_lens"], finish_reason="length")
    if one["ttfts"]:
        fields["ttft_s"] = one["ttfts"]
        if isinstance(one["itls"], list):
            fields["e2e_s"] = one["ttfts"] + sum(one["itls"])
    return fields
