"""Who may see the stand-ins: only a process tree that our CPU launcher started, on a machine that needs them.

The standard library only: SGLang's processes import this before torch.
"""

import os
from importlib.metadata import PackageNotFoundError, version

#: Set by the launcher (:mod:`laps_sd.serving.cpu.launch`) for the process tree it starts.
ACTIVE = "LAPS_SD_CPU"

#: Distributions that carry the real module, by the stand-in's name.
REAL_BUILDS: dict[str, tuple[str, ...]] = {
    "sgl_kernel": ("sgl-kernel", "sglang-kernel", "sgl-kernel-cpu", "sglang-kernel-cpu"),
    "triton": ("triton", "pytorch-triton", "triton-cpu", "pytorch-triton-rocm", "pytorch-triton-xpu"),
    "torchvision": ("torchvision",),
}


def active() -> bool:
    """Whether this process belongs to a tree that the CPU launcher started."""
    return os.environ.get(ACTIVE) == "1"


def real_build(module: str) -> str | None:
    """Name and version of the installed distribution that carries the real ``module``; None where there is none."""
    for name in REAL_BUILDS[module]:
        try:
            return f"{name} {version(name)}"
        except PackageNotFoundError:
            continue
    return None


def require_standin(module: str) -> None:
    """Refuse to be imported where no stand-in may act; called first thing by each.

    Raises
    ------
    ImportError
        Outside a CPU process tree of ours, or where a real build is installed.
    """
    if not active():
        raise ImportError(
            f"{module}: this is the CPU stand-in of laps-sd, which only `laps-sd serve --cpu` may use; "
            f"take its folder off PYTHONPATH",
            name=module,
        )
    if (real := real_build(module)) is not None:
        raise ImportError(
            f"{module}: {real} is installed, so the CPU stand-in of laps-sd does not act; "
            f"take its folder off PYTHONPATH or uninstall {real.split()[0]}",
            name=module,
        )
