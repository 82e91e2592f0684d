"""What lies on a file system: checkpoints, manifests, part files and their schemas."""
