"""The example that `finishline benchmark init` writes; `.example` keeps it from being imported."""
