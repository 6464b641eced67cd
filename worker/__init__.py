"""The stopwatch: takes replay jobs from the broker, trains in a child, reports over HTTP."""
