"""`finishline bench`: speed of this machine, and of references, models and kernels on it."""
