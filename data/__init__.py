"""Request records: schema, readers, importers, collection from a live server, splits and the built-in trace."""

from laps_sd.data.builtin import builtin_trace
from laps_sd.data.canonical import CanonicalPrompt, canonical, canonical_prompt
from laps_sd.data.collection.collect import CollectSummary, collect
from laps_sd.data.collection.prompt import Prompt
from laps_sd.data.groups.split import group_folds, group_names, group_of, groups_of, split
from laps_sd.data.records.reading import iter_records, read_records
from laps_sd.data.records.schema import RequestRecord
from laps_sd.data.records.writing import write_records
from laps_sd.data.request import PromptRequest

__all__ = [
    "CanonicalPrompt",
    "CollectSummary",
    "Prompt",
    "PromptRequest",
    "RequestRecord",
    "builtin_trace",
    "canonical",
    "canonical_prompt",
    "collect",
    "group_folds",
    "group_names",
    "group_of",
    "groups_of",
    "iter_records",
    "read_records",
    "split",
    "write_records",
]
