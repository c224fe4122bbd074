"""Latency in rounds of the scheduler, which a slow machine does not change: counted per request, and logged by round.

A round is one pass of the model: a prefill batch, or one decode (verify) step of all that run. Nothing here decides
anything, so the same counting measures every policy, SGLang's own among them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from time import perf_counter, process_time
from typing import IO, Literal, TypedDict

import msgspec

#: Rounds that a log holds; a server that was left measuring must not fill the disk (100 bytes a line).
MOST_ROUNDS = 2_000_000


class RequestRoundsFields(TypedDict):
    """``meta_info["laps_sd"]["rounds"]`` of a response; all numbers are rounds that the server had done.

    Attributes
    ----------
    arrival, first_token, end : int
        When the request came, when its first and its last token were there.
    spans : list of (int, int)
        When it got a slot and when it lost or left it: more than one where it was preempted.
    """

    arrival: int
    first_token: int
    end: int
    spans: list[tuple[int, int]]


class LoggedRound(TypedDict):
    """One line of the log for one round.

    Attributes
    ----------
    round : int
        Its number, from 1.
    at : float
        When its result was there: seconds on the monotonic clock of this machine, the same in every process.
    cpu_s : float
        Seconds that the scheduler process had computed by then.
    kind : str
        ``prefill`` or ``decode``.
    requests, waiting : int
        Requests in the batch, and in the queue.
    tokens : int
        Tokens that a prefill computed; 0 for a decode step.
    after_idle : bool
        The server had nothing to do before: the time since the last round is none of this one's.
    """

    round: int
    at: float
    cpu_s: float
    kind: Literal["prefill", "decode"]
    requests: int
    waiting: int
    tokens: int
    after_idle: bool


class LoggedRequest(TypedDict):
    """One line of the log for a finished request.

    Attributes
    ----------
    rid : str
    rounds : RequestRoundsFields
    accept_lengths : list of int
        Tokens of each of its decode steps; the last one may go past its end.
    prediction : object or None
        What laps-sd ranked it by, as `laps_sd.scheduler.Prediction.to_wire` writes it.
    """

    rid: str
    rounds: RequestRoundsFields
    accept_lengths: list[int]
    prediction: object


class LoggedPolicy(TypedDict):
    """The first line of the log where laps-sd ranks: its policy, and all constants as `dataclasses.asdict` has them."""

    policy: str
    settings: dict[str, object]


@dataclass(slots=True, eq=False)
class RequestRounds:
    """What is counted of one request.

    Attributes
    ----------
    arrival : int
    first_token, end : int or None
    spans : list of [int, int]
        The last one is open (ends at the last round in which it took part) while it holds a slot.
    retractions : int
        How often it had lost its slot when its last span began.
    accept_lengths : list of int
    """

    arrival: int
    first_token: int | None = None
    spans: list[list[int]] = field(default_factory=list)
    retractions: int = 0
    accept_lengths: list[int] = field(default_factory=list)

    def in_prefill(self, now: int, retractions: int) -> None:
        """It takes part in the prefill of round ``now``: the first one, a further chunk, or a resumption."""
        if not self.spans or retractions > self.retractions:
            self.spans.append([now - 1, now])
            self.retractions = retractions
        self.spans[-1][1] = now

    def in_decode(self, now: int, tokens: int) -> None:
        """It takes part in the decode step of round ``now``, which emits ``tokens``."""
        last = self.spans[-1]
        if self.first_token is None:  # the prefill that came last gave it
            self.first_token = last[1]
        last[1] = now
        self.accept_lengths.append(tokens)

    def fields(self, now: int) -> RequestRoundsFields:
        """Return what a response says of a request that ended in round ``now``."""
        return {
            "arrival": self.arrival,
            "first_token": now if self.first_token is None else self.first_token,
            "end": now,
            "spans": [(begin, end) for begin, end in self.spans],
        }


class RoundLog:
    """Rounds of one scheduler process, as JSON lines; each line is in the file when its round ends.

    Parameters
    ----------
    file : binary file
        Opened without a buffer.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._rounds = 0

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    @property
    def full(self) -> bool:
        """Whether the log ends here."""
        return self._rounds >= MOST_ROUNDS

    def note_round(
        self, number: int, kind: Literal["prefill", "decode"], requests: int, waiting: int, tokens: int, idle: bool
    ) -> None:
        """Write one round."""
        if self.full:
            return
        self._rounds += 1
        line: LoggedRound = {
            "round": number, "at": perf_counter(), "cpu_s": process_time(), "kind": kind, "requests": requests,
            "waiting": waiting, "tokens": tokens, "after_idle": idle,
        }  # fmt: skip
        self._write(line)

    def note_request(
        self, rid: str, rounds: RequestRoundsFields, accept_lengths: Sequence[int], prediction: object
    ) -> None:
        """Write one finished request."""
        if not self.full:
            self._write(
                LoggedRequest(rid=rid, rounds=rounds, accept_lengths=list(accept_lengths), prediction=prediction)
            )

    def note_policy(self, policy: str, settings: dict[str, object]) -> None:
        """Write which policy of ours ranks."""
        self._write(LoggedPolicy(policy=policy, settings=settings))

    def _write(self, line: LoggedRound | LoggedRequest | LoggedPolicy) -> None:
        self._file.write(msgspec.json.encode(line) + b"\n")
