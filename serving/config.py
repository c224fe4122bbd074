"""The file behind ``--laps-sd-config``: every rarely used setting, validated before the server starts.

``laps-sd config show`` prints it with its defaults. SGLang's maintainers ask for few flags, so ours are three.
"""

import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from laps_sd.declared import Setting, declared
from laps_sd.errors import InputError
from laps_sd.scheduler import CostModel, PosteriorSettings, Settings

_WIDTH = 100
_FIT = "`laps-sd simulate --trace TRACE --fit-cost-model FILE` writes one"


class _Section(BaseModel):
    # Every field carries its documentation below it; `laps-sd config show` prints it as a comment.
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, use_attribute_docstrings=True)


class PredictionConfig(_Section):
    """Prediction in the tokenizer process."""

    timeout_ms: Annotated[float, Field(gt=0, le=10_000)] = 50.0
    """Longest that one prediction holds up the tokenizer's event loop, and with it every request that arrives or
    streams meanwhile, milliseconds; a batch of N requests holds it up N times. A slower one is given up, and the
    request ranks as unpredicted and is counted. Finding the prompt in what the client sent comes before, outside of
    this limit; its cost is bounded by itself (docs/records.md, "The canonical prompt")."""


class HintsConfig(_Section):
    """What clients may say about their own requests in custom_params."""

    enabled: bool = True
    """Read hints at all."""
    max_output_tokens: Annotated[int, Field(ge=1)] = 131_072
    """Largest believable expected_output_tokens; a larger hint is ignored and counted."""
    max_priority: Annotated[int, Field(ge=0)] = 100
    """Largest absolute value of a priority: a hint beyond it is ignored and counted, a request's own priority field is
    taken for it."""
    request_priority: bool = True
    """Obey the priority field that a request may have besides hints; false: the field is ignored."""
    spread: Annotated[float, Field(gt=0, le=3)] = 0.5
    """How far to trust expected_output_tokens: standard deviation of the log length around it."""


class PreemptionConfig(_Section):
    """Taking slots and KV tokens from running requests."""

    enabled: bool = True
    """Preempt running requests at all; without it only the queue is ordered."""
    when_kv_full: bool = True
    """Preempt also when a waiting request finds no KV tokens."""
    keep_kv: bool = True
    """Leave a preempted request's KV in the radix cache (evictable), so that it resumes cheaply."""


class AdmissionConfig(_Section):
    """Admission of waiting requests."""

    pass_over: Annotated[int, Field(ge=0)] = 8
    """Waiting requests that find no KV tokens and are passed over in one round so that lighter ones behind them are
    tried; 0: the first that does not fit blocks the rest, as in SGLang."""
    reserve: Literal["predicted", "sglang"] = "predicted"
    """KV tokens kept free for a running request with a prediction: the kv_quantile of its remaining length, or
    SGLang's own share of its limit."""


class RecordConfig(_Section):
    """Appending finished requests to a trace, for training."""

    path: str | None = None
    """JSON-lines file to append to; null: record nothing."""
    prompts: Literal["hash", "text", "none"] = "hash"
    """What to keep of the prompt: a salted hash (groups repeats, cannot be trained on), the text (needed for
    training), or nothing."""
    max_mb: Annotated[float, Field(gt=0)] = 256.0
    """Size at which the file is closed and a new one begun, megabytes."""
    keep: Annotated[int, Field(ge=1)] = 8
    """Closed files to keep; the oldest is deleted."""


