"""The page of ``laps-sd evaluate --report``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from laps_sd.report.page import Page
from laps_sd.training.evaluation.figures import Evaluation
from laps_sd.training.evaluation.plots import evaluation_plots

_MEASURES = {
    "kendall_tau": "Kendall τ",
    "spearman": "Spearman",
    "c_index": "C-index",
    "mae_tokens": "MAE (tokens)",
    "log_mae": "log MAE",
    "median_relative_error": "median relative error",
    "pinball": "pinball (tokens)",
    "integrated_brier": "integrated Brier",
    "coverage_80": "80 % coverage",
    "width_80_tokens": "80 % width (tokens)",
}
_CAPTIONS = {
    "predicted_vs_true": "Median prediction against what happened, requests that ended by themselves.",
    "calibration": "How many requests ended below each predicted quantile: on the diagonal when calibrated.",
    "coverage": "How many requests fell into the central interval of each level.",
    "survival_curves": "Predicted chance to be longer than a number of tokens, for requests from short to long.",
    "error_by_length": "Long answers are predicted too short and short ones too long: the price of not knowing.",
    "refinement": "Order of the tokens left among the requests that still run: by arrival alone, and refined.",
    "error_by_category": "Where the predictor is good and where it is not.",
}


def evaluation_report(evaluation: Evaluation) -> Page:
    """Return the page: figures beside baselines, plots, and where not to trust them."""
    figures = evaluation.figures
    page = Page("Prediction accuracy", f"{figures['n']} requests, {figures['n_censored']} of them cut by a limit")
    _length(page, figures)
    _shift(page, figures["shift"])
    for name, figure in evaluation_plots(evaluation).items():
        page.figure(figure, _CAPTIONS[name])
    _steps(page, "Accept length", "Error of the tokens per verify step of the rest.", figures["acceptance"])
    _steps(
        page, "Execution time", "Remaining verify steps; the paper reports 6.84 % overall.", figures["execution_time"]
    )
    _steps(
        page,
        "Length in flight",
        "What is known of the rest once an answer runs: the curve of arrival given the tokens so far, and refined.",
        figures.get("refinement"),
        unit="tokens so far",
    )
    page.heading("Speed")
    page.text(
        f"One request was predicted in {figures['predict_ms_p50']:.2f} ms (p50) and {figures['predict_ms_p99']:.2f} ms "
        "(p99), both predictors together, in this process."
    )
    return page


def _length(page: Page, figures: Mapping[str, Any]) -> None:
    page.heading("Output length")
    named = {"predicted": {"length": figures["length"]}, **(figures["baselines"] or {})}
    rows = [
        [name.replace("_", " "), *(_number(part["length"].get(key)) for key in _MEASURES)]
        for name, part in named.items()
        if part is not None
    ]
    page.table(["", *_MEASURES.values()], rows, "Baselines are fitted out-of-fold on the same records.")
    intervals = figures["length"].get("ci_95") or {}
    rows = [[_MEASURES[key], *map(_number, limits)] for key, limits in intervals.items() if limits]
    if rows:
        page.table(["95 % confidence interval", "from", "to"], rows, "Bootstrap over groups of prompts.")
    ceiling = figures["noise_ceiling"]
    if ceiling:
        page.text(
            f"Noise ceiling: two answers to one prompt order {ceiling['n_prompts']} prompts alike at Kendall τ "
            f"{ceiling['kendall_tau']:.2f}; no predictor that sees only the prompt can do much better."
        )


def _shift(page: Page, shift: Mapping[str, Any] | None) -> None:
    if not shift or not shift["shifted"]:
        return
    page.note(
        f"These requests look unlike the training data (stability index {shift['score']:.2f}, large above 0.25). "
        "Expect worse figures than at training; train again on requests like these."
    )
    rows = [[name, f"{value:.2f}"] for name, value in list(shift["features"].items())[:8]]
    page.table(["feature", "population stability index"], rows, "What differs most.")


def _steps(
    page: Page, title: str, caption: str, part: Mapping[str, Any] | None, unit: str = "verify steps seen"
) -> None:
    if not part:
        return
    tables = {name: values for name, values in part.items() if isinstance(values, Mapping)}
    steps = list(dict.fromkeys(step for values in tables.values() for step in values))
    rows = [[name.replace("_", " "), *(_cell(name, values.get(s)) for s in steps)] for name, values in tables.items()]
    page.heading(title)
    page.table([unit, *steps], rows, caption)


def _number(value: float | None) -> str | None:
    if value is None:
        return None
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _cell(name: str, value: float | None) -> str | None:
    """Counts and tokens as they are, shares and errors as percentages."""
    if value is None or name.startswith(("n_", "width_", "kendall_", "log_", "mae_")):
        return _number(value)
    return f"{100 * value:.1f} %"
