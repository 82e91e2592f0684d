"""Experiments on a running fries_nb; each returns data and draws nothing."""
