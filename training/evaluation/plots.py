"""The plots of an evaluation, as plotly figures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from plotly.graph_objects import Box, Figure, Scatter

from laps_sd.predictors.arrays import Floats
from laps_sd.predictors.length.buckets import quantiles
from laps_sd.predictors.length.calibration import survival_at
from laps_sd.training.evaluation.figures import Evaluation

_BLUE, _GREY, _ORANGE = "#1f5fbf", "#7f8ea3", "#d1742a"
_LEVELS = np.arange(5, 100, 5) / 100.0
_MOST_POINTS = 3000


def evaluation_plots(evaluation: Evaluation) -> dict[str, Figure]:
    """Return the plots by name."""
    plots = {
        "predicted_vs_true": predicted_against_true(evaluation),
        "calibration": calibration(evaluation),
        "coverage": coverage(evaluation),
        "survival_curves": survival_curves(evaluation),
        "error_by_length": error_by_length(evaluation),
    }
    if evaluation.figures.get("refinement"):
        plots["refinement"] = refinement(evaluation.figures["refinement"])
    if any(r.category for r in evaluation.records):
        plots["error_by_category"] = error_by_category(evaluation)
    return plots


def log_plots(mlflow: Any, evaluation: Evaluation, folder: str, more: Mapping[str, Figure] | None = None) -> None:
    """Log the plots as HTML artifacts under ``folder``."""
    for name, figure in {**evaluation_plots(evaluation), **(more or {})}.items():
        mlflow.log_figure(figure, f"{folder}/{name}.html")


def predicted_against_true(evaluation: Evaluation) -> Figure:
    """Median prediction against the real length, with the 80 % interval where there are few points."""
    ended = np.flatnonzero(~evaluation.censored)
    shown = ended[:: max(1, len(ended) // _MOST_POINTS)]
    actual = evaluation.tokens[shown]
    median = quantiles(evaluation.survival[shown], evaluation.edges, 0.5)
    figure = Figure(Scatter(x=actual, y=median, mode="markers", name="request", marker={"size": 4, "color": _BLUE}))
    line = [float(actual.min()), float(actual.max())] if len(actual) else [1.0, 10.0]
    figure.add_trace(Scatter(x=line, y=line, mode="lines", name="exact", line={"color": _GREY, "dash": "dot"}))
    figure.update_xaxes(type="log")
    figure.update_yaxes(type="log")
    return _titled(figure, "output length (tokens)", "predicted median (tokens)")


def calibration(evaluation: Evaluation) -> Figure:
    """Share of requests that ended below each predicted quantile: on the diagonal when calibrated."""
    ended = ~evaluation.censored
    at = 1.0 - survival_at(evaluation.tokens[ended] - 0.5, evaluation.survival[ended], evaluation.edges)
    seen = [float((at <= level).mean()) for level in _LEVELS] if ended.any() else []
    figure = Figure(Scatter(x=_LEVELS, y=seen, mode="lines+markers", name="requests", line={"color": _BLUE}))
    figure.add_trace(Scatter(x=[0, 1], y=[0, 1], mode="lines", name="calibrated", line={"color": _GREY, "dash": "dot"}))
    return _titled(figure, "predicted quantile", "share of requests below it")


def coverage(evaluation: Evaluation) -> Figure:
    """Share of requests inside the central interval of each level."""
    ended = ~evaluation.censored
    actual, curves = evaluation.tokens[ended], evaluation.survival[ended]

    def inside(level: float) -> float:
        low = np.floor(quantiles(curves, evaluation.edges, (1.0 - level) / 2.0))
        high = np.ceil(quantiles(curves, evaluation.edges, (1.0 + level) / 2.0))
        return float(((actual >= low) & (actual <= high)).mean())

    seen = [inside(float(level)) for level in _LEVELS] if ended.any() else []
    figure = Figure(Scatter(x=_LEVELS, y=seen, mode="lines+markers", name="requests", line={"color": _BLUE}))
    figure.add_trace(Scatter(x=[0, 1], y=[0, 1], mode="lines", name="exact", line={"color": _GREY, "dash": "dot"}))
    return _titled(figure, "interval level", "share of requests inside")


def survival_curves(evaluation: Evaluation) -> Figure:
    """Predicted curves of a few requests from short to long, and the mean of all."""
    medians = quantiles(evaluation.survival, evaluation.edges, 0.5)
    order = np.argsort(medians)
    chosen = order[np.linspace(0, len(order) - 1, min(9, len(order))).astype(int)]
    figure = Figure()
    for i in chosen:
        name = f"median {medians[i]:.0f}"
        figure.add_trace(Scatter(x=evaluation.edges, y=evaluation.survival[i], name=name, line={"width": 1}))
    mean = evaluation.survival.mean(axis=0)
    figure.add_trace(Scatter(x=evaluation.edges, y=mean, name="mean of all", line={"color": "black", "width": 3}))
    figure.update_xaxes(type="log")
    return _titled(figure, "tokens", "chance to be longer")


def error_by_length(evaluation: Evaluation) -> Figure:
    """Predicted over real length, by decile of the real length."""
    ended = ~evaluation.censored
    actual, ratio = evaluation.tokens[ended], _log_ratio(evaluation)[ended]
    figure = Figure()
    if len(actual):
        limits = np.unique(np.quantile(actual, np.linspace(0, 1, 11)))
        decile = np.clip(np.searchsorted(limits, actual, side="left"), 1, max(1, len(limits) - 1))
        for i in np.unique(decile):
            name = f"≤ {limits[min(i, len(limits) - 1)]:.0f}"
            figure.add_trace(Box(y=ratio[decile == i], name=name, marker={"color": _BLUE}, boxpoints=False))
    figure.update_layout(showlegend=False)
    return _titled(figure, "output length up to (tokens), deciles", "predicted / real, factors of 2")


def error_by_category(evaluation: Evaluation) -> Figure:
    """Predicted over real length, by the trace's categories."""
    ended, ratio = ~evaluation.censored, _log_ratio(evaluation)
    names = np.array([r.category or "none" for r in evaluation.records])
    figure = Figure()
    for name in np.unique(names[ended]):
        values = ratio[ended & (names == name)]
        figure.add_trace(Box(y=values, name=str(name), marker={"color": _BLUE}, boxpoints=False))
    figure.update_layout(showlegend=False)
    return _titled(figure, "category", "predicted / real, factors of 2")


