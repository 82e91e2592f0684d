"""The driver of a region: carries out the controller's instructions, and passes it the events of hosts and users."""
