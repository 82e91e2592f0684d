"""The CURVE keys of a run, which authenticate and encrypt its connections.

The driver creates them when a run starts. The controller has one key pair; all hosts of the run share another. A host
gets ``RunKeys.hosts`` through Spark: it knows the controller's public key, not its secret, and so cannot impersonate
the controller. Keys travel by pickle inside Spark's own channels and are never printed.

>>> make_keys()
RunKeys(hosts=HostKeys())
"""

from __future__ import annotations

from dataclasses import dataclass, field

import zmq


@dataclass(frozen=True)
class HostKeys:
    """The keys that a host holds: the hosts' pair and the controller's public key, each in Z85 (40 bytes)."""

    public: bytes = field(repr=False)
    secret: bytes = field(repr=False)
    controller_public: bytes = field(repr=False)


@dataclass(frozen=True)
class RunKeys:
    """The keys that the driver holds, with the controller's secret."""

    controller_secret: bytes = field(repr=False)
    hosts: HostKeys


def make_keys() -> RunKeys:
    """New keys for one run."""
    controller_public, controller_secret = zmq.curve_keypair()
    public, secret = zmq.curve_keypair()
    return RunKeys(controller_secret, HostKeys(public, secret, controller_public))
