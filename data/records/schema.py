"""The request record: one row per finished request, as one typed definition.

Everything else about the format is derived from :class:`RequestRecord`: the checks on reading, the Parquet schema,
the table in ``docs/records.md`` and the data that the tests draw. Add a field here and nowhere else.
"""

from collections.abc import Iterator
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_type_hints

import msgspec
from msgspec import Meta

from laps_sd.data.progress.classes import VERSION
from laps_sd.data.progress.counting import COUNTERS, checkpoints_below

#: Larger counts are a mistake (a hash, a time stamp), and floats stop holding every integer here.
LARGEST_COUNT = 2**53
#: About thirty thousand years: anything longer is milliseconds or nanoseconds read as seconds, or infinity.
LONGEST_S = 1e12


def _meta(meaning: str, origin: str, unit: str = "") -> Meta:
    return Meta(description=meaning, extra={"origin": origin, "unit": unit})


Count = Annotated[int, Meta(ge=0, le=LARGEST_COUNT)]
Positive = Annotated[int, Meta(ge=1, le=LARGEST_COUNT)]
Seconds = Annotated[float, Meta(ge=0, le=LONGEST_S)]
FinishReason = Literal["stop", "length", "abort"]


class RequestRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One finished request: what was asked, how long the answer was, and how its drafts fared.

    Only the first four fields are required; ``None`` means "not known". The rules that tie fields together are
    checked whenever a record is built; types and ranges are checked when one is read from a file (a type checker
    does it for code). ``replace`` gives a changed copy.

    Raises
    ------
    ValueError
        The fields contradict each other. The message starts with the name of the field at fault.
    """

    request_id: Annotated[str, Meta(min_length=1), _meta("Name of the request, unique in its file", "`meta_info.id`")]
    prompt_tokens: Annotated[
        Count, _meta("Prompt length, chat template included; 0: not known", "`meta_info.prompt_tokens`", "tokens")
    ]
    output_tokens: Annotated[
        Count, _meta("Tokens produced, end-of-sequence included", "`meta_info.completion_tokens`", "tokens")
    ]
    finish_reason: Annotated[
        FinishReason,
        _meta(
            "`stop`: the model ended; `length`: cut by a cap; `abort`: cancelled. The last two are censored",
            "`meta_info.finish_reason.type`",
        ),
    ]
    prompt: Annotated[str | None, _meta("What the user asked, without the chat template", "`canonical_prompt`")] = None
    turns: Annotated[Count | None, _meta("Earlier user turns of the conversation", "the messages", "turns")] = None
    max_new_tokens: Annotated[Positive | None, _meta("The cap asked for", "`sampling_params`", "tokens")] = None
    temperature: Annotated[Annotated[float, Meta(ge=0, le=1000)] | None, _meta("0: greedy", "`sampling_params`")] = None
    constraint: Annotated[
        str | None,
        _meta(
            "What the answer is held to: `regex`, `json_schema`, `ebnf` or `structural_tag`, a colon, and the text of "
            "it (the first 2,000 characters)",
            "`sampling_params`",
        ),
    ] = None
    tools: Annotated[
        Count | None,
        _meta("Tools that the answer may call; where no list is known, those that are called", "the request"),
    ] = None
    thinking: Annotated[
        bool | None, _meta("Whether thinking was switched on or off, where the request says so", "the request")
    ] = None
    ignore_eos: Annotated[
        bool | None,
        _meta(
            "The end token was ignored, so that the length is the one asked for: none to learn",
            "`sampling_params`",
        ),
    ] = None
    model: Annotated[str | None, _meta("Target model", "`/server_info`")] = None
    draft: Annotated[str | None, _meta("Draft algorithm, and draft model if there is one", "`/server_info`")] = None
    max_correct_drafts: Annotated[
        Count | None,
        _meta(
            "Most drafts that one verify step can accept: for a chain `speculative_num_draft_tokens` − 1",
            "`/server_info`",
            "tokens",
        ),
    ] = None
    verify_steps: Annotated[
        Count | None, _meta("Times the target model verified drafts", "`meta_info.spec_verify_ct`", "steps")
    ] = None
    correct_drafts_histogram: Annotated[
        tuple[Count, ...] | None,
        _meta(
            "Verify steps with 0, 1, 2 … correct drafts; adds up to `verify_steps`",
            "`meta_info.spec_correct_drafts_histogram`",
            "steps",
        ),
    ] = None
    accept_lengths: Annotated[
        tuple[Positive, ...] | None,
        _meta("Tokens of each verify step, bonus included", "research runs", "tokens"),
    ] = None
    draft_lengths: Annotated[
        tuple[Count, ...] | None, _meta("Drafts proposed in each verify step", "research runs", "tokens")
    ] = None
    progress: Annotated[
        tuple[Count, ...] | None,
        _meta(
            "What the answer had said after 32, 64, 128 … 2,048 tokens, as far as it went on: a row of counts each "
            "(`laps_sd.data.progress.counting.COUNTERS`), one behind the other. No text can be read off them",
            "the answer's token ids",
        ),
    ] = None
    progress_table: Annotated[
        str | None,
        _meta(
            "What counted: `v` and the version of the counts, a dash, a fingerprint of the tokenizer's token classes",
            "the tokenizer",
        ),
    ] = None
    arrival_s: Annotated[Seconds | None, _meta("Arrival since the trace began", "the client's clock", "seconds")] = None
    queue_s: Annotated[Seconds | None, _meta("Wait before the first prefill", "`meta_info.queue_time`", "seconds")] = (
        None
    )
    ttft_s: Annotated[Seconds | None, _meta("Arrival to first token", "the client's clock", "seconds")] = None
    e2e_s: Annotated[Seconds | None, _meta("Arrival to last token", "`meta_info.e2e_latency`", "seconds")] = None
    source: Annotated[str | None, _meta("Data set or service that the request came from", "whoever imports")] = None
    group: Annotated[
        str | None, _meta("Rows of one group never straddle a split (same question, both turns)", "whoever imports")
    ] = None
    category: Annotated[str | None, _meta("Kind of request", "whoever imports")] = None
    extra: Annotated[dict[str, Any], _meta("Columns that this table does not name, kept as they were", "the file")] = (
        msgspec.field(default_factory=dict)
    )

    def __post_init__(self) -> None:
        if self.max_new_tokens is not None and self.output_tokens > self.max_new_tokens:
            raise ValueError(
                f"output_tokens: expected at most max_new_tokens ({self.max_new_tokens}), got {self.output_tokens}"
            )
        if self.correct_drafts_histogram is not None:
            _check_histogram(self.correct_drafts_histogram, self.verify_steps, self.max_correct_drafts)
        if self.accept_lengths is not None:
            _check_steps("accept_lengths", self.accept_lengths, self.verify_steps)
        if self.draft_lengths is not None:
            _check_steps("draft_lengths", self.draft_lengths, self.verify_steps)
        if self.progress is not None:
            _check_progress(self.progress, self.progress_table, self.output_tokens)
        if self.extra:
            named = FIELD_NAMES.intersection(self.extra)
            if named:
                raise ValueError(f"extra: expected no field of the record, got {sorted(named)}")

    @property
    def censored(self) -> bool:
        """Whether the answer was cut (by a cap or by the client), so that its own length is longer or unknown."""
        return self.finish_reason != "stop"

    @property
    def own_length(self) -> bool:
        """Whether the length is the model's own, cut or not, and not one that was asked for (``ignore_eos``)."""
        return not self.ignore_eos

    @property
    def accept_length(self) -> float | None:
        """Mean tokens per verify step, bonus token included; None without a histogram or without steps.

        From the histogram, because SGLang's own ``spec_accept_length`` counts the prefill token as well.
        """
        histogram = self.correct_drafts_histogram
        steps = sum(histogram) if histogram else 0
        if not histogram or not steps:
            return None
        return 1.0 + sum(drafts * count for drafts, count in enumerate(histogram)) / steps

    def replace(self, **changes: Any) -> "RequestRecord":
        """Return a copy with some fields changed."""
        return msgspec.structs.replace(self, **changes)


