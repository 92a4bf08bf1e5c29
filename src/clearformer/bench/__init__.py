"""How fast a model runs here: ours, other libraries with the same weights, and what the machine itself allows."""
