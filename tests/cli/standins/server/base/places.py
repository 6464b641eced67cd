"""A stand-in of the module that tells finishline-server apart."""
