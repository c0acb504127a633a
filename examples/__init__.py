"""Trainables with real data, to run and to copy from."""
