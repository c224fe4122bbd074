"""What a server serves with, in words: one line of its log, the labels of a metric, ``/server_info`` and the doctor."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields

from laps_sd.serving.flags import STATE_KEY


@dataclass(frozen=True, slots=True)
class Served:
    """What ranks the requests of a server; a text is empty where there is nothing to name.

    Attributes
    ----------
    bundle : str
        As the operator wrote it.
    version : str
        Version of the registered model.
    run : str
        MLflow run that trained the bundle.
    sglang : str
        Release of SGLang.
    policy : str
        Which policy ranks.
    """

    bundle: str
    version: str
    run: str
    sglang: str
    policy: str

    def labels(self) -> dict[str, str]:
        """Return every text by its name."""
        return asdict(self)

    def __str__(self) -> str:
        """For the log: policy, bundle with its version and run, and SGLang."""
        return f"requests are ranked by {self.policy}, {self.of_bundle()}, in SGLang {self.sglang or '(not known)'}"

    def of_bundle(self) -> str:
        """Return the bundle in words, with its version and its run where they are known."""
        if not self.bundle:
            return "without a bundle"
        known = [f"{what} {text}" for what, text in (("version", self.version), ("run", self.run)) if text]
        return f"with bundle {self.bundle}" + (f" ({', '.join(known)})" if known else "")

    @classmethod
    def told(cls, state: Mapping[str, object]) -> "Served | None":
        """Read what a server says of itself in ``/server_info``; None where it names no bundle, as earlier releases."""
        names = [field.name for field in fields(cls)]
        if not all(isinstance(state.get(name), str) for name in names):
            return None
        return cls(**{name: str(state[name]) for name in names})


def replicas_of(info: Mapping[str, object]) -> list[Mapping[str, object]]:
    """Return the state of each replica in what ``/server_info`` says."""
    states = info.get("internal_states")
    return [state for state in states if isinstance(state, Mapping)] if isinstance(states, list) else []


def said_in(info: Mapping[str, object]) -> list[Mapping[str, object]]:
    """Return what our plugin says there, for each replica in which it is."""
    said = [state.get(STATE_KEY) for state in replicas_of(info)]
    return [ours for ours in said if isinstance(ours, Mapping)]
