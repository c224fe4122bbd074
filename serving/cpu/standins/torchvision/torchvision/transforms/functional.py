"""Placeholder for ``torchvision.transforms.functional``."""

from torchvision._placeholder import names

__getattr__ = names("transforms.functional")
