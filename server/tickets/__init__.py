"""Tickets: seeds that are drawn for a claim before its training."""
