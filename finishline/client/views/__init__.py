"""What the server answers, as typed and frozen values with the field names of the API."""
