"""How ``laps-sd simulate`` prints what it found."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console

from laps_sd.commands._output import policy_table

if TYPE_CHECKING:
    from laps_sd.simulation.run import Results


def show(results: Results) -> None:
    """Print the tables."""
    console = Console(markup=False)
    facts = results.workload
    tau = facts["predictions_kendall_tau"]
    load = "unknown" if facts["load"] is None else f"{facts['load']:.2f}"
    console.print(
        f"{facts['n']} requests, {facts['seeds']} seed(s), {facts['slots']} slots, load {load}, predictions "
        f"{facts['predictions']}{'' if tau is None else f' (Kendall tau {tau:.2f})'}, "
        f"{facts['censored_left_out']} censored requests left out"
    )
    console.print(policy_table(results.policies, "Policies"))
    if results.ablation:
        console.print(policy_table(results.ablation, "Ablation of laps-sd"))
    for at_load, table in sorted(results.sweep.items()):
        console.print(policy_table(table, f"At load {at_load:g}"))
