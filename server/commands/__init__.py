"""Commands that come with the server: up, service, backup, restore and rescore."""
