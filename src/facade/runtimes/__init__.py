"""Runtimes: ways of turning posts into inboxes."""
