"""The file behind ``--laps-sd-config``: every rarely used setting, validated before the server starts.

``laps-sd config show`` prints it with its defaults. SGLang's maintainers ask for few flags, so ours are three.
"""

import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import fields
from math import inf
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from laps_sd.declared import Setting, declared
from laps_sd.errors import InputError
from laps_sd.extensions import did_you_mean
from laps_sd.scheduler import CostModel, PosteriorSettings, Settings, policy_class, policy_names
from laps_sd.serving.flags import POLICY

_WIDTH = 100
_MOST_VALUES = 10_000
_POLICY_NAME = (
    "Who ranks: a policy of `laps-sd simulate --policies`, also one that another installed package registers."
)
_FIT = "`laps-sd simulate --trace TRACE --fit-cost-model FILE` writes one"


_Scalar = float | int | bool | str
#: What an operator sets of a policy: constants, and sections of constants.
Given = dict[str, _Scalar | dict[str, _Scalar]]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class PredictionConfig(_Section):
    """Prediction in the tokenizer process."""

    timeout_ms: Annotated[
        float,
        Setting(
            "Longest that one prediction holds up the tokenizer's event loop, and with it every request that arrives "
            "or streams meanwhile; a batch of N requests holds it up N times. A slower one is given up, and the "
            "request ranks as unpredicted and is counted. Finding the prompt in what the client sent comes before, "
            'outside of this limit; its cost is bounded by itself (docs/records.md, "The canonical prompt").',
            "milliseconds",
            above=0,
            high=10_000,
        ),
    ] = 50.0


class HintsConfig(_Section):
    """What clients may say about their own requests in custom_params."""

    enabled: Annotated[
        bool, Setting("Listen to clients at all; false: neither hints nor the priority field change anything.")
    ] = True
    max_output_tokens: Annotated[
        int,
        Setting("Largest believable expected_output_tokens; a larger hint is ignored and counted.", "tokens", low=1),
    ] = 131_072
    priority: Annotated[
        bool,
        Setting(
            "Let clients say how urgent their requests are. A higher priority goes before everything predicted, so "
            "whoever may say it can let all others wait; false: what they say is ignored, in hints counted too."
        ),
    ] = False
    max_priority: Annotated[
        int,
        Setting(
            "Largest absolute value of a priority: a hint beyond it is ignored and counted, a request's own priority "
            "field is taken for it.",
            low=0,
        ),
    ] = 100
    request_priority: Annotated[
        bool,
        Setting(
            "Where hints.priority allows priorities: obey the priority field that a request may have besides hints "
            "too; false: the field is ignored."
        ),
    ] = True
    spread: Annotated[
        float,
        Setting(
            "How far to trust expected_output_tokens: standard deviation of the log length around it.", above=0, high=3
        ),
    ] = 0.5


class PreemptionConfig(_Section):
    """Taking slots and KV tokens from running requests."""

    enabled: Annotated[bool, Setting("Preempt running requests at all; without it only the queue is ordered.")] = True
    when_kv_full: Annotated[bool, Setting("Preempt also when a waiting request finds no KV tokens.")] = True
    keep_kv: Annotated[
        bool,
        Setting("Leave a preempted request's KV in the radix cache (evictable), so that it resumes cheaply."),
    ] = True
    retraction: Annotated[
        Literal["policy", "sglang"],
        Setting(
            "Who loses its slot when KV tokens run out while decoding: the least urgent by the policy, or whom SGLang "
            "chooses; --retraction-policy length on the command line says sglang."
        ),
    ] = "policy"


class AdmissionConfig(_Section):
    """Admission of waiting requests."""

    pass_over: Annotated[
        int,
        Setting(
            "Waiting requests that find no KV tokens and are passed over in one round so that lighter ones behind them "
            "are tried; 0: the first that does not fit blocks the rest, as in SGLang.",
            "requests",
            low=0,
        ),
    ] = 8
    reserve: Annotated[
        Literal["predicted", "sglang"],
        Setting(
            "KV tokens kept free for a running request with a prediction: the kv_quantile of its remaining length, or "
            "SGLang's own share of its limit."
        ),
    ] = "predicted"


class RefinementConfig(_Section):
    """Correcting predicted lengths by what answers have said so far, with what the bundle learned."""

    enabled: Annotated[
        bool, Setting("Refine lengths in flight, where the bundle learned to with this model's tokenizer.")
    ] = True
    per_round: Annotated[
        int,
        Setting(
            "Most requests whose length is refined in one scheduling round, at a tenth of a millisecond each; the "
            "others wait for the next round.",
            "requests",
            low=1,
            high=10_000,
        ),
    ] = 2


