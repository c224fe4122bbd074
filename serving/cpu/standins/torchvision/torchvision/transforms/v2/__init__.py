"""Placeholder for ``torchvision.transforms.v2``."""

from torchvision._placeholder import names

__getattr__ = names("transforms.v2")
