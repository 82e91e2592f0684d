"""The driver's side of a run, free of input and output: an event in, instructions out.

``Controller`` is the one object; ``events`` names what it hears and what it says. A caller with threads and sockets
(`spark`) and a caller with a seeded scheduler (`testing`) run the same one.
"""
