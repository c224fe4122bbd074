"""What a server logged of its rounds: how long each took, with how many requests, and who waited."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import msgspec

from laps_sd.data import RequestRecord
from laps_sd.data.collection.send import prompt_id_of
from laps_sd.errors import InputError
from laps_sd.serving.rounds import LoggedPolicy, LoggedRequest, LoggedRound


@dataclass(frozen=True, slots=True)
class RoundsSeen:
    """A log, read.

    Attributes
    ----------
    rounds : list of LoggedRound
    requests : dict
        Finished requests by the server's id of each.
    policy : LoggedPolicy or None
        Which policy of ours ranked; None where it was SGLang's.
    """

    rounds: list[LoggedRound]
    requests: dict[str, LoggedRequest]
    policy: LoggedPolicy | None = None

    @property
    def most_correct_drafts(self) -> int:
        """The most drafts that any step accepted."""
        return max((max(r["accept_lengths"], default=1) for r in self.requests.values()), default=1) - 1

    def timed(self) -> list[tuple[LoggedRound, float, float]]:
        """Return the rounds whose time is known, with it: seconds since the last one ended, by clock and processor.

        Left out is a round before which the server was idle.
        """
        return [
            (now, now["at"] - before["at"], now["cpu_s"] - before["cpu_s"])
            for before, now in pairwise(self.rounds)
            if not now["after_idle"]
        ]

    def seconds(self) -> list[tuple[LoggedRound, float]]:
        """Return the rounds whose time is known, with it."""
        return [(line, seconds) for line, seconds, _ in self.timed()]


def rounds_path(out: Path, name: str) -> Path:
    """Return where the server of the turn of this name logs its rounds."""
    return out / f"rounds-{name}.jsonl"


def read_rounds(path: Path) -> RoundsSeen:
    """Read what a server wrote into the file that LAPS_SD_ROUNDS named.

    Raises
    ------
    InputError
        It is no such file.
    """
    rounds: list[LoggedRound] = []
    requests: dict[str, LoggedRequest] = {}
    policy: LoggedPolicy | None = None
    try:
        for line in path.read_bytes().splitlines():
            row = msgspec.json.decode(line)
            if "round" in row:
                rounds.append(row)
            elif "policy" in row:
                policy = row
            else:
                requests[row["rid"]] = row
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path} is no log of rounds ({error}); measure anew") from error
    return RoundsSeen(rounds, requests, policy)


def with_accept_lengths(records: Sequence[RequestRecord], seen: RoundsSeen) -> list[RequestRecord]:
    """Return what `collect` recorded of a server with the tokens of every verify step, in order, as its log has them.

    A record whose steps the log counts differently, or which made none, stays as it is.
    """
    logged = {prompt_id_of(rid): row["accept_lengths"] for rid, row in seen.requests.items()}
    return [_with(record, tuple(logged.get(record.request_id, ()))) for record in records]


def _with(record: RequestRecord, lengths: tuple[int, ...]) -> RequestRecord:
    if not lengths or len(lengths) != record.verify_steps:
        return record
    return msgspec.structs.replace(record, accept_lengths=lengths)
