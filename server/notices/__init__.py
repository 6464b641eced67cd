"""Telling people and programs what happened: events, webhooks, e-mail."""
