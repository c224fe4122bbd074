"""Bring the penalties of a resumed answer back to where they were: SGLang starts them at zero with every prefill.

Frequency, presence and repetition penalties and the least number of tokens are counted in tensors that have a row for
each request of a batch. A prefill makes new ones, as if nothing had been produced. Fed with the answer so far, in one
operation for each penalty, a row is what it would be had the request kept its slot.
"""

from array import array
from collections.abc import Callable
from typing import Any

import torch
from sglang.srt.sampling.penaltylib import (
    BatchedFrequencyPenalizer,
    BatchedMinNewTokensPenalizer,
    BatchedPresencePenalizer,
    BatchedRepetitionPenalizer,
)

from laps_sd.serving.engine import (
    Batch,
    FrequencyPenalties,
    LeastTokens,
    PresencePenalties,
    RepetitionPenalties,
    Req,
)
from laps_sd.serving.requests.resumption import has_penalties

Feed = Callable[[Any, int, torch.Tensor], None]  # Any: each kind of penalizer has its own function


def _frequency(penalizer: FrequencyPenalties, row: int, tokens: torch.Tensor) -> None:
    # One addition for each token, as SGLang does it: a product would round differently.
    each = penalizer.frequency_penalties[row].expand(len(tokens))
    penalizer.cumulated_frequency_penalties[row].scatter_add_(0, tokens, each)


def _presence(penalizer: PresencePenalties, row: int, tokens: torch.Tensor) -> None:
    penalizer.cumulated_presence_penalties[row, tokens] = penalizer.presence_penalties[row]


def _repetition(penalizer: RepetitionPenalties, row: int, tokens: torch.Tensor) -> None:
    penalizer.cumulated_repetition_penalties[row, tokens] = penalizer.repetition_penalties[row]


def _least_tokens(penalizer: LeastTokens, row: int, tokens: torch.Tensor) -> None:
    penalizer.len_output_tokens[row] += len(tokens)


#: How each of SGLang's penalties is fed; a test holds this to be all of them.
FEEDS: dict[type, Feed] = {
    BatchedFrequencyPenalizer: _frequency,
    BatchedPresencePenalizer: _presence,
    BatchedRepetitionPenalizer: _repetition,
    BatchedMinNewTokensPenalizer: _least_tokens,
}


def restore_penalties(batch: Batch) -> None:
    """Feed the new penalties of a prefill with what its resumed requests have produced.

    Parameters
    ----------
    batch : Batch
        Just prepared for a prefill: its penalties are new. With drafts nothing is done, because SGLang then counts
        one token of each verify step, which nobody can tell afterwards.
    """
    orchestrator = batch.sampling_info.penalizer_orchestrator
    if not orchestrator.is_required or not batch.spec_algorithm.is_none():
        return
    for row, req in enumerate(batch.reqs):
        if req.output_ids and has_penalties(req.sampling_params):
            tokens = torch.tensor(counted(req, overlapped=batch.enable_overlap), dtype=torch.int64)
            tokens = tokens.to(orchestrator.device)
            for kind, penalizer in orchestrator.penalizers.items():
                if penalizer.is_prepared():
                    FEEDS[kind](penalizer, row, tokens)


def counted(req: Req, *, overlapped: bool) -> "array[int]":
    """The tokens that SGLang has counted when it samples the next one of an answer that keeps its slot.

    Under overlap scheduling it counts one step late: the last token of the prompt first, and the last token of the
    answer not yet.
    """
    answer = array("q", req.output_ids)
    return array("q", [req.origin_input_ids[-1]]) + answer[:-1] if overlapped else answer
