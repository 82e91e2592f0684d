"""A run at work: its regions one after another, the changes that wait for their turn, what is heard meanwhile."""
