"""Published archives: which submissions a tree of files holds, and what each comes to.

Nothing here touches a disk: files are listed and read by whoever calls (`files.Archive`).
"""
