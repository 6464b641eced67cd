"""Responses of the server as typed and frozen values with the field names of the API."""
