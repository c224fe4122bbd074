"""Result lines of ``python -m sglang.benchmark.serving --output-details``: one line per run, lists over its requests.

Format read in SGLang 0.5.23, ``benchmark/serving.py``. Two traps. Unless the run had ``--disable-ignore-eos`` the
benchmark forces every answer to a length of its own choosing: those lengths say nothing about the model and are taken
as censored. And the OpenAI backends write the length asked for where the server streams no usage: for runs with natural
ends their answers are counted again from the text.
"""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from laps_sd.data.importers.base import Importer, Place
from laps_sd.data.importers.options import ImportOptions, count_tokens
from laps_sd.data.meta_info import from_server_info
from laps_sd.data.records.bad_rows import Row, Tolerance
from laps_sd.data.records.rows import iter_rows

#: A line holds the time of every token of a whole run.
_LONGEST = 1 << 30
_LISTS = ("input_lens", "output_lens", "ttfts", "itls", "errors", "generated_texts")
#: The backend whose lengths are the server's own counts.
_NATIVE = "sglang"


class SglangBench(Importer):
    """A run of SGLang's benchmark, a line each."""

    summary = "results of `python -m sglang.benchmark.serving --output-details`"
    example = "results.jsonl --out trace.parquet"
    unsaid = (
        "prompts. Unless the run had `--disable-ignore-eos` (then add `--natural-ends`) the benchmark forced every "
        "length: those records are censored. With `--natural-ends` and `--tokenizer` what the answers had said is "
        "counted (`progress`)."
    )
    uses = frozenset({"tokenizer", "max_new_tokens", "natural_ends"})

    def rows(self, path: Path, tolerance: Tolerance) -> Iterator[Row]:
        """Yield the lines; one may be very long."""
        yield from iter_rows(path, tolerance, longest=_LONGEST)

    def convert(self, value: Any, place: Place) -> Iterable[dict[str, Any]]:
        """Return the fields of a record for each request of one run."""
        run = value
        if not isinstance(run, Mapping) or "input_lens" not in run or "output_lens" not in run:
            raise ValueError("input_lens, output_lens: expected a list each (run the benchmark with --output-details)")
        lists = {key: run.get(key) for key in _LISTS}
        count = len(run["input_lens"]) if isinstance(run["input_lens"], list) else -1
        for key, values in lists.items():
            if values is not None and (not isinstance(values, list) or len(values) != count):
                raise ValueError(f"{key}: expected one value per request, as many as in input_lens")
        backend = run.get("backend")
        recount = self.options.natural_ends and backend != _NATIVE
        if recount and self.options.tokenizer is None:
            raise ValueError(
                f"output_lens: expected the lengths produced, the {backend} backend wrote those asked for "
                "(add --tokenizer to count the texts)"
            )
        info = run.get("server_info")
        shared = self.options.complete(from_server_info(info) if isinstance(info, Mapping) else {})
        engine = str(backend).partition("-")[0] if isinstance(backend, str) else _NATIVE
        if engine != _NATIVE:
            self.notes[f"requests were measured on another engine than SGLang ({engine})"] += count
        dataset = run.get("dataset_name")
        shared.setdefault("source", f"{engine}-bench:{dataset}" if dataset else f"{engine}-bench")
        if recount and self.options.max_new_tokens is None:
            self.notes["answers came without the cap of their run: whoever is as long as stated counts as cut"] += count
        requests = [{key: values and values[i] for key, values in lists.items()} for i in range(count)]
        return [
            {
                "request_id": f"{place.name}/{i}",
                **shared,
                **self._with_progress(_request(one, recount, self.options), one),
            }
            for i, one in enumerate(requests)
        ]

    def _with_progress(self, fields: dict[str, Any], one: Mapping[str, Any]) -> dict[str, Any]:
        """Add what the answer said; a forced one goes on where the model would have ended, and says nothing."""
        text, length = one["generated_texts"], fields["output_tokens"]
        if not self.options.natural_ends or not isinstance(text, str) or not isinstance(length, int):
            return fields
        return {**fields, **self.answers.fields_of_text(text, length)}


def _request(one: dict[str, Any], recount: bool, options: ImportOptions) -> dict[str, Any]:
    fields: dict[str, Any] = {"prompt_tokens": one["input_lens"]}
    if one["errors"]:
        return {**fields, "output_tokens": one["output_lens"] or 0, "finish_reason": "abort"}
    if recount:
        fields.update(_counted_again(one, options))
    elif options.natural_ends:
        fields.update(options.capped(one["output_lens"]))
    else:
        fields.update(output_tokens=one["output_lens"], finish_reason="length", ignore_eos=True)
    if one["ttfts"]:
        fields["ttft_s"] = one["ttfts"]
        if isinstance(one["itls"], list):
            fields["e2e_s"] = one["ttfts"] + sum(one["itls"])
    return fields


def _counted_again(one: dict[str, Any], options: ImportOptions) -> dict[str, Any]:
    """Return length and end of an answer whose stated length is either real or the one asked for.

    A length below the cap of the run was not asked for, so it is the server's own count, and the answer ended. Without
    a stated cap, and at the cap, the text decides: one that is shorter ended by itself.
    """
    stated, cap = one["output_lens"], options.max_new_tokens
    if cap is not None and isinstance(stated, int) and 0 < stated < cap:
        return options.capped(stated)
    produced = count_tokens(one["generated_texts"] or "", options.tokenizer) + 1  # the end-of-sequence token
    if isinstance(stated, int) and produced >= stated:
        return {**options.capped(stated), "finish_reason": "length"}
    return options.capped(produced)
