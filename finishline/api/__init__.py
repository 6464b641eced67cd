"""The schemas that cross HTTP: the server writes them, the client reads them."""
