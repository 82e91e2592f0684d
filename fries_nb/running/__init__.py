"""Execution of a run: its regions in sequence, the queue of its changes, its telemetry."""