def refinement(figures: Mapping[str, Any]) -> Figure:
    """Kendall τ of the tokens left by tokens so far, of the arrival curve and refined."""
    figure = Figure()
    for kind, colour in (("arrival", _GREY), ("refined", _BLUE)):
        known = {int(c): tau for c, tau in figures[f"kendall_tau_{kind}"].items() if tau is not None}
        lines = {"x": list(known), "y": list(known.values()), "mode": "lines+markers"}
        figure.add_trace(Scatter(**lines, name=kind, line={"color": colour}))
    figure.update_xaxes(type="log")
    return _titled(figure, "tokens so far", "Kendall τ of the tokens left")


def learning_curve(points: Mapping[int, Mapping[str, Any]]) -> Figure:
    """Kendall τ on the validation split by number of training requests."""
    known = {n: figures["kendall_tau"] for n, figures in points.items() if figures["kendall_tau"] is not None}
    figure = Figure(Scatter(x=list(known), y=list(known.values()), mode="lines+markers", line={"color": _ORANGE}))
    figure.update_xaxes(type="log")
    return _titled(figure, "training requests", "Kendall τ on the validation split")


def _log_ratio(evaluation: Evaluation) -> Floats:
    median = np.maximum(quantiles(evaluation.survival, evaluation.edges, 0.5), 1.0)
    ratio: Floats = np.log2(median / evaluation.tokens)
    return ratio


def _titled(figure: Figure, x: str, y: str) -> Figure:
    figure.update_layout(
        template="plotly_white",
        xaxis_title=x,
        yaxis_title=y,
        height=400,
        margin={"t": 20, "l": 60, "r": 20, "b": 50},
        legend={"orientation": "h", "y": 1.08},
    )
    return figure
