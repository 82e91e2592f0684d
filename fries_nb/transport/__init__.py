"""Messages between processes: frames on the wire, links, keys and control envelopes."""