class ServingConfig(_Section):
    """Everything that ``--laps-sd-config`` may hold."""

    unpredicted: bool = False
    """Start without --laps-sd-bundle: ranks come from hints, attained service and observed acceptance alone."""
    allow_untested_sglang: bool = False
    """Start on an SGLang release that laps-sd was not tested with, if every hook target matches."""
    cost_model: Annotated[str | None, Field(min_length=1)] = None
    """File that `laps-sd simulate --fit-cost-model` wrote from this server's trace: what a step and a prefill cost, and
    so when preempting is worth it. null: learned while serving where there is one tensor-parallel rank; several ranks
    must decide alike and no two clocks agree, so they take a prefill for as long as a step."""
    prediction: PredictionConfig = PredictionConfig()
    hints: HintsConfig = HintsConfig()
    preemption: PreemptionConfig = PreemptionConfig()
    admission: AdmissionConfig = AdmissionConfig()
    record: RecordConfig = RecordConfig()
    policy: dict[str, float | int | bool | str | dict[str, float | int | bool | str]] = {}
    """Constants of the laps-sd policy that differ from their defaults."""

    @field_validator("policy", mode="before")
    @classmethod
    def _nothing_set(cls, value: object) -> object:
        return {} if value is None else value  # every key below it is still a comment

    @field_validator("policy")
    @classmethod
    def _known_settings(cls, value: dict[str, Any]) -> dict[str, Any]:
        unknown = [name for name in value if name not in Settings().names()]
        if unknown:
            raise ValueError(f"unknown key {unknown[0]}; known are {', '.join(Settings().names())}")
        _settings(value)  # raises ValueError with the setting's bounds
        return value

    def settings(self) -> Settings:
        """Settings of the laps-sd policy."""
        return _settings(self.policy)

    def cost(self) -> CostModel | None:
        """Cost model of the file that is named, None where none is; InputError when it is not one."""
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


def _settings(values: Mapping[str, Any]) -> Settings:
    """Build the policy's settings, the posterior's among them; ValueError names the one that is wrong."""
    own = dict(values)
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
        content = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"--laps-sd-config {path}: {error.strerror or error}; give a readable YAML file") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InputError(f"--laps-sd-config {path} is not YAML ({_one_line(error)}); correct it") from error
    config = parse_config({} if content is None else content, source=f"--laps-sd-config {path}")
    config.cost()
    return config


def parse_config(content: object, *, source: str) -> ServingConfig:
    """Validate parsed YAML; ``source`` begins the sentence of a refusal."""
    if not isinstance(content, Mapping):
        raise InputError(f"{source} must hold keys and values; `laps-sd config show` prints every key")
    try:
        return ServingConfig.model_validate(content)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        what = "unknown key" if first["type"] == "extra_forbidden" else str(first["msg"]).removeprefix("Value error, ")
        raise InputError(f"{source}: {where}: {what}; `laps-sd config show` prints every key") from error


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())


def as_yaml(config: ServingConfig) -> str:
    """Every key with its value and, above it, its meaning; policy constants that keep their default are comments."""
    lines = ["# laps-sd: the file for --laps-sd-config. Every key may be left out.", *_section_lines(config, "")]
    lines += ["", *_comment(ServingConfig.model_fields["policy"].description or "", ""), "policy:"]
    lines += _policy_lines(Settings(), config.policy, "  ")
    return "\n".join(lines) + "\n"


def _section_lines(model: BaseModel, indent: str) -> Iterator[str]:
    for name, field in type(model).model_fields.items():
        if name == "policy":
            continue
        value = getattr(model, name)
        if isinstance(value, BaseModel):
            yield ""
            yield from _comment((type(value).__doc__ or "").strip(), indent)
            yield f"{indent}{name}:"
            yield from _section_lines(value, indent + "  ")
        else:
            yield from _comment(field.description or "", indent)
            yield f"{indent}{name}: {_scalar(value)}"


def _policy_lines(defaults: Any, given: dict[str, Any], indent: str) -> Iterator[str]:
    kind: Any = type(defaults)
    for name, _, setting in declared(kind):
        default = getattr(defaults, name)
        mark = "" if name in given else "# "
        yield from _comment(meaning(setting), indent)
        if is_dataclass(default):
            yield f"{indent}{mark}{name}:"
            yield from _policy_lines(default, given.get(name, {}), indent + "  ")
        else:
            yield f"{indent}{mark}{name}: {_scalar(given.get(name, default))}"


def meaning(setting: Setting) -> str:
    """Meaning of a setting, with its range and unit in parentheses."""
    numbers = " ".join(part for part in (setting.range, setting.unit) if part)
    return f"{setting.meaning} ({numbers})" if numbers else setting.meaning


def _comment(text: str, indent: str) -> list[str]:
    return textwrap.wrap(" ".join(text.split()), _WIDTH, initial_indent=f"{indent}# ", subsequent_indent=f"{indent}# ")


def _scalar(value: Any) -> str:
    return yaml.safe_dump(value, default_flow_style=True).removesuffix("...\n").strip()
