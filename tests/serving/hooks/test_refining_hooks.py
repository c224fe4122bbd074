"""Refinement in SGLang's own scheduling loop, and how a scheduler process comes to it."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from laps_sd.predictors.progress.refiner import Refiner
from laps_sd.serving.config import ServingConfig
from laps_sd.serving.hooks.agreement import all_ranks_hold
from laps_sd.serving.launch import Launch
from laps_sd.serving.requests.refining import Refining

Make = Callable[..., Any]
ALONE = SimpleNamespace(tp_size=1, tp_rank=0, attn_dp_size=1)


class Letters:
    """A tokenizer of one token per ASCII character."""

    def __len__(self) -> int:
        return 128

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        return [ord(letter) for letter in text]

    def decode(self, token_ids: list[int], *, skip_special_tokens: bool = False) -> str:
        return "".join(map(chr, token_ids))


def serve(engine: Make, refining: Refining | None) -> tuple[dict[str, Any], Any]:
    """Run more requests than there is room for, with preemptions and retractions; return what they said."""
    machine = engine({"policy": {"max_preemptions": 9}}, slots=3, kv_tokens=700)
    machine.hooks.active.side._refining = refining
    sizes = [180, 150, 170, 40, 90, 35, 140, 60]
    for i, tokens in enumerate(sizes):
        machine.submit(str(i), prompt=20 + i, tokens=tokens, predicted=100)
        for _ in range(25):
            machine.round()
    machine.run()
    machine.check_memory()
    return {req.rid: list(req.output_ids) for req in machine.finished}, machine


def test_answers_are_the_same_with_refinement_and_without(engine: Make, classes: Any, refiner: Any) -> None:
    plain, _ = serve(engine, None)
    refined, machine = serve(engine, Refining(classes, refiner, 4))
    assert refined == plain
    assert len(refined) == 8
    states = [req.laps_sd.state for req in machine.finished]
    assert sum(len(state.refinements) for state in states) >= 5
    assert any(state.preemptions for state in states)


def launch(refiner: Any, tmp_path: Path, **config: Any) -> Launch:
    folder = None if refiner is None else str(refiner.save(tmp_path / "refinement"))
    return Launch(None, ServingConfig.model_validate({"unpredicted": True, **config}), refinement=folder)


def test_what_the_launcher_left_is_read_and_bound_to_the_servers_tokenizer(
    sglang: Any, refiner: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    from laps_sd.data.progress.answers import AnswerCounter
    from laps_sd.serving.hooks.scheduler import refining_of

    own = AnswerCounter(Letters()).classes
    assert own is not None
    fitting = Refiner(refiner.trees, refiner.calibration, refiner.checkpoints, [own.name])
    made = refining_of(launch(fitting, tmp_path, refinement={"per_round": 7}), Letters(), ALONE)
    assert made is not None
    assert made.refiner is not None
    assert made.refiner.name == fitting.name
    other = refining_of(launch(refiner, tmp_path / "other"), Letters(), ALONE)
    assert other is not None
    assert other.refiner is None
    assert "with another tokenizer" in caplog.text


def test_without_a_refinement_answers_are_counted_for_the_record_only(sglang: Any, tmp_path: Path) -> None:
    from laps_sd.serving.hooks.scheduler import refining_of

    assert refining_of(launch(None, tmp_path), Letters(), ALONE) is None
    recording = refining_of(launch(None, tmp_path, record={"path": str(tmp_path / "r.jsonl")}), Letters(), ALONE)
    assert recording is not None
    assert recording.refiner is None
    assert refining_of(launch(None, tmp_path, record={"path": "r.jsonl"}), None, ALONE) is None


@pytest.mark.parametrize("off", [{"refinement": {"enabled": False}}, {"policy": {"refine": False}}])
def test_switched_off_nothing_is_left_for_the_schedulers(sglang: Any, refiner: Any, off: dict[str, Any]) -> None:
    from laps_sd.serving.hooks.tokenizer import with_refinement

    bundle: Any = SimpleNamespace(refinement=refiner)
    plain = Launch(None, ServingConfig.model_validate({"unpredicted": True}))
    told = with_refinement(plain, bundle)
    assert told.refinement is not None
    assert Refiner.load(Path(told.refinement)).name == refiner.name
    assert (
        with_refinement(Launch(None, ServingConfig.model_validate({"unpredicted": True, **off})), bundle).refinement
        is None
    )
    assert with_refinement(plain, None).refinement is None


class Store(dict[str, str]):
    """A store in which nobody has to wait: what is not there will not come."""

    def set(self, key: str, value: str) -> None:
        self[key] = value

    def wait(self, keys: list[str], timeout: object) -> None:
        for key in keys:
            if key not in self:
                raise TimeoutError(key)

    def get(self, key: str, default: Any = None) -> Any:
        return self[key].encode()


def test_ranks_refine_by_the_same_model_or_not_at_all() -> None:
    first, second = (SimpleNamespace(tp_size=2, tp_rank=i, attn_dp_size=1) for i in range(2))
    store = Store()
    assert not all_ranks_hold("one", first, lambda: store, 0.1), "the other has not come"
    assert not all_ranks_hold("one", second, lambda: store, 0.1), "who gave up does not refine"
    store.clear()
    store.set("laps-sd/refines-by/1", "one")
    assert all_ranks_hold("one", first, lambda: store, 0.1)
    assert not all_ranks_hold("another", first, lambda: store, 0.1)
    assert all_ranks_hold("one", ALONE, lambda: store, 0.1)
