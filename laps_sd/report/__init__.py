"""HTML reports: one self-contained file each, readable offline."""

from laps_sd.report.page import Page

__all__ = ["Page"]
