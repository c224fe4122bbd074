"""Placeholder for ``torchvision.transforms``; transformers reads the interpolation modes at import."""

import enum

from torchvision._placeholder import names


class InterpolationMode(enum.Enum):
    """As in torchvision."""

    NEAREST = "nearest"
    NEAREST_EXACT = "nearest-exact"
    BILINEAR = "bilinear"
    BICUBIC = "bicubic"
    BOX = "box"
    HAMMING = "hamming"
    LANCZOS = "lanczos"


__getattr__ = names("transforms")
