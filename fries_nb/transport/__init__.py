"""Transport: messages between the processes of a run; frames on the wire, links, keys and control envelopes."""
