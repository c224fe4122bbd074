"""What can be added by one file, each under a name: policies, predictors, features, importers.

Every kind has one table. What ships with laps-sd stands in it as ``name: "module:object"``; another installed package
adds its own through an entry point of the table's group. Names are known without importing anything, so that the
command line can list them; an object is imported when it is asked for.
"""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from functools import cached_property
from importlib.metadata import EntryPoint, entry_points


class Registry:
    """Objects of one kind by name, from laps-sd itself and from installed packages.

    Parameters
    ----------
    kind : str
        What one of them is called in messages, for instance ``policy``.
    group : str
        Entry-point group in which other packages add theirs.
    built_in : mapping of str to str
        Name to ``module:object``.
    prefix : str, optional
        Where two kinds share a group: how entry points of this kind begin, "" for those without a dot. The name is what
        follows.

    Examples
    --------
    >>> shapes = Registry("shape", "example.shapes", {"counter": "collections:Counter"})
    >>> shapes.names()
    ['counter']
    >>> shapes.load("counter").__name__
    'Counter'
    >>> shapes.load("countr")
    Traceback (most recent call last):
    ...
    ValueError: unknown shape 'countr'; did you mean 'counter'? known are counter
    """

    def __init__(self, kind: str, group: str, built_in: Mapping[str, str], prefix: str | None = None) -> None:
        self.kind = kind
        self.group = group
        self._built_in = dict(built_in)
        self._prefix = prefix

    @cached_property
    def _entries(self) -> dict[str, EntryPoint]:
        entries = {name: EntryPoint(name, target, self.group) for name, target in self._built_in.items()}
        for entry in sorted(entry_points(group=self.group), key=lambda entry: (entry.name, entry.value)):
            name = entry.name
            if self._prefix is not None:
                if not name.startswith(self._prefix) or "." in name.removeprefix(self._prefix):
                    continue
                name = name.removeprefix(self._prefix)
            taken = entries.get(name)
            if taken is not None and taken.value != entry.value:
                raise ValueError(
                    f"two {self.kind} entries are called {name!r}: {taken.value} and {entry.value}; "
                    "uninstall one of the packages or rename its entry point"
                )
            entries[name] = entry
        return entries

    def names(self) -> list[str]:
        """Return every known name: the built-in ones in the order of the table, then the others by the alphabet."""
        return list(self._entries)

    def __contains__(self, name: object) -> bool:
        return name in self._built_in or name in self._entries

    def package(self, name: str) -> str | None:
        """Return the installed package that registered a name; None for what ships with laps-sd."""
        if name in self._built_in:
            return None
        entry = self._entries.get(name)
        return None if entry is None or entry.dist is None else entry.dist.name

    def load(self, name: str) -> object:
        """Import and return the object of this name.

        Raises
        ------
        ValueError
            There is no such name, or what another package registered under it cannot be imported.
        """
        if name in self._built_in:  # without a look at what is installed, which takes a server 10 ms
            return EntryPoint(name, self._built_in[name], self.group).load()
        entry = self._entries.get(name)
        if entry is None:
            hint = did_you_mean(name, self.names())
            raise ValueError(f"unknown {self.kind} {name!r}; {hint}known are {', '.join(self.names())}")
        try:
            return entry.load()
        except Exception as error:  # another package's code
            raise ValueError(f"{self.kind} {name!r} cannot be imported from {entry.value} ({error})") from error


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a question with the name that is most like a mistyped one, and a blank; nothing where none is."""
    near = get_close_matches(name, list(known), n=1)
    return f"did you mean {near[0]!r}? " if near else ""


#: Scheduling policies: classes derived from `laps_sd.scheduler.Policy`.
POLICIES = Registry(
    "policy",
    "laps_sd.policies",
    {
        "fcfs": "laps_sd.scheduler.policies.base:Policy",
        "hrrn": "laps_sd.scheduler.policies.peers:Hrrn",
        "hrrn-predicted": "laps_sd.scheduler.policies.peers:HrrnPredicted",
        "boost": "laps_sd.scheduler.policies.peers:BoostPredicted",
        "sjf-predicted": "laps_sd.scheduler.policies.peers:SjfPredicted",
        "las": "laps_sd.scheduler.policies.peers:Las",
        "mlfq": "laps_sd.scheduler.policies.peers:Mlfq",
        "gittins": "laps_sd.scheduler.policies.peers:Gittins",
        "laps-sd": "laps_sd.scheduler.policies.laps_sd:LapsSd",
        "oracle-srpt": "laps_sd.scheduler.policies.peers:OracleSrpt",
        "oracle-ride": "laps_sd.scheduler.policies.clairvoyant:OracleRide",
    },
)
#: Length predictors: classes derived from `laps_sd.predictors.length.CurveModel`.
PREDICTORS = Registry(
    "length predictor",
    "laps_sd.predictors",
    {
        "hazard": "laps_sd.predictors.length.hazard_curves:HazardCurves",
        "transformer": "laps_sd.predictors.length.transformer_curves:TransformerCurves",
        "constant": "laps_sd.predictors.length.class_curves:ConstantCurves",
        "prompt_length": "laps_sd.predictors.length.class_curves:PromptLengthCurves",
        "asked_for": "laps_sd.predictors.length.class_curves:AskedForCurves",
    },
    prefix="",
)
#: Acceptance predictors: classes derived from `laps_sd.predictors.acceptance.AcceptanceModel`. Another package's entry
#: point is called ``acceptance.NAME``, in the same group as those of lengths.
ACCEPTANCE_PREDICTORS = Registry(
    "acceptance predictor",
    "laps_sd.predictors",
    {
        "prompt": "laps_sd.predictors.acceptance.predictor:PromptAcceptance",
        "run_mean": "laps_sd.predictors.acceptance.run_mean:RunMeanAcceptance",
    },
    prefix="acceptance.",
)
#: Feature sets of the predictors: classes derived from `laps_sd.predictors.features.FeatureSet`.
FEATURES = Registry(
    "feature set",
    "laps_sd.features",
    {
        "lexical": "laps_sd.predictors.features.matrix:FeatureMap",
        "embedding": "laps_sd.predictors.features.matrix:EmbeddingMap",
    },
)
#: Importers of other people's files: classes derived from `laps_sd.data.importers.Importer`.
IMPORTERS = Registry(
    "format",
    "laps_sd.importers",
    {
        "sglang-metrics": "laps_sd.data.importers.sglang_metrics:SglangMetrics",
        "sglang-bench": "laps_sd.data.importers.sglang_bench:SglangBench",
        "spec-bench": "laps_sd.data.importers.spec_bench:SpecBench",
        "arrivals": "laps_sd.data.importers.arrivals:Arrivals",
        "chat": "laps_sd.data.importers.chat:Chat",
        "records": "laps_sd.data.importers.records:Records",
    },
)
