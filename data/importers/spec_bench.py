"""Answer files of Spec-Bench (hemingkx/Spec-Bench, ``evaluation/eval.py``) and its descendants.

One line per question; ``choices[].new_tokens`` and ``decoding_steps`` have a value per turn, ``accept_lengths`` runs on
over all turns. An accept length counts the tokens that a step emitted, bonus included, so the lengths of one turn add
up to its new tokens: that is how they are told apart. Each turn becomes a record; the turns of a question are a group.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

from laps_sd.data.importers.base import Importer, Place
from laps_sd.data.importers.options import ImportOptions, count_tokens
from laps_sd.data.normal import normal_form
from laps_sd.data.records.bad_rows import Tolerance
from laps_sd.data.records.rows import iter_rows
from laps_sd.errors import InputError

#: Spec-Bench's own ``--max-new-tokens`` default.
DEFAULT_CAP = 1024


class SpecBench(Importer):
    """Answers of Spec-Bench, a line for each question."""

    summary = "Spec-Bench answer files"
    example = "answers.jsonl --questions question.jsonl --out trace.parquet"
    unsaid = (
        "the cap (`--max-new-tokens`, 1,024 by default) and, without `--questions`, the prompts; what the answers had "
        "said (`progress`) where they are there as text takes `--tokenizer`. Each turn is a record "
        "of its own, the turns of a question are a group."
    )
    uses = frozenset({"questions", "tokenizer", "max_new_tokens"})

    def __init__(self, options: ImportOptions) -> None:
        cap = DEFAULT_CAP if options.max_new_tokens is None else options.max_new_tokens
        super().__init__(replace(options, max_new_tokens=cap))

    @cached_property
    def _questions(self) -> dict[Any, list[str]]:
        return {} if self.options.questions is None else _questions(self.options.questions)

    def convert(self, value: Any, place: Place) -> Iterable[dict[str, Any]]:
        """Return the fields of a record for each turn and choice of one answer."""
        answer, options = value, self.options
        if (
            not isinstance(answer, Mapping)
            or not isinstance(answer.get("choices"), list)
            or "question_id" not in answer
        ):
            raise ValueError("question_id, choices: expected an answer of Spec-Bench")
        asked = self._questions.get(answer["question_id"], [])
        model = answer.get("model_id")
        shared = options.complete(
            {
                "source": options.source or "spec-bench",
                "group": f"spec-bench/{answer['question_id']}",
                **({"category": answer["category"]} if answer.get("category") else {}),
                **({"model": model} if model and options.model is None else {}),
            }
        )
        records = []
        for choice in answer["choices"]:
            for turn, measured in enumerate(_turns(choice)):
                name = f"{model or options.model or 'model'}/{answer['question_id']}/{choice.get('index', 0)}/{turn}"
                records.append({"request_id": name, "turns": turn, **shared, **_asked(asked, turn, options)})
                records[-1].update(options.capped(measured.pop("output_tokens")), **measured)
                records[-1].update(self._progress(choice, turn, records[-1]["output_tokens"]))
        return records

    def _progress(self, choice: Mapping[str, Any], turn: int, output_tokens: Any) -> dict[str, Any]:
        """Return what the answer of a turn said, where the file holds its text and the user names the tokenizer."""
        texts = choice.get("turns")
        text = texts[turn] if isinstance(texts, list) and turn < len(texts) else None
        if not isinstance(text, str) or not isinstance(output_tokens, int):
            return {}
        return self.answers.fields_of_text(text, output_tokens)


def _asked(asked: list[str], turn: int, options: ImportOptions) -> dict[str, Any]:
    if turn >= len(asked):
        return {"prompt_tokens": 0}
    fields: dict[str, Any] = {
        "prompt": normal_form(asked[turn]),
        "prompt_tokens": count_tokens(asked[turn], options.tokenizer),
    }
    return fields if options.tokenizer is not None else {**fields, "tokens_estimated": True}


def _turns(choice: Any) -> list[dict[str, Any]]:
    tokens = choice.get("new_tokens") if isinstance(choice, Mapping) else None
    if not isinstance(tokens, list):
        raise ValueError("choices.new_tokens: expected a list with the tokens of each turn")
    steps = choice.get("decoding_steps") or []
    lengths = choice.get("accept_lengths") or []
    seconds = choice.get("wall_time") or []
    parts = _cut(lengths, tokens, steps)
    turns = []
    for turn, produced in enumerate(tokens):
        fields: dict[str, Any] = {"output_tokens": produced}
        if turn < len(seconds):
            fields["e2e_s"] = seconds[turn]
        if parts is not None and parts[turn]:
            most = max(parts[turn]) - 1
            histogram = [0] * (most + 1)
            for length in parts[turn]:
                histogram[length - 1] += 1
            fields.update(
                accept_lengths=parts[turn],
                verify_steps=len(parts[turn]),
                correct_drafts_histogram=histogram,
                max_correct_drafts=most,
            )
        elif turn < len(steps):
            fields["verify_steps"] = steps[turn]
        turns.append(fields)
    return turns


def _cut(lengths: list[int], tokens: list[int], steps: list[int]) -> list[list[int]] | None:
    """Cut the accept lengths into turns: by what they add up to, else by the step counts, else not at all."""
    if not lengths or not all(isinstance(length, int) and length >= 1 for length in lengths):
        return None
    parts: list[list[int]] = []
    at = 0
    for produced in tokens:
        end, total = at, 0
        while end < len(lengths) and total < produced:
            total += lengths[end]
            end += 1
        if total != produced:
            break
        parts.append(lengths[at:end])
        at = end
    if len(parts) == len(tokens) and at == len(lengths):
        return parts
    for extra in (0, 1):  # some methods count steps from 0
        ends = [sum(steps[: i + 1]) + extra * (i + 1) for i in range(len(steps))]
        if len(steps) == len(tokens) and ends[-1] == len(lengths):
            return [lengths[start:end] for start, end in zip([0, *ends[:-1]], ends, strict=True)]
    return [lengths] if len(tokens) == 1 else None


def _questions(path: Path) -> dict[Any, list[str]]:
    questions: dict[Any, list[str]] = {}
    for row in iter_rows(path, Tolerance()):
        if not isinstance(row.value, Mapping) or not isinstance(row.value.get("turns"), list):
            raise InputError(f"{path}: {row.unit} {row.number}: turns: expected the list of a question's turns")
        questions[row.value.get("question_id")] = [str(turn) for turn in row.value["turns"]]
    return questions