FIELD_NAMES = frozenset(RequestRecord.__struct_fields__)
COLUMN_NAMES = tuple(name for name in RequestRecord.__struct_fields__ if name != "extra")


def _check_histogram(histogram: tuple[int, ...], verify_steps: int | None, most: int | None) -> None:
    if verify_steps is not None and sum(histogram) != verify_steps:
        raise ValueError(
            f"correct_drafts_histogram: expected counts that add up to verify_steps ({verify_steps}), "
            f"got {sum(histogram)}"
        )
    if most is not None and any(histogram[most + 1 :]):
        raise ValueError(
            f"correct_drafts_histogram: expected no step with more than max_correct_drafts ({most}) correct drafts, "
            f"got {max(k for k, count in enumerate(histogram) if count)}"
        )


def _check_steps(name: str, values: tuple[int, ...], verify_steps: int | None) -> None:
    if verify_steps is not None and len(values) != verify_steps:
        raise ValueError(f"{name}: expected one value per verify step ({verify_steps}), got {len(values)}")


def _check_progress(counts: tuple[int, ...], table: str | None, output_tokens: int) -> None:
    """Counts of another version have another width: they are kept as they are."""
    if table is None:
        raise ValueError("progress: expected progress_table beside it, which says what counted")
    if not table.startswith(f"v{VERSION}-"):
        return
    most = len(checkpoints_below(output_tokens))
    if len(counts) % len(COUNTERS) or len(counts) > most * len(COUNTERS):
        raise ValueError(
            f"progress: expected at most {most} rows of {len(COUNTERS)} counts for {output_tokens} tokens, "
            f"got {len(counts)} numbers"
        )


