"""Placeholder for ``torchvision.io``."""

from torchvision._placeholder import names

__getattr__ = names("io")
