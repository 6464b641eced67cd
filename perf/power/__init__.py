"""Parts of verdict_power.py: claims that the judge sees, luck in our own runs, fixed stops."""
