"""A training of a stranger in a box: started, fed, timed and killed by the worker."""
