"""Rules of time to accuracy as pure code: text and numbers in, values out."""
