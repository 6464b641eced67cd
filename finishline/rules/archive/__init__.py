"""Find the submissions of published archives in a tree of files, and score each one.

The caller lists and reads files (`files.Archive`): this code stays off the disk.
"""
