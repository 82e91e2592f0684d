"""The changes of a run: the users' handles, the queue in which they wait, rollbacks, and replays."""
