"""Rivals of the experiments, written in plain PySpark as their own users would write them."""

from __future__ import annotations
