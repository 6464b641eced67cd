"""Commands of `finishline`, one module for each or for a few that belong together."""
