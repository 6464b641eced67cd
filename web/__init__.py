"""The pages: templates, static files and charts. Knows the rules and nothing of the server."""
