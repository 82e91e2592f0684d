"""Storage on a file system: checkpoints, commits, part files and their schemas."""
