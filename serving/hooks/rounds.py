"""Hooks that count scheduler rounds and change nothing, under whatever policy schedules.

They are registered where the environment variable LAPS_SD_ROUNDS names a file, with and without laps-sd: what is
compared is then measured alike. Nothing is counted without it.
"""

import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Literal, cast

from sglang.srt.runtime_context import get_parallel

from laps_sd.serving.engine import Batch, BatchResult, ParallelOptions, Req, Scheduler
from laps_sd.serving.flags import META_KEY, ROUNDS_ENV
from laps_sd.serving.hooks.guard import guarded
from laps_sd.serving.hooks.registration import Hooks, register_hooks
from laps_sd.serving.hooks.scheduler import HOOKS as SCHEDULER_HOOKS
from laps_sd.serving.hooks.targets import ROUND_TARGETS
from laps_sd.serving.requests.scheduler_side import SchedulerRequest
from laps_sd.serving.rounds import RequestRounds, RoundLog

logger = logging.getLogger(__name__)

if TYPE_CHECKING:
    from laps_sd.serving.engine import OutputStreamer as _StreamerBase
else:
    _StreamerBase = object  # the real base is known at run time only


class RoundHooks:
    """Counts the rounds of one scheduler process.

    Attributes
    ----------
    now : int
        Rounds done so far.
    active : bool
        False once a hook has failed: the server goes on, and answers say nothing of rounds.
    table : mapping
        Every hook by the name of the function that it hooks.
    """

    def __init__(self) -> None:
        self.now = 0
        self.active = True
        self._log: RoundLog | None = None
        self._scheduler: Scheduler | None = None
        hooks: dict[str, Callable[..., object]] = {
            "_create_generation_req": self.create_generation_req,
            "_normalize_decode_outputs": self.normalize_decode_outputs,
            "process_batch_result_prefill": self.process_batch_result_prefill,
            "get_output_streamer_class": self.get_output_streamer_class,
        }
        self.table: Hooks = guarded(ROUND_TARGETS, hooks, self.stop)

    def register(self) -> None:
        """Register every hook, and open the log that the environment names; nothing is counted where that fails."""
        path = Path(os.environ[ROUNDS_ENV])
        try:
            self.open(path)
        except OSError as error:
            logger.error(  # a wrong name is no fault of the code
                "laps-sd: %s names %s, which cannot be written (%s); rounds are not counted: name another file",
                ROUNDS_ENV, path, error.strerror,
            )  # fmt: skip
            return
        register_hooks(ROUND_TARGETS, self.table)

    def open(self, path: Path) -> None:
        """Log into a file from now on."""
        self._log = RoundLog(path.open("ab", buffering=0))

    def close(self) -> None:
        """Write no more."""
        if self._log is not None:
            self._log.close()
            self._log = None

    def stop(self, name: str, error: Exception) -> None:
        """Count nothing from now on, because the hook of this name raised."""
        if self.active:
            self.active = False
            logger.error("laps-sd: rounds are counted no more (%s failed: %s)", name, error, exc_info=error)

    def create_generation_req(self, req: Req, scheduler: Scheduler, *_args: object, **_kwargs: object) -> None:
        """Run after ``Scheduler._create_generation_req``: a request arrived."""
        if self.active:
            if self._scheduler is None:
                self._begin()
            self._scheduler = scheduler
            req.laps_sd_rounds = RequestRounds(self.now)

    def _begin(self) -> None:
        """The first request is here: every rank counts alike, one of them writes, and says first who ranks."""
        if not _is_first_rank():
            self.close()
        ours = SCHEDULER_HOOKS.active
        if self._log is not None and ours is not None:
            self._log.note_policy(ours.served.policy, asdict(ours.side.policy.settings))

    def normalize_decode_outputs(
        self, outcome: tuple[list[list[int]], object], _processor: object, *_args: object, **kwargs: object
    ) -> None:
        """Run after ``SchedulerBatchResultProcessor._normalize_decode_outputs``: a decode step is done."""
        if not self.active:
            return
        self.now += 1
        tokens, _ = outcome
        batch = cast(Batch, kwargs["batch"])
        for i, req in enumerate(batch.reqs):
            counted = rounds_of(req)
            if counted is not None and not req.finished() and not req.is_retracted:
                counted.in_decode(self.now, len(tokens[i]))
        self._note("decode", batch, 0)

    def process_batch_result_prefill(
        self, original: Callable[..., None], processor: object, batch: Batch, result: BatchResult
    ) -> None:
        """Wrap ``SchedulerBatchResultProcessor.process_batch_result_prefill``: a prefill is done."""
        if self.active:
            self.now += 1
            for req in batch.reqs:
                counted = rounds_of(req)
                if counted is not None:
                    counted.in_prefill(self.now, req.retraction_count)
            self._note("prefill", batch, batch.extend_num_tokens or 0)
        original(processor, batch, result)

    def _note(self, kind: Literal["prefill", "decode"], batch: Batch, tokens: int) -> None:
        if self._log is not None:
            waiting = waiting_in(self._scheduler)
            self._log.note_round(self.now, kind, len(batch.reqs), waiting, tokens, batch.after_idle_gap)

    def get_output_streamer_class(self, result: type, _scheduler: Scheduler) -> type:
        """Run after ``Scheduler.get_output_streamer_class``."""
        return type("RoundsOutputStreamer", (RoundsStreamer, result), {"rounds": self})

    def finished(self, req: Req) -> dict[str, object]:
        """Return what the answer of a finished request says, and log it."""
        counted: RequestRounds = req.laps_sd_rounds
        fields = counted.fields(self.now)
        if self._log is not None:
            self._log.note_request(req.rid, fields, counted.accept_lengths, prediction_of(req))
        return {"rounds": fields}


