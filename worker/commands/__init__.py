"""Commands that come with a worker: bench, scale, profile and probe."""
