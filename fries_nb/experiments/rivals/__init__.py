"""What the experiments are held against, as its own users would write it: plain PySpark."""

from __future__ import annotations
