"""The configuration as a YAML file that explains itself: ``laps-sd config show``."""

import re
import textwrap
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

import yaml
from pydantic import BaseModel

from laps_sd.scheduler import PosteriorSettings, Settings
from laps_sd.serving.config import ServingConfig

_WIDTH = 100


def as_yaml(config: ServingConfig) -> str:
    """Every key with its value and, above it, its meaning; policy constants that keep their default are comments."""
    lines = ["# laps-sd: the file for --laps-sd-config. Every key may be left out.", *_section(config, "")]
    lines += ["", *_comment(ServingConfig.model_fields["policy"].description or "", ""), "policy:"]
    lines += _settings(Settings(), Settings, config.policy, "  ")
    return "\n".join(lines) + "\n"


def _section(model: BaseModel, indent: str) -> Iterator[str]:
    for name, field in type(model).model_fields.items():
        if name == "policy":
            continue
        value = getattr(model, name)
        if isinstance(value, BaseModel):
            yield ""
            yield from _comment((type(value).__doc__ or "").strip(), indent)
            yield f"{indent}{name}:"
            yield from _section(value, indent + "  ")
        else:
            yield from _comment(field.description or "", indent)
            yield f"{indent}{name}: {_scalar(value)}"


def _settings(defaults: Any, kind: type, given: dict[str, Any], indent: str) -> Iterator[str]:
    meanings = field_meanings(kind.__doc__ or "")
    for field in fields(kind):
        value = given.get(field.name, getattr(defaults, field.name))
        mark = "" if field.name in given else "# "
        yield from _comment(meanings.get(field.name, ""), indent)
        if is_dataclass(getattr(defaults, field.name)):
            yield f"{indent}{mark}{field.name}:"
            yield from _settings(
                getattr(defaults, field.name), PosteriorSettings, given.get(field.name, {}), indent + "  "
            )
        else:
            yield f"{indent}{mark}{field.name}: {_scalar(value)}"


def field_meanings(docstring: str) -> dict[str, str]:
    """Meaning of every name in the ``name, name : type`` or ``name`` entries of a NumPy docstring."""
    meanings: dict[str, str] = {}
    lines = textwrap.dedent("    " + docstring).splitlines()
    for index, line in enumerate(lines):
        entry = re.fullmatch(r"\s*((?:\w+, )*\w+)(?: : .+)?", line)
        if entry is None:
            continue
        indent = len(line) - len(line.lstrip())
        body = []
        for following in lines[index + 1 :]:
            if not following.strip() or len(following) - len(following.lstrip()) <= indent:
                break
            body.append(following.strip())
        if body:
            meanings.update(dict.fromkeys(entry.group(1).split(", "), " ".join(body)))
    return meanings


def _comment(text: str, indent: str) -> list[str]:
    return textwrap.wrap(" ".join(text.split()), _WIDTH, initial_indent=f"{indent}# ", subsequent_indent=f"{indent}# ")


def _scalar(value: Any) -> str:
    return yaml.safe_dump(value, default_flow_style=True).removesuffix("...\n").strip()
