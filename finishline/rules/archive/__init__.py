"""Find submissions in a tree of files and score them. The caller lists and reads the files."""
