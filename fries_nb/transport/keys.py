"""The CURVE keys of one run: who may talk to whom.

The driver makes them when a run starts. The controller has a pair of its own; all hosts of the run share another. A
host gets ``RunKeys.hosts`` through Spark and so knows the controller's public key, not its secret: it cannot pose as
the controller. Keys travel by pickle inside Spark's own channels and are never printed.

>>> make_keys()
RunKeys(hosts=HostKeys())
"""

from __future__ import annotations

from dataclasses import dataclass, field

import zmq


@dataclass(frozen=True)
class HostKeys:
    """What a host holds: the hosts' pair and the controller's public key, all in Z85 (40 bytes)."""

    public: bytes = field(repr=False)
    secret: bytes = field(repr=False)
    controller_public: bytes = field(repr=False)


@dataclass(frozen=True)
class RunKeys:
    """What the driver holds: the controller's secret too."""

    controller_secret: bytes = field(repr=False)
    hosts: HostKeys


def make_keys() -> RunKeys:
    """New keys for one run."""
    controller_public, controller_secret = zmq.curve_keypair()
    public, secret = zmq.curve_keypair()
    return RunKeys(controller_secret, HostKeys(public, secret, controller_public))
