"""Placeholder for torchvision: PyPI's build needs the CUDA torch.

SGLang and transformers import names from it at start-up; a text model calls none of them.
"""

from laps_sd.serving.cpu.guard import require_standin

require_standin("torchvision")
__version__ = "0.28.0"
