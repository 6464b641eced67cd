"""The services of an application that a test calls."""


def services_of(client):
    return client.app.state.services
