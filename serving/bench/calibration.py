"""How many requests a server can do: measured while all its slots are busy, so that a load is a share of something."""

from dataclasses import dataclass

from laps_sd.errors import WorkError
from laps_sd.serving.bench.load import LoadResult
from laps_sd.serving.bench.round_log import RoundsSeen


@dataclass(frozen=True, slots=True)
class Capacity:
    """What a server can do of these requests, one after the other as slots get free.

    Attributes
    ----------
    per_round, per_second : float
        Requests.
    """

    per_round: float
    per_second: float


def capacity_of(results: list[LoadResult], seen: RoundsSeen, slots: int) -> Capacity:
    """Return the capacity that a burst of the requests shows.

    Every request holds a slot for so many rounds; with all slots busy a round does ``slots`` of them. Seconds come
    from the rounds in which requests waited.

    Raises
    ------
    WorkError
        Too little was counted: the slots were never all busy.
    """
    held = [
        sum(end - begin for begin, end in result.rounds["spans"])
        for result in results
        if result.finish_s is not None and result.rounds is not None
    ]
    full = [seconds for line, seconds in seen.seconds() if line["waiting"] > 0]
    if not held or not full or sum(held) <= 0:
        raise WorkError("the capacity cannot be measured: no request ever waited; use more requests or fewer slots")
    per_round = slots * len(held) / sum(held)
    return Capacity(per_round, per_round * len(full) / sum(full))