class RoundsStreamer(_StreamerBase):
    """Sends the rounds of every finished request along with its answer; joined with SGLang's streamer class."""

    rounds: RoundHooks

    has_additional_customized_info = True

    def build_additional_customized_info(self, reqs: list[Req]) -> dict[str, list[object]]:
        """Add the rounds of those that finished to what laps-sd says of them, or alone where it says nothing."""
        info = super().build_additional_customized_info(reqs)
        try:
            if self.rounds.active:
                add_rounds(info, reqs, self.rounds)
        except Exception as error:
            self.rounds.stop("build_additional_customized_info", error)
        return info


def add_rounds(info: dict[str, list[object]], reqs: Sequence[Req], rounds: RoundHooks) -> None:
    """Add to ``info`` what SGLang carries to the tokenizer process: for each request a list, of one where it ended."""
    ours = cast(list[list[dict[str, object]]], info.setdefault(META_KEY, [[] for _ in reqs]))
    for place, req in enumerate(reqs):
        if req.finished() and rounds_of(req) is not None:
            said = rounds.finished(req)
            if ours[place]:
                ours[place][-1].update(said)
            else:
                ours[place] = [said]


def prediction_of(req: Req) -> object:
    """Return what laps-sd ranked a request by, as it travelled; None where nothing was predicted."""
    ours: SchedulerRequest | None = vars(req).get("laps_sd")
    prediction = None if ours is None else ours.attachment.prediction
    return None if prediction is None else prediction.to_wire()


def waiting_in(scheduler: Scheduler | None) -> int:
    """Return how many requests wait; 0 before the first one came."""
    return 0 if scheduler is None else len(scheduler.waiting_queue)


def rounds_of(req: Req) -> RequestRounds | None:
    """Return what is counted of a request; None where it never passed us."""
    found: RequestRounds | None = vars(req).get("laps_sd_rounds")
    return found


def _is_first_rank() -> bool:
    parallel: ParallelOptions = get_parallel()
    return parallel.tp_size == 1 or parallel.tp_rank == 0


#: The hooks of this process.
HOOKS = RoundHooks()