class RecordConfig(_Section):
    """Appending finished requests to a trace, for training."""

    path: Annotated[str | None, Setting("JSON-lines file to append to; null: record nothing.")] = None
    prompts: Annotated[
        Literal["hash", "text", "none"],
        Setting(
            "What to keep of the prompt: a salted hash (groups repeats, cannot be trained on), the text (needed for "
            "training), or nothing."
        ),
    ] = "hash"
    max_mb: Annotated[float, Setting("Size at which the file is closed and a new one begun.", "megabytes", above=0)] = (
        256.0
    )
    keep: Annotated[int, Setting("Closed files to keep; the oldest is deleted.", "files", low=1)] = 8


class ServingConfig(_Section):
    """Everything that ``--laps-sd-config`` may hold."""

    unpredicted: Annotated[
        bool,
        Setting(
            "Start without --laps-sd-bundle: ranks come from hints, attained service and observed acceptance alone."
        ),
    ] = False
    allow_untested_sglang: Annotated[
        bool,
        Setting("Start on an SGLang release that laps-sd was not tested with, if every hook target matches."),
    ] = False
    cost_model: Annotated[
        str | None,
        Field(min_length=1),
        Setting(
            "File that `laps-sd simulate --fit-cost-model` wrote from this server's trace: what a step and a prefill "
            "cost, and so when preempting is worth it. null: learned while serving where there is one tensor-parallel "
            "rank; several ranks must decide alike and no two clocks agree, so they take a prefill for as long as a "
            "step."
        ),
    ] = None
    prediction: PredictionConfig = PredictionConfig()
    hints: HintsConfig = HintsConfig()
    preemption: PreemptionConfig = PreemptionConfig()
    admission: AdmissionConfig = AdmissionConfig()
    refinement: RefinementConfig = RefinementConfig()
    record: RecordConfig = RecordConfig()
    policy: Annotated[
        Given,
        Setting("The policy that serves, by name, and those of its constants that differ from their defaults."),
    ] = {}

    @field_validator("policy", mode="before")
    @classmethod
    def _nothing_set(cls, value: object) -> object:
        return {} if value is None else value  # every key below it is still a comment

    @field_validator("policy")
    @classmethod
    def _known_settings(cls, value: Given) -> Given:
        known = ["name", *Settings().names()]
        unknown = [name for name in value if name not in known]
        if unknown:
            hint = did_you_mean(unknown[0], known)
            raise ValueError(f"unknown key {unknown[0]}; {hint}known are {', '.join(known)}")
        require_servable(value.get("name", POLICY))
        _settings(value)  # raises ValueError with the setting's bounds
        return value

    @property
    def policy_name(self) -> str:
        """The policy that serves: a name of the registry, or ``laps-sd:PRESET``."""
        return str(self.policy.get("name", POLICY))

    def settings(self) -> Settings:
        """Return the settings of the policy; those that a preset is about are the preset's."""
        return _settings(self.policy)

    def cost(self) -> CostModel | None:
        """Return the cost model of the file that is named, None where none is; InputError when it is not one."""
        if self.cost_model is None:
            return None
        try:
            return CostModel.from_json(Path(self.cost_model).read_text(encoding="utf-8"))
        except OSError as error:
            what = f"{self.cost_model} cannot be read ({error.strerror or error})"
            raise InputError(f"--laps-sd-config: cost_model {what}; {_FIT}") from error
        except (ValueError, RecursionError) as error:
            what = f"{self.cost_model} is not one ({_one_line(error)})"
            raise InputError(f"--laps-sd-config: cost_model {what}; {_FIT}") from error


def require_servable(name: object) -> None:
    """Refuse what cannot rank a server's requests.

    Raises
    ------
    ValueError
        There is no policy of this name, or it knows what no server knows.
    """
    if not isinstance(name, str):
        raise ValueError(f"name: expected the name of a policy, got {name!r}")
    if policy_class(name).clairvoyant:
        raise ValueError(f"name: {name} must know how long every answer will be, which no server does; name another")


def servable_policies() -> list[str]:
    """Return every policy that ``policy.name`` may name."""
    return [name for name in policy_names() if _is_servable(name)]


def _is_servable(name: str) -> bool:
    try:
        require_servable(name)
    except ValueError:  # or another package's, which cannot be imported: it is said when somebody names it
        return False
    return True


def _settings(values: Given) -> Settings:
    """Build the policy's settings, the posterior's among them; ValueError names the one that is wrong."""
    own: dict[str, Any] = {**values}  # Any: `Settings` checks each value against its own declaration
    own.pop("name", None)
    if "posterior" in own:
        try:
            own["posterior"] = PosteriorSettings(**own["posterior"])
        except TypeError as error:
            known = ", ".join(field.name for field in fields(PosteriorSettings))
            raise ValueError(f"posterior: not a section of known keys ({known})") from error
    return Settings(**own)


