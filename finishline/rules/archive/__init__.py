"""Published archives: find the submissions in a tree of files and score each one.

Nothing here touches a disk: the caller lists and reads files (`files.Archive`).
"""
