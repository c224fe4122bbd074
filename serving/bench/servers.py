"""The servers of a live comparison: how each policy is launched, and what would keep one from starting."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from laps_sd.errors import InputError
from laps_sd.serving.bench.names import file_name, needs_bundle, of_ours, ranks_by_plugin
from laps_sd.serving.cpu import launch
from laps_sd.serving.flags import POLICY, ROUNDS_ENV
from laps_sd.serving.process.server import SglangServer
from laps_sd.serving.process.speculation import Speculation, speculation_args


@dataclass(frozen=True, slots=True)
class Servers:
    """How the servers of a comparison are started.

    Attributes
    ----------
    out_dir : Path
        Receives their logs.
    bundle : path, MLflow URI or None
        Predictors for laps-sd; None: it runs unpredicted.
    model : path or None
        Model folder; None: the demo model.
    draft, draft_model : str, Path or None
        How tokens are drafted, and the model that does it for ``standalone``; None: the demo model's first 24 layers.
    slots : int
        Requests that decode together.
    cpu : bool
        On the CPU stand-in.
    args : sequence of str
        Further arguments for every server.
    config : mapping, optional
        Content of ``--laps-sd-config``.
    """

    out_dir: Path
    bundle: Path | str | None = None
    model: Path | str | None = None
    draft: Speculation = "ngram"
    draft_model: Path | None = None
    slots: int = 4
    cpu: bool = True
    args: Sequence[str] = ()
    config: Mapping[str, object] | None = None

    def arguments(self, policy: str) -> list[str]:
        """Return SGLang's arguments for a policy."""
        return [
            *speculation_args(self.draft, draft=self.draft_model),
            *("--max-running-requests", str(self.slots), "--enable-metrics"),
            *policy_args(policy, self.bundle, self.config, self.out_dir),
            *self.args,
        ]

    def serve(self, policy: str, name: str, rounds_log: Path | None = None) -> SglangServer:
        """Return a server, not yet started; it counts rounds into ``rounds_log``."""
        env = {} if rounds_log is None else {ROUNDS_ENV: str(rounds_log.resolve())}
        log = self.out_dir / f"server-{name}.log"
        return SglangServer(self.arguments(policy), cpu=self.cpu, model=self.model, log=log, env=env)


def policy_args(
    policy: str, bundle: Path | str | None, config: Mapping[str, object] | None, out_dir: Path
) -> list[str]:
    """Return launch arguments that select a policy: one of SGLang's own, or laps-sd with ours in its configuration."""
    if not ranks_by_plugin(policy):
        return ["--schedule-policy", policy]
    args = ["--schedule-policy", POLICY]
    content = dict(config or {})
    name = of_ours(policy)
    if name != POLICY:
        given = content.get("policy")
        content["policy"] = {**(given if isinstance(given, Mapping) else {}), "name": name}
    if bundle is None and needs_bundle(policy):
        content["unpredicted"] = True
    elif bundle is not None:
        args += ["--laps-sd-bundle", str(bundle)]
    if content:
        path = out_dir / f"{file_name(policy)}-config.yaml"
        path.write_text(yaml.safe_dump(content), encoding="utf-8")
        args += ["--laps-sd-config", str(path)]
    return args


def check_servers(model: Path | str | None, draft: Speculation, draft_model: Path | None, *, cpu: bool) -> None:
    """Refuse, before anything long is done, servers that could not start.

    Raises
    ------
    InputError
        The folder of a model is missing or holds none, or a draft model is named and not used.
    WorkError
        This environment cannot serve.
    """
    if draft_model is not None and draft != "standalone":
        raise InputError("a draft model is used with standalone drafts only; drop it or draft with standalone")
    if isinstance(model, Path) or (cpu and model is not None):
        launch.require_model(Path(model))
    if draft_model is not None:
        launch.require_model(draft_model)
    if cpu:
        launch.check(speculation_args(draft) if draft == "ngram" else ())