def load_config(path: Path | str | None) -> ServingConfig:
    """Read and validate a configuration file; None gives the defaults.

    Raises
    ------
    InputError
        The file cannot be read, is not YAML, has an unknown key or a value out of bounds, or names a cost model that
        is none.
    """
    if path is None:
        return ServingConfig()
    try:
        text = Path(path).read_text(encoding="utf-8")
        values = _values_in(yaml.compose(text, yaml.SafeLoader))
        content = yaml.safe_load(text) if values <= _MOST_VALUES else None
    except OSError as error:
        raise InputError(f"--laps-sd-config {path}: {error.strerror or error}; give a readable YAML file") from error
    except Exception as error:  # a tag that a value does not fit may raise anything, as may brackets without end
        raise InputError(f"--laps-sd-config {path} is not YAML ({_one_line(error)}); correct it") from error
    if values > _MOST_VALUES:
        more = f"holds more than {_MOST_VALUES:,} values, those that anchors repeat included"
        raise InputError(f"--laps-sd-config {path} {more}; `laps-sd config show` prints every key")
    config = parse_config({} if content is None else content, source=f"--laps-sd-config {path}")
    config.cost()
    return config


def _values_in(node: yaml.Node | None, known: dict[yaml.Node, float] | None = None) -> float:
    """How many values a document holds when each alias is written out; infinite where one holds itself.

    A few lines of anchors can stand for more than any memory holds, which shows when they are merged or printed.
    """
    if not isinstance(node, yaml.CollectionNode):
        return 1
    known = {} if known is None else known
    if node not in known:
        known[node] = inf
        pairs = isinstance(node, yaml.MappingNode)
        parts = [part for pair in node.value for part in pair] if pairs else node.value
        known[node] = 1 + sum(_values_in(part, known) for part in parts)
    return known[node]


def parse_config(content: object, *, source: str) -> ServingConfig:
    """Validate parsed YAML; ``source`` begins the sentence of a refusal."""
    if not isinstance(content, Mapping):
        raise InputError(f"{source} must hold keys and values; `laps-sd config show` prints every key")
    try:
        return ServingConfig.model_validate(content)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        what = str(first["msg"]).removeprefix("Value error, ")
        if first["type"] == "extra_forbidden":
            hint = did_you_mean(str(first["loc"][-1]), _keys(ServingConfig))
            what = f"unknown key; {hint}".rstrip("; ")
        raise InputError(f"{source}: {where}: {what}; `laps-sd config show` prints every key") from error


def _keys(model: type[BaseModel]) -> Iterator[str]:
    """Every key of the configuration, those of its sections too."""
    for name, field in model.model_fields.items():
        yield name
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from _keys(field.annotation)


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())


def as_yaml(config: ServingConfig) -> str:
    """Every key with its value and, above it, its meaning; policy constants that keep their default are comments."""
    settings = {name: setting for name, _, setting in declared(ServingConfig)}
    named = "" if "name" in config.policy else "# "
    lines = [
        "# laps-sd: the file for --laps-sd-config. Every key may be left out.",
        *_section_lines(config, ""),
        "",
        *_comment(meaning(settings["policy"]), ""),
        "policy:",
        *_comment(_POLICY_NAME, "  "),
        f"  {named}name: {config.policy_name}",
        *_policy_lines(Settings(), config.policy, "  "),
    ]
    return "\n".join(lines) + "\n"


def _section_lines(model: BaseModel, indent: str) -> Iterator[str]:
    settings = {name: setting for name, _, setting in declared(type(model))}
    for name in type(model).model_fields:
        if name == "policy":
            continue
        value = getattr(model, name)
        if isinstance(value, BaseModel):
            yield ""
            yield from _comment((type(value).__doc__ or "").strip(), indent)
            yield f"{indent}{name}:"
            yield from _section_lines(value, indent + "  ")
        else:
            yield from _comment(meaning(settings[name]), indent)
            yield f"{indent}{name}: {_scalar(value)}"


def _policy_lines(defaults: Settings | PosteriorSettings, given: Mapping[str, object], indent: str) -> Iterator[str]:
    owner: type = type(defaults)
    for name, _, setting in declared(owner):
        default = getattr(defaults, name)
        mark = "" if name in given else "# "
        yield from _comment(meaning(setting), indent)
        value = given.get(name, default)
        if isinstance(default, PosteriorSettings):
            yield f"{indent}{mark}{name}:"
            yield from _policy_lines(default, value if isinstance(value, Mapping) else {}, indent + "  ")
        else:
            yield f"{indent}{mark}{name}: {_scalar(value)}"


def meaning(setting: Setting) -> str:
    """Meaning of a setting, with its range and unit in parentheses."""
    numbers = " ".join(part for part in (setting.range, setting.unit) if part)
    return f"{setting.meaning} ({numbers})" if numbers else setting.meaning


def _comment(text: str, indent: str) -> list[str]:
    return textwrap.wrap(" ".join(text.split()), _WIDTH, initial_indent=f"{indent}# ", subsequent_indent=f"{indent}# ")


def _scalar(value: object) -> str:
    return yaml.safe_dump(value, default_flow_style=True).removesuffix("...\n").strip()
