"""Placeholder for ``torchvision.transforms.v2.functional``."""

from torchvision._placeholder import names

__getattr__ = names("transforms.v2.functional")
