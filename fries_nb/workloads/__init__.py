"""Payments data and the dataflows of the paper, written with the public API only."""

from __future__ import annotations
