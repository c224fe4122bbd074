"""The transformer length estimator: an encoder fine-tuned on the same censored hazard loss as the trees."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from laps_sd.data import PromptRequest
from laps_sd.predictors.arrays import Bools, Floats
from laps_sd.predictors.features.encoder import Encoder
from laps_sd.predictors.length.buckets import exposure, log_edges
from laps_sd.predictors.length.calibration import Calibration
from laps_sd.predictors.length.estimator import LengthEstimator
from laps_sd.predictors.length.hazard_curves import HazardGrid
from laps_sd.predictors.length.transformer_curves import TransformerCurves
from laps_sd.predictors.rows import grouped_folds


class TransformerLength(LengthEstimator):
    """Output length as a survival curve from a fine-tuned text encoder.

    A fifth of the groups is held out: training stops when the loss on it no longer falls, and it calibrates the
    curves. Milliseconds per prompt on a CPU; for servers with time to spare, or as a yardstick of the cheap features.

    Parameters
    ----------
    encoder : str
        Folder (or Hugging Face name) of the encoder to start from.
    buckets, terms : int
        As in ``HazardLength``.
    epochs : int
        Most passes over the training rows.
    learning_rate : float
        Of the encoder; the head learns twenty times faster.
    seed : int
        Seed of split, order and dropout.

    Attributes
    ----------
    model_ : TransformerCurves
    """

    def __init__(
        self,
        encoder: str = "",
        buckets: int = 32,
        terms: int = 3,
        epochs: int = 6,
        learning_rate: float = 5e-5,
        seed: int = 0,
    ) -> None:
        self.encoder = encoder
        self.buckets = buckets
        self.terms = terms
        self.epochs = epochs
        self.learning_rate = learning_rate
        self.seed = seed

    def _fit(
        self, requests: list[PromptRequest], tokens: Floats, cut: Bools, groups: NDArray[Any] | None
    ) -> TransformerCurves:
        encoder = Encoder.load(self.encoder)
        grid = HazardGrid.of(tokens, cut, log_edges(tokens, self.buckets), self.terms)
        test = grouped_folds(groups, len(requests), 5, self.seed)[0]
        train = np.setdiff1d(np.arange(len(requests)), test)
        texts = [r.prompt for r in requests]
        head = self._tune(encoder, grid, texts, tokens, cut, train, test)
        model = TransformerCurves(encoder, head, grid, Calibration.identity())
        held_out = model.raw_survival([requests[i] for i in test])
        model.calibration = Calibration.fit(tokens[test], cut[test], held_out, grid.edges)
        return model

    def _tune(
        self,
        encoder: Encoder,
        grid: HazardGrid,
        texts: Sequence[str],
        tokens: Floats,
        cut: Bools,
        train: NDArray[Any],
        test: NDArray[Any],
    ) -> Floats:
        """Fine-tune ``encoder`` in place, and return its head, shape (d + 1, K)."""
        import torch

        torch.manual_seed(self.seed)
        loss = _TorchLoss(grid, tokens, cut)
        width = encoder.width
        head = torch.nn.Linear(width, self.terms)
        torch.nn.init.zeros_(head.weight)
        torch.nn.init.zeros_(head.bias)
        rates = [
            {"params": encoder.network.parameters(), "lr": self.learning_rate},
            # Unit-length vectors have small components: the head must take long steps.
            {"params": head.parameters(), "lr": 20 * self.learning_rate, "weight_decay": 0.0},
        ]
        optimizer = torch.optim.AdamW(rates, weight_decay=0.01)
        batches = encoder.batches([texts[i] for i in train])
        order, best, kept = np.random.default_rng(self.seed), np.inf, _weights(encoder, head)
        for _ in range(self.epochs):
            encoder.network.train()
            for b in order.permutation(len(batches)):
                rows, ids, mask = batches[b]
                optimizer.zero_grad()
                loss(head(encoder.pooled(ids, mask) * width**0.5), train[rows]).backward()
                torch.nn.utils.clip_grad_norm_(encoder.network.parameters(), 1.0)
                optimizer.step()
            encoder.network.eval()
            with torch.inference_mode():
                vectors = torch.from_numpy(encoder.embed([texts[i] for i in test])).float()
                value = float(loss(head(vectors * width**0.5), test))
            if value >= best:
                break
            best, kept = value, _weights(encoder, head)
        encoder.network.load_state_dict(kept[0])
        encoder.round()
        weight, bias = (kept[1][name].double().numpy() for name in ("weight", "bias"))
        return np.vstack([weight.T * width**0.5, bias])


class _TorchLoss:
    """Mean negative log-likelihood of requests given their scores; ``HazardLoss`` in torch."""

    def __init__(self, grid: HazardGrid, tokens: Floats, cut: Bools) -> None:
        import torch

        events, at_risk = exposure(tokens, cut, grid.edges)
        self._events, self._at_risk = torch.from_numpy(events).float(), torch.from_numpy(at_risk).float()
        self._offset, self._basis = torch.from_numpy(grid.offset).float(), torch.from_numpy(grid.basis).float()

    def __call__(self, scores: Any, rows: NDArray[Any]) -> Any:
        import torch

        index = torch.from_numpy(np.asarray(rows))
        logits = torch.clamp(self._offset + scores @ self._basis.T, -12.0, 12.0)
        events, at_risk = self._events[index], self._at_risk[index]
        log = torch.nn.functional.logsigmoid
        return -(events * log(logits) + (at_risk - events) * log(-logits)).sum(dim=1).mean()


def _weights(encoder: Encoder, head: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    return copy.deepcopy(encoder.network.state_dict()), copy.deepcopy(head.state_dict())
