"""Installs fries_nb; everything there is to say about it stands in pyproject.toml."""

from __future__ import annotations

from setuptools import setup

setup()
