"""Notify people and programs of events, by webhook and e-mail."""
