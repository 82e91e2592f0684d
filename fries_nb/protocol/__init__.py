"""What the two sides of the protocol and all environments share: messages, frames, topology, trace, checkpoints."""