class FieldDoc(NamedTuple):
    """What the schema says about one field, in words."""

    name: str
    kind: str
    unit: str
    required: bool
    meaning: str
    origin: str


def describe_fields() -> Iterator[FieldDoc]:
    """Yield the documentation of every field, in the order of the record."""
    hints = get_type_hints(RequestRecord, include_extras=True)
    required = {field.name for field in msgspec.structs.fields(RequestRecord) if field.required}
    for name in RequestRecord.__struct_fields__:
        meta = next(m for m in reversed(hints[name].__metadata__) if isinstance(m, Meta) and m.description)
        extra = meta.extra or {}
        yield FieldDoc(
            name, _kind(hints[name]), extra["unit"], name in required, meta.description or "", extra["origin"]
        )


def _kind(hint: Any) -> str:
    """Return the type and range of a field in words, such as ``list of integers ≥ 1``."""
    limits = ""
    plain = hint
    while hasattr(plain, "__metadata__"):
        for meta in plain.__metadata__:
            if isinstance(meta, Meta) and meta.ge is not None:
                limits = f" ≥ {meta.ge:g}"
        plain = plain.__origin__
    arguments = [a for a in get_args(plain) if a is not type(None)]
    if plain in (int, float, str):
        return {int: "integer", float: "number", str: "text"}[plain] + limits
    if plain is bool:
        return "true \\| false"
    if all(isinstance(a, str) for a in arguments):
        return " \\| ".join(f"`{a}`" for a in arguments)
    if getattr(plain, "__origin__", None) is tuple:
        return _kind(arguments[0]).replace("integer", "list of integers")
    if getattr(plain, "__origin__", None) is dict:
        return "object"
    return _kind(arguments[0])


def fields_table() -> str:
    """Return the fields of a record as a Markdown table, one line each, in the order of the record."""
    lines = ["| field | type | unit | meaning | where it comes from |", "|---|---|---|---|---|"]
    for doc in describe_fields():
        name = f"**`{doc.name}`**" if doc.required else f"`{doc.name}`"
        lines.append(f"| {name} | {doc.kind} | {doc.unit} | {doc.meaning} | {doc.origin} |")
    return "\n".join(lines) + "\n"
