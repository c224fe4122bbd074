"""One policy's run in one round of the comparison, kept in a file of its own so that a comparison can go on later."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

import msgspec

from laps_sd.errors import InputError
from laps_sd.files import replacing
from laps_sd.serving.bench.load import Json, LoadResult
from laps_sd.serving.bench.names import turn_name


@dataclass(frozen=True, slots=True)
class Turn:
    """What came back.

    Attributes
    ----------
    policy : str
    round : int
        From 0.
    results : list of LoadResult
        In the order of the requests.
    rank_us : (float, float) or None
        Microseconds per ranking, p50 and p99.
    log : Path or None
        Where the server logged its rounds.
    """

    policy: str
    round: int
    results: list[LoadResult]
    rank_us: tuple[float, float] | None = None
    log: Path | None = field(default=None, compare=False)

    def after(self, warm_up: int) -> "Turn":
        """Return the turn without the ``warm_up`` requests that were sent first."""
        first = sorted(range(len(self.results)), key=lambda i: self.results[i].arrival_s)[:warm_up]
        kept = [result for place, result in enumerate(self.results) if place not in set(first)]
        return Turn(self.policy, self.round, kept, self.rank_us, self.log)


class Turns:
    """Turns on disk.

    Parameters
    ----------
    folder : Path
        Made when the first turn is kept.
    plan : mapping
        What is compared on what: turns of another plan are not this one's.
    resume : bool
        Go on with what is there; else it is taken away.

    Raises
    ------
    InputError
        What is there belongs to another plan, or cannot be read.
    """

    def __init__(self, folder: Path, plan: Mapping[str, object], *, resume: bool) -> None:
        self._folder = folder
        self._plan = msgspec.json.decode(msgspec.json.encode(dict(plan)))
        if not resume:
            for old in folder.glob("*.json"):
                old.unlink()
        for path in sorted(folder.glob("*.json")):
            said = _read(path)["plan"]
            if said != self._plan:
                other = sorted(key for key in {*said, *self._plan} if said.get(key) != self._plan.get(key))
                raise InputError(
                    f"{folder} holds turns of another comparison ({', '.join(other)} differ); repeat its options, or "
                    "leave --resume out to begin anew"
                )

    def get(self, policy: str, number: int) -> Turn | None:
        """Return a turn that was kept; None where there is none."""
        path = self._path(policy, number)
        if not path.exists():
            return None
        row = _read(path)
        results = [LoadResult(**result) for result in row["results"]]
        rank_us = None if row["rank_us"] is None else (row["rank_us"][0], row["rank_us"][1])
        return Turn(policy, number, results, rank_us, None if row["log"] is None else Path(row["log"]))

    def keep(self, turn: Turn) -> None:
        """Write a turn, whole or not at all."""
        self._folder.mkdir(parents=True, exist_ok=True)
        row = {**asdict(turn), "log": None if turn.log is None else str(turn.log), "plan": self._plan}
        with replacing(self._path(turn.policy, turn.round)) as file:
            file.write(msgspec.json.encode(row))

    def _path(self, policy: str, number: int) -> Path:
        return self._folder / f"{turn_name(policy, number)}.json"


def _read(path: Path) -> Json:
    try:
        row = msgspec.json.decode(path.read_bytes())
        return {"plan": row["plan"], "results": row["results"], "rank_us": row["rank_us"], "log": row["log"]}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path} is no turn of a comparison ({error}); leave --resume out to begin anew") from error
